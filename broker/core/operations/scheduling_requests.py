"""Requests to schedule messages and to cancel scheduled messages.

Each request returns the value of its reply, or raises the refusal before anything has changed. In a
transaction the work is held until the transaction commits. `scheduled_activation.py` activates messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.errors import MessageNotFound
from broker.core.contract.message import MessageState
from broker.core.contract.transitions import TransitionKind
from broker.core.operations.atomic_limits import check_copies, check_count
from broker.core.operations.link_operations import sendable
from broker.core.operations.partition_keys import partition_keys
from broker.core.queues.arrival import renumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.commands import CancelScheduled, Schedule
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.admission import Admission
    from broker.core.operations.transactions import Transactions
    from broker.core.queues.queue import Queue
    from config.model.limits import Limits


class SchedulingRequests:
    """Answers `Schedule` and `CancelScheduled`."""

    __slots__ = ("_admission", "_directory", "_limits", "_transactions")

    def __init__(
        self,
        limits: Limits,
        directory: Directory,
        admission: Admission,
        transactions: Transactions,
    ) -> None:
        self._limits = limits
        self._directory = directory
        self._admission = admission
        self._transactions = transactions

    def schedule(self, command: Schedule, now_ms: int, turn: Turn) -> list[int]:
        """Store scheduled messages, all or none. Returns the numbers that they have until they are active."""
        entity, queue = sendable(self._directory, command.path)
        count = len(command.messages)
        check_count("A request to schedule messages", count, self._limits)
        self._admission.check(entity, command.messages)
        if command.transaction_id is not None:
            operation = TransactionalSchedule(entity, command.messages, self._admission)
            # Messages may be due when the transaction commits.
            copies = count * entity.copies_per_message
            self._transactions.hold(command.transaction_id, command.connection, operation, copies)
            return operation.reserve()
        due = sum(message.scheduled_enqueue_time_ms <= now_ms for message in command.messages)
        copies = count - due + due * entity.copies_per_message
        check_copies("A request to schedule messages", copies)
        self._admission.accept(entity, command.messages, now_ms, turn)
        return [
            # A duplicate is dropped without an error: its number belongs to no message.
            message.enqueue_sequence_number or queue.reserve_number()
            for message in command.messages
        ]

    def cancel_scheduled(self, command: CancelScheduled, now_ms: int, turn: Turn) -> None:
        """Delete messages that are still scheduled, all or none."""
        entity, queue = sendable(self._directory, command.path)
        entity.record_access(now_ms)
        operation = TransactionalCancellation(queue, list(dict.fromkeys(command.sequence_numbers)))
        operation.check()
        if command.transaction_id is not None:
            self._transactions.hold(command.transaction_id, command.connection, operation)
        else:
            operation.run(now_ms, turn)


class TransactionalSchedule:
    """Messages that are scheduled in a transaction. They have their numbers before they are stored.
    Implements `TransactionOperation`."""

    __slots__ = ("_admission", "_entity", "_messages", "operations", "partition_keys", "size_bytes")

    def __init__(self, entity: Entity, messages: Sequence[Message], admission: Admission) -> None:
        self._entity = entity
        self._messages = messages
        self._admission = admission
        self.operations = len(messages)
        self.size_bytes = sum(message.size for message in messages)
        self.partition_keys = partition_keys(entity, messages)

    def reserve(self) -> list[int]:
        """Reserve the numbers that the messages have until they are active. Returns them."""
        for message in self._messages:
            message.sequence_number = self._entity.main.reserve_number()
        return [message.sequence_number for message in self._messages]

    def check(self) -> None:
        """Raises if the entity does not accept the messages."""
        self._admission.check(self._entity, self._messages)

    def run(self, now_ms: int, turn: Turn) -> None:
        """Store the messages with the reserved numbers."""
        numbers = [message.sequence_number for message in self._messages]
        recorded = len(turn.transitions)
        self._admission.accept(self._entity, self._messages, now_ms, turn)
        reserved = dict(zip(self._messages, numbers, strict=True))
        renumber(
            self._entity.main,
            {m: n for m, n in reserved.items() if m.state is MessageState.SCHEDULED},
            turn,
        )
        history = self._entity.context.history
        if history is not None:
            history.renumbered(self._messages, turn, recorded)

    def undo(self, now_ms: int, turn: Turn) -> None:
        """Nothing to undo: the reserved numbers stay unused."""


class TransactionalCancellation:
    """Scheduled messages that are deleted at once, or when their transaction commits. Implements
    `TransactionOperation`."""

    __slots__ = ("_numbers", "_queue", "operations", "partition_keys", "size_bytes")

    def __init__(self, queue: Queue, numbers: Sequence[int]) -> None:
        self._queue = queue
        self._numbers = numbers
        self.operations = len(numbers)
        self.size_bytes = 0
        self.partition_keys: Sequence[tuple[int, str]] = ()

    def check(self) -> None:
        """Raises `MessageNotFound` if one of the messages is deleted or active."""
        for number in self._numbers:
            if self._scheduled(number) is None:
                raise MessageNotFound(
                    f"No scheduled message with the sequence number {number} was found."
                )

    def run(self, now_ms: int, turn: Turn) -> None:
        """Delete the messages that an earlier operation has not deleted."""
        del now_ms
        found = [self._scheduled(number) for number in self._numbers]
        messages = [message for message in found if message is not None]
        if messages:
            history = self._queue.context.history
            if history is not None:
                description = "The schedule was cancelled."
                history.record(
                    TransitionKind.DELETED, self._queue, messages, turn, description=description
                )
            self._queue.delete(messages, turn)
            turn.count(self._queue.counts, Outcome.CANCELLED, len(messages))

    def undo(self, now_ms: int, turn: Turn) -> None:
        """Nothing to undo: the messages are still there."""

    def _scheduled(self, number: int) -> Message | None:
        message = self._queue.index.get(number)
        is_scheduled = message is not None and message.state is MessageState.SCHEDULED
        return message if is_scheduled else None
