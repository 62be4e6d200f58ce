"""Transactions: sends and settlements that are carried out together or not at all.

Operations are held until the discharge and change nothing before it; messages to settle stay
locked. After a rollback, messages stay locked for receivers that can still settle them, and the
others return to their queues. A transaction is valid only on the connection that declared it, and
can use only one partition of a partitioned entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.core.contract.effects import Reply
from broker.core.contract.errors import (
    BrokerError,
    NotAllowed,
    PartitionMismatch,
    QuotaExceeded,
    ServerBusy,
    TransactionRolledBack,
    TransactionUnknown,
)
from broker.core.contract.storage_room import needed_bytes
from broker.core.operations.atomic_limits import check_copies
from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.commands import Declare, Discharge, SetRollbackOnly
    from broker.core.contract.effects import Peer
    from broker.core.contract.turn import Turn
    from broker.core.operations.transactional_settlement import TransactionalSettlement
    from broker.core.queues.namespace_context import NamespaceContext


TRANSACTION_BYTES = 2 * 1024
"""The memory that is counted for an open transaction."""
OPERATION_BYTES = 1024
"""The memory that is counted for a held message or settlement, besides the body."""


class TransactionOperation(Protocol):
    """An operation of a transaction. It is held until the transaction commits."""

    @property
    def operations(self) -> int:
        """The number of messages."""

    @property
    def size_bytes(self) -> int:
        """The size of the messages."""

    @property
    def partition_keys(self) -> Iterable[tuple[int, str]]:
        """The partitions that it uses: ids of partitioned entities, each with a partition key."""

    def check(self) -> None:
        """Raises if it cannot be carried out now."""

    def run(self, now_ms: int, turn: Turn) -> None:
        """Carry it out. Called directly after `check`."""

    def undo(self, now_ms: int, turn: Turn) -> None:
        """The transaction was rolled back."""


class Transaction:
    """A transaction and its operations, in order."""

    __slots__ = (
        "connection",
        "copies",
        "deadline_ms",
        "held",
        "held_bytes",
        "id",
        "operations",
        "owner",
        "partitions",
        "refusal",
        "settlements",
        "size_bytes",
    )

    def __init__(
        self, transaction_id: bytes, owner: Peer, connection: object, deadline_ms: int
    ) -> None:
        self.id = transaction_id
        self.owner = owner
        self.connection = connection
        self.deadline_ms = deadline_ms
        self.held: list[TransactionOperation] = []
        self.settlements: dict[bytes, TransactionalSettlement] = {}
        """Settlements by lock token. No other operation may settle these locks."""
        self.partitions: dict[int, str] = {}
        """The partition key that the transaction uses, by id of a partitioned entity."""
        self.copies = 0
        """How many copies its sends may make on all subscriptions."""
        self.operations = 0
        self.size_bytes = 0
        """The size of the messages that it sends."""
        self.held_bytes = 0
        """The memory that is counted for it."""
        self.refusal: BrokerError | None = None
        """Why it can only be rolled back: the error of an operation that was refused. None if it
        can commit."""

    def hold_settlement(self, settlement: TransactionalSettlement) -> None:
        """Reserve the locks that a settlement of this transaction will end."""
        self.settlements.update(dict.fromkeys(settlement.tokens, settlement))


class ConnectionUsage:
    """The number and size of the open transactions of one connection."""

    __slots__ = ("count", "held_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.held_bytes = 0


class Transactions:
    """The open transactions of a namespace."""

    __slots__ = ("_context", "_held_bytes", "_open", "_owned", "_usage")

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        self._open: dict[bytes, Transaction] = {}
        self._owned: dict[Peer, dict[Transaction, None]] = {}
        self._usage: dict[object, ConnectionUsage] = {}
        """The usage of each connection with open transactions."""
        self._held_bytes = 0
        """The memory that is counted for all open transactions."""

    def declare(self, command: Declare, now_ms: int, turn: Turn) -> None:
        """Declare a transaction."""
        limits = self._context.limits
        usage = self._usage.get(command.connection) or ConnectionUsage()
        try:
            if not limits.offers_more_than_plain_queues:
                raise NotAllowed("Transactions are not offered in the 'Basic' tier.")
            if usage.count >= limits.transactions_per_connection_max:
                raise QuotaExceeded(
                    f"At most {limits.transactions_per_connection_max} transactions can be open at "
                    "once on a connection."
                )
            self._check_room(usage, TRANSACTION_BYTES)
        except BrokerError as error:
            turn.effects.append(Reply(command.peer, command.request, error=error.as_value()))
            return
        owned = self._owned.setdefault(command.peer, {})
        self._usage[command.connection] = usage
        usage.count += 1
        transaction = Transaction(
            command.transaction_id or self._context.new_lock_tokens(1)[0],
            command.peer,
            command.connection,
            now_ms + limits.transaction_timeout_ms,
        )
        self._add_held_bytes(transaction, TRANSACTION_BYTES)
        self._open[transaction.id] = transaction
        owned[transaction] = None
        self._context.deadlines.add(Due.TRANSACTION, transaction.deadline_ms, (transaction,))
        turn.effects.append(Reply(command.peer, command.request, transaction.id))

    def find(self, transaction_id: bytes, connection: object) -> Transaction:
        """Returns an open transaction. Raises `TransactionUnknown` if this connection has not
        declared it."""
        transaction = self._open.get(transaction_id)
        if transaction is None or transaction.connection is not connection:
            raise TransactionUnknown
        return transaction

    def hold(
        self,
        transaction_id: bytes,
        connection: object,
        operation: TransactionOperation,
        copies: int = 0,
    ) -> None:
        """Hold an operation until the discharge. `copies`: how many messages it may store on all subscriptions.
        Raises if the transaction is unknown or full."""
        transaction = self.find(transaction_id, connection)
        copies += transaction.copies
        check_copies("A transaction", copies)
        limits = self._context.limits
        if transaction.operations + operation.operations > limits.transaction_max_operations:
            raise QuotaExceeded(
                f"A transaction can hold at most {limits.transaction_max_operations} messages."
            )
        if transaction.size_bytes + operation.size_bytes > limits.transaction_max_bytes:
            raise QuotaExceeded(
                f"A transaction can hold at most {limits.transaction_max_bytes} bytes."
            )
        held_bytes = operation.size_bytes + OPERATION_BYTES * operation.operations
        self._check_room(self._usage[connection], held_bytes)
        partitions = dict(transaction.partitions)
        for entity_id, key in operation.partition_keys:
            if partitions.setdefault(entity_id, key) != key:
                raise PartitionMismatch
        transaction.partitions = partitions
        transaction.held.append(operation)
        transaction.copies = copies
        transaction.operations += operation.operations
        observations = self._context.observations
        if transaction.operations > observations.azure.transaction_max_operations:
            observations.note_over_quota("transaction_max_operations", "", transaction.operations)
        transaction.size_bytes += operation.size_bytes
        self._add_held_bytes(transaction, held_bytes)

    def _check_room(self, usage: ConnectionUsage, size_bytes: int) -> None:
        """Raises `ServerBusy` if all open transactions would hold too much. Connections that hold
        little may use a reserve, so that large transactions of others do not block them."""
        limits = self._context.limits
        room_bytes = limits.transactions_max_bytes
        if usage.held_bytes + size_bytes <= limits.transactions_small_max_bytes:
            room_bytes += limits.transactions_reserve_bytes
        if self._held_bytes + size_bytes > room_bytes:
            raise ServerBusy(
                f"Open transactions hold {self._held_bytes} bytes, and at most "
                f"{limits.transactions_max_bytes} bytes are held for all of them together."
            )

    def _add_held_bytes(self, transaction: Transaction, size_bytes: int) -> None:
        """Count memory that a transaction holds, or releases if negative."""
        transaction.held_bytes += size_bytes
        self._usage[transaction.connection].held_bytes += size_bytes
        self._held_bytes += size_bytes

    def set_rollback_only(
        self, transaction_id: bytes, connection: object, refusal: BrokerError
    ) -> None:
        """An operation of the transaction was refused, so the transaction can only be rolled back.

        The client has the error, but may ignore it: the Java SDK takes any answer to a send in a
        transaction as success, and would lose the message with the commit. An operation of another
        connection is not part of the transaction.
        """
        transaction = self._open.get(transaction_id)
        if transaction is None or transaction.connection is not connection:
            return
        if transaction.refusal is None:
            transaction.refusal = refusal

    def apply_rollback_only(self, command: SetRollbackOnly, now_ms: int, turn: Turn) -> None:
        """See `SetRollbackOnly`."""
        del now_ms, turn
        self.set_rollback_only(command.transaction_id, command.connection, command.error)

    def discharge(self, command: Discharge, now_ms: int, turn: Turn) -> None:
        """Commit or roll back a transaction."""
        error: BrokerError | None = None
        try:
            transaction = self.find(command.transaction_id, command.connection)
        except TransactionUnknown as unknown:
            error = unknown.as_value()
        else:
            self._close(transaction)
            history = self._context.history
            if history is not None:
                history.transaction_id = transaction.id
            if not command.fail:
                error = self._run(transaction, now_ms, turn)
            if command.fail or error is not None:
                _undo(transaction, now_ms, turn)
            if history is not None:
                history.transaction_id = None
        turn.effects.append(Reply(command.peer, command.request, error=error))

    def _run(self, transaction: Transaction, now_ms: int, turn: Turn) -> BrokerError | None:
        room = self._context.room
        try:
            if transaction.refusal is not None:
                raise transaction.refusal
            for operation in transaction.held:
                operation.check()
            if room.is_scarce and transaction.size_bytes:  # each send alone may have fit
                room.check(
                    needed_bytes(transaction.size_bytes, transaction.operations, transaction.copies)
                )
        except BrokerError as error:
            error.as_value()  # its traceback refers to the transaction, which may refer to it
            return TransactionRolledBack(f"The transaction was rolled back: {error}")
        for operation in transaction.held:
            operation.run(now_ms, turn)
        return None

    def roll_back(self, transaction: Transaction, now_ms: int, turn: Turn) -> None:
        """Roll back a transaction that timed out or lost its link."""
        if transaction.id in self._open:
            self._close(transaction)
            _undo(transaction, now_ms, turn)

    def roll_back_owned_by(self, peers: Iterable[Peer], now_ms: int, turn: Turn) -> None:
        """Roll back the transactions that these links have declared."""
        for peer in peers:
            for transaction in list(self._owned.get(peer, ())):
                self.roll_back(transaction, now_ms, turn)

    def _close(self, transaction: Transaction) -> None:
        del self._open[transaction.id]
        self._context.deadlines.discard(Due.TRANSACTION, transaction.deadline_ms, (transaction,))
        usage = self._usage[transaction.connection]
        self._add_held_bytes(transaction, -transaction.held_bytes)
        usage.count -= 1
        if not usage.count:
            del self._usage[transaction.connection]
        owned = self._owned[transaction.owner]
        del owned[transaction]
        if not owned:
            del self._owned[transaction.owner]


def _undo(transaction: Transaction, now_ms: int, turn: Turn) -> None:
    for operation in transaction.held:
        operation.undo(now_ms, turn)
