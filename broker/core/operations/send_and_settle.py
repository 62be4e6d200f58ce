"""Messages in and settlements back: the commands that come with every message.

Owns the answers to them, one for a whole list wherever possible; what a send or a settlement does
is decided in `admission.py` and `queue.py`. Inside a transaction both are held and only checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.effects import (
    SendAccepted,
    SendRefused,
    Settled,
    SettlementHeld,
    SettleRefused,
    TransactionRefused,
)
from broker.core.contract.errors import (
    BrokerError,
    EntityDisabled,
    MessageLockLost,
    MessageSizeExceeded,
    PartitionMismatch,
    QuotaExceeded,
    TransactionUnknown,
)
from broker.core.operations.partition_keys import partition_keys, via_partition_keys
from broker.core.operations.transactional_settlement import TransactionalSettlement
from broker.core.queues.settlement import check_settlement, return_locked, settle_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.commands import Send, SendBatch, Settle, SettleByToken
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.operations.link_operations import LinkOperations, Sender
    from broker.core.operations.transactions import Transactions
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver
    from config.model.limits import Limits

ATOMIC_COPIES_MAX = 100_000
"""How many messages a batch or a transaction may become on all subscriptions. It goes into memory and
into the store in one piece, which nobody else can get in between."""


class Traffic:
    """Sends and settlements of attached links."""

    __slots__ = ("_arrivals", "_directory", "_limits", "_links", "_transactions")

    def __init__(
        self,
        limits: Limits,
        links: LinkOperations,
        directory: Directory,
        arrivals: Admission,
        transactions: Transactions,
    ) -> None:
        self._limits = limits
        self._links = links
        self._directory = directory
        self._arrivals = arrivals
        self._transactions = transactions

    def send(self, command: Send, now_ms: int, turn: Turn) -> None:
        """Take in messages, each on its own."""
        messages, handles = command.messages, command.handles
        try:
            shipment = Shipment(self._links.sender(command.peer), messages, self)
            refused = shipment.refusals()
            if refused:
                for position, error in refused.items():
                    self._refuse_sending(command, [handles[position]], error, turn)
                kept = [p for p in range(len(messages)) if p not in refused]
                handles = [handles[position] for position in kept]
                shipment.messages = [messages[position] for position in kept]
            if command.transaction_id is None:
                shipment.run(now_ms, turn)
            else:
                self._hold_shipment(command.transaction_id, shipment)
        except BrokerError as error:
            self._refuse_sending(command, handles, error, turn)
            return
        if answered := _answered(handles):
            turn.effects.append(SendAccepted(command.peer, answered))

    def send_batch(self, command: SendBatch, now_ms: int, turn: Turn) -> None:
        """Take in messages, all or none."""
        try:
            shipment = Shipment(self._links.sender(command.peer), command.messages, self)
            self._check_batch(shipment, command.size_bytes)
            shipment.check()
            if command.transaction_id is None:
                _check_copies("A batch", shipment.copies)
                shipment.run(now_ms, turn)
            else:
                self._hold_shipment(command.transaction_id, shipment)
        except BrokerError as error:
            self._refuse_sending(command, [command.handle], error, turn)
            return
        if command.handle is not None:
            turn.effects.append(SendAccepted(command.peer, [command.handle]))

    def _hold_shipment(self, transaction_id: bytes, shipment: Shipment) -> None:
        transaction = self._transactions.find(transaction_id, shipment.connection)
        copies = transaction.copies + shipment.copies
        _check_copies("A transaction", copies)
        self._transactions.hold(transaction_id, shipment.connection, shipment)
        transaction.copies = copies

    def _refuse_sending(
        self, command: Send | SendBatch, handles: Iterable[object], error: BrokerError, turn: Turn
    ) -> None:
        handles = list(handles)
        error = error.as_value()
        turn.count(self._links.counts(command.peer), Outcome.SEND_REFUSED, len(handles))
        turn.effects += [SendRefused(command.peer, handle, error) for handle in handles]
        if command.transaction_id is None:
            return
        if None in handles and isinstance(error, TransactionUnknown):
            turn.effects.append(TransactionRefused(command.peer, error))
        self._doom(command, error)

    def _doom(self, command: Send | SendBatch | Settle, error: BrokerError) -> None:
        assert command.transaction_id is not None
        connection = self._links.connection(command.peer) or command.connection
        self._transactions.doom(command.transaction_id, connection, error)

    def _check_batch(self, batch: Shipment, sent_bytes: int) -> None:
        if batch.operations > self._limits.batch_max_messages:
            raise MessageSizeExceeded(
                f"A batch has at most {self._limits.batch_max_messages} messages."
            )
        if (sent_bytes or batch.size_bytes) > self._limits.batch_max_bytes:
            raise MessageSizeExceeded(f"A batch has at most {self._limits.batch_max_bytes} bytes.")

    def settle(self, command: Settle, now_ms: int, turn: Turn) -> None:
        """Settle what is still locked; refuse what is not. Tokens are independent."""
        tokens, handles = command.tokens, command.handles
        receiver = self._links.receiver(command.peer)
        if receiver is None:
            self._refuse_settling(command, handles, MessageLockLost(), turn)
            return
        queue = receiver.queue
        live = queue.live(tokens)
        if len(live) < len(tokens) or len(set(live)) < len(live):
            live, handles, lost = _sort_out(set(live), tokens, handles)
            self._refuse_settling(command, lost, MessageLockLost(), turn)
            if not live:
                return
        try:
            check_settlement(queue, command.settlement)
            if command.transaction_id is None:
                settle_locked(queue, live, command.settlement, now_ms, turn)
                answer: Settled | SettlementHeld = Settled(
                    command.peer, _answered(handles), command.settlement
                )
            else:
                self._hold_of_link(receiver, command, live, handles)
                answer = SettlementHeld(
                    command.peer, _answered(handles), command.settlement, command.transaction_id
                )
        except BrokerError as error:
            self._refuse_settling(command, handles, error, turn)
            if isinstance(error, PartitionMismatch):
                give_up_mismatched(queue, live, now_ms, turn)
            return
        if answer.handles:
            turn.effects.append(answer)

    def _hold_of_link(
        self,
        receiver: Receiver,
        command: Settle,
        tokens: Sequence[bytes],
        handles: Sequence[object],
    ) -> None:
        """Settle deliveries under a transaction. Said twice, it is the same settlement: SDKs settle
        on their side once they have the provisional answer."""
        assert command.transaction_id is not None
        transaction = self._transactions.find(command.transaction_id, receiver.connection)
        new: dict[bytes, object] = {}
        for token, handle in zip(tokens, handles, strict=True):
            held = transaction.settlements.get(token)
            if held is None:
                new[token] = handle
            elif not held.is_repeated_by(command.peer, command.settlement):
                raise MessageLockLost
            elif handle is None:
                held.stop_answering(token)
        if new:
            step = TransactionalSettlement(
                transaction.id,
                self._directory.entity_of(receiver.queue),
                receiver.queue,
                list(new),
                command.settlement,
                command.peer,
                list(new.values()),
            )
            self._hold(transaction.id, receiver.connection, step)

    def hold_by_token(self, command: SettleByToken, queue: Queue, tokens: Sequence[bytes]) -> None:
        """Settle by token under a transaction. Raises if that cannot be held."""
        assert command.transaction_id is not None
        transaction = self._transactions.find(command.transaction_id, command.connection)
        if any(token in transaction.settlements for token in tokens):
            raise MessageLockLost
        step = TransactionalSettlement(
            transaction.id, self._directory.entity_of(queue), queue, tokens, command.settlement
        )
        self._hold(transaction.id, command.connection, step)

    def _hold(
        self, transaction_id: bytes, connection: object, step: TransactionalSettlement
    ) -> None:
        self._transactions.hold(transaction_id, connection, step)
        self._transactions.find(transaction_id, connection).hold_settlement(step)

    def _refuse_settling(
        self, command: Settle, handles: Sequence[object], error: BrokerError, turn: Turn
    ) -> None:
        turn.count(self._links.counts(command.peer), Outcome.SETTLE_REFUSED, len(handles))
        answered = _answered(handles)
        error = error.as_value()
        if answered:
            turn.effects.append(SettleRefused(command.peer, answered, error))
        if command.transaction_id is None:
            return
        if len(answered) < len(handles) and isinstance(error, TransactionUnknown):
            turn.effects.append(TransactionRefused(command.peer, error))
        self._doom(command, error)

    def copies_per_message(self, sender: Sender) -> int:
        """How many messages may come of one that is sent like this."""
        return self._links.copies_per_message_of(sender)

    # --- where messages go ------------------------------------------------------------------

    def refusals(self, sender: Sender, messages: Sequence[Message]) -> dict[int, BrokerError]:
        """Which messages of a sender cannot be taken, and why. Raises if none of them can."""
        entity = sender.entity
        entity.check_sending()
        if sender.destination is not None:
            entity = self._directory.entity(sender.destination)
        return dict(self._arrivals.refusals(entity, messages))

    def accept(self, sender: Sender, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Take in what passed `refusals`."""
        if not messages:
            return
        if sender.destination is None:
            self._arrivals.accept(sender.entity, messages, now_ms, turn)
            return
        via = sender.entity
        via.record_access(now_ms)
        for message in messages:
            message.enqueue_sequence_number = via.main.reserve_number()
        destination = self._directory.entity(sender.destination)
        try:
            destination.check_sending()
        except EntityDisabled as error:
            reason = type(error).__name__
            via.transfer_dead_letters.store_dead_letters(messages, reason, str(error), now_ms, turn)
            via.main.note_dead_letters(messages, reason, turn, DeadLetterCause.FORWARDING)
        else:
            self._arrivals.accept(destination, messages, now_ms, turn)


