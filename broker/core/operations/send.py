"""Send commands: accept messages from attached senders and answer.

`admission.py` decides which messages an entity accepts. In a transaction, messages are checked and then
held until the transaction commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.effects import SendAccepted, SendRefused, TransactionRefused
from broker.core.contract.errors import (
    BrokerError,
    EntityDisabled,
    MessageSizeExceeded,
    TransactionUnknown,
)
from broker.core.operations.atomic_limits import check_copies, check_count
from broker.core.operations.partition_keys import partition_keys, via_partition_keys
from broker.core.queues.dead_lettering import count_dead_letters, store_dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.commands import Send, SendBatch
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.operations.link_operations import LinkOperations, Sender
    from broker.core.operations.transactions import Transactions
    from config.model.limits import Limits


class SendHandler:
    """Carries out `Send` and `SendBatch`."""

    __slots__ = ("_admission", "_directory", "_limits", "_links", "_transactions")

    def __init__(
        self,
        limits: Limits,
        links: LinkOperations,
        directory: Directory,
        admission: Admission,
        transactions: Transactions,
    ) -> None:
        self._limits = limits
        self._links = links
        self._directory = directory
        self._admission = admission
        self._transactions = transactions

    def send(self, command: Send, now_ms: int, turn: Turn) -> None:
        """Accept or refuse each message."""
        messages, handles = command.messages, command.handles
        try:
            sender = self._links.sender(command.peer)
            refused = self.refusals(sender, messages)
            if refused:
                for position, error in refused.items():
                    self._refuse(command, [handles[position]], error, turn)
                kept = [p for p in range(len(messages)) if p not in refused]
                handles = [handles[position] for position in kept]
                messages = [messages[position] for position in kept]
            if command.transaction_id is None:
                self.accept(sender, messages, now_ms, turn)
            else:
                self._hold(command.transaction_id, PendingSend(sender, messages, self))
        except BrokerError as error:
            self._refuse(command, handles, error, turn)
            return
        if len(handles) != 1:
            handles = [handle for handle in handles if handle is not None]
        elif handles[0] is None:
            return
        if handles:
            turn.effects.append(SendAccepted(command.peer, handles))

    def send_batch(self, command: SendBatch, now_ms: int, turn: Turn) -> None:
        """Accept all messages or none."""
        try:
            pending = PendingSend(self._links.sender(command.peer), command.messages, self)
            self._check_batch(pending, command.size_bytes)
            pending.check()
            if command.transaction_id is None:
                check_copies("A batch", pending.copies)
                pending.run(now_ms, turn)
            else:
                self._hold(command.transaction_id, pending)
        except BrokerError as error:
            self._refuse(command, [command.handle], error, turn)
            return
        if command.handle is not None:
            turn.effects.append(SendAccepted(command.peer, [command.handle]))

    def _hold(self, transaction_id: bytes, pending: PendingSend) -> None:
        self._transactions.hold(transaction_id, pending.connection, pending, pending.copies)

    def _refuse(
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
        connection = self._links.connection(command.peer) or command.connection
        self._transactions.set_rollback_only(command.transaction_id, connection, error)

    def _check_batch(self, batch: PendingSend, sent_bytes: int) -> None:
        check_count("A batch", batch.operations, self._limits)
        if (sent_bytes or batch.size_bytes) > self._limits.batch_max_bytes:
            raise MessageSizeExceeded(f"A batch has at most {self._limits.batch_max_bytes} bytes.")
        self._admission.observe_batch(
            batch.path, batch.messages, batch.operations, sent_bytes or batch.size_bytes
        )

    def copies_per_message(self, sender: Sender) -> int:
        """Returns how many copies a message of this sender may become."""
        return self._links.copies_per_message_of(sender)

    def refusals(self, sender: Sender, messages: Sequence[Message]) -> Mapping[int, BrokerError]:
        """Returns the errors of messages that cannot be accepted, by position. Raises if no message
        of this sender can be accepted."""
        entity = sender.entity
        entity.check_sending()
        if sender.destination is not None:
            entity = self._directory.entity(sender.destination)
        return self._admission.refusals(entity, messages)

    def accept(self, sender: Sender, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Store messages that passed `refusals`. Messages for a disabled transfer destination go to
        the transfer dead-letter queue of the entity that they are sent through."""
        if not messages:
            return
        if sender.destination is None:
            self._admission.accept(sender.entity, messages, now_ms, turn)
            return
        via = sender.entity
        via.record_access(now_ms)
        for message in messages:
            message.enqueue_sequence_number = via.main.reserve_number()
        destination = self._directory.entity(sender.destination)
        try:
            destination.check_sending()
        except EntityDisabled as error:
            reason, description = type(error).__name__, str(error)
            self._admission.take_room(via, messages, turn)
            store_dead_letters(
                via.transfer_dead_letters, messages, reason, description, now_ms, turn
            )
            count_dead_letters(via.main, messages, reason, turn, DeadLetterCause.FORWARDING)
            history = via.context.history
            if history is not None:
                history.refused_transfer(via.main, via.transfer_dead_letters, messages, turn)
        else:
            self._admission.accept(destination, messages, now_ms, turn)


class PendingSend:
    """Messages of one sender that are accepted at once, or when their transaction commits.
    Implements `TransactionOperation`."""

    __slots__ = ("_handler", "_sender", "messages")

    def __init__(self, sender: Sender, messages: Sequence[Message], handler: SendHandler) -> None:
        self._sender = sender
        self._handler = handler
        self.messages = messages

    @property
    def connection(self) -> object:
        """The connection of the sender."""
        return self._sender.connection

    @property
    def path(self) -> str:
        """The path of the entity to which the sender is attached."""
        return self._sender.entity.path

    @property
    def partition_keys(self) -> list[tuple[int, str]]:
        """See `TransactionOperation`."""
        if self._sender.destination is not None:
            return via_partition_keys(self._sender.entity, self.messages)
        return partition_keys(self._sender.entity, self.messages)

    @property
    def operations(self) -> int:
        """The number of messages."""
        return len(self.messages)

    @property
    def copies(self) -> int:
        """The number of copies that the messages may become on all subscriptions."""
        return len(self.messages) * self._handler.copies_per_message(self._sender)

    @property
    def size_bytes(self) -> int:
        """The size of all messages."""
        return sum(message.size for message in self.messages)

    def check(self) -> None:
        """Raises if one of the messages cannot be accepted."""
        for error in self._handler.refusals(self._sender, self.messages).values():
            raise error

    def run(self, now_ms: int, turn: Turn) -> None:
        """Accept the messages."""
        self._handler.accept(self._sender, self.messages, now_ms, turn)

    def undo(self, now_ms: int, turn: Turn) -> None:
        """Nothing to undo: the messages were never stored."""