class Shipment:
    """Messages of one sender, on their way in: a step of a transaction, or done at once."""

    __slots__ = ("_sender", "_traffic", "messages")

    def __init__(self, sender: Sender, messages: Sequence[Message], traffic: Traffic) -> None:
        self._sender = sender
        self._traffic = traffic
        self.messages = messages

    @property
    def connection(self) -> object:
        """Where they come from."""
        return self._sender.connection

    @property
    def partition_keys(self) -> list[tuple[int, str]]:
        """See `Step`."""
        if self._sender.destination is not None:
            return via_partition_keys(self._sender.entity, self.messages)
        return partition_keys(self._sender.entity, self.messages)

    @property
    def operations(self) -> int:
        """How many messages."""
        return len(self.messages)

    @property
    def copies(self) -> int:
        """How many messages may come of them, on all subscriptions."""
        return len(self.messages) * self._traffic.copies_per_message(self._sender)

    @property
    def size_bytes(self) -> int:
        """How large they are together."""
        return sum(message.size for message in self.messages)

    def refusals(self) -> dict[int, BrokerError]:
        """See `Traffic.refusals`."""
        return self._traffic.refusals(self._sender, self.messages)

    def check(self) -> None:
        """Raises unless all of them can be taken."""
        for error in self.refusals().values():
            raise error

    def run(self, now_ms: int, turn: Turn) -> None:
        """Take them in."""
        self._traffic.accept(self._sender, self.messages, now_ms, turn)

    def undo(self, now_ms: int, turn: Turn) -> None:
        """They were never here."""


def give_up_mismatched(queue: Queue, tokens: Iterable[bytes], now_ms: int, turn: Turn) -> None:
    """Give back messages whose settlement was refused because of their partition. The service does
    so, as a test of the .NET SDK notes (`TransactionThrowsWhenOperationsOfDifferentPartitions...`)."""
    return_locked(queue, queue.locks.messages(tokens), now_ms, turn, failed=True)


def _sort_out(
    locked: set[bytes], tokens: Sequence[bytes], handles: Sequence[object]
) -> tuple[list[bytes], list[object], list[object]]:
    """Tokens that are locked, once each, their handles, and the handles of the others."""
    live: dict[bytes, object] = {}
    lost: list[object] = []
    for token, handle in zip(tokens, handles, strict=True):
        if token in locked and token not in live:
            live[token] = handle
        else:
            lost.append(handle)
    return list(live), list(live.values()), lost


def _check_copies(what: str, copies: int) -> None:
    if copies > ATOMIC_COPIES_MAX:
        raise QuotaExceeded(
            f"{what} is stored as a whole, with all copies for subscriptions, and makes at most "
            f"{ATOMIC_COPIES_MAX} messages; this would be {copies}."
        )


def _answered(handles: Sequence[object]) -> list[object]:
    """Those who want an answer."""
    return [handle for handle in handles if handle is not None]
