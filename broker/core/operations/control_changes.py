"""Changes messages and entities for the control API.

Each operation checks everything first and then changes all of its messages in one turn, so it is atomic. The caller
divides what concerns many messages.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from broker.core.contract import control_operations as control
from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.errors import ArgumentError, NotAllowed
from broker.core.contract.message import MessageState
from broker.core.contract.records import MessagesUpdated
from broker.core.contract.transitions import TransitionKind
from broker.core.messages.message_rows import rows_of
from broker.core.operations.control_reading import numbered, sessions_of
from broker.core.operations.link_operations import sendable
from broker.core.operations.message_requests import BodiesAwaited
from broker.core.queues.dead_lettering import dead_letter, expire
from broker.core.queues.message_deadlines import (
    forget_expiry,
    forget_schedule,
    watch_expiry,
    watch_schedule,
)
from broker.core.queues.queue import MAIN
from broker.core.queues.settlement import return_locked
from config.model.definitions import TopicDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.admission import Admission
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue


class ControlChanges:
    """Changes messages."""

    __slots__ = ("_admission", "_context", "_directory")

    def __init__(
        self, context: NamespaceContext, directory: Directory, admission: Admission
    ) -> None:
        self._context = context
        self._directory = directory
        self._admission = admission

    # --- sending ----------------------------------------------------------------------------

    def send(self, operation: control.SendMessages, now_ms: int, turn: Turn) -> list[int]:
        """Accept messages, all or none. Returns their sequence numbers in a queue."""
        entity, _ = sendable(self._directory, operation.path)
        messages = operation.messages
        self._admission.check(entity, messages)
        self._admission.accept(entity, messages, now_ms, turn)
        if isinstance(entity.definition, TopicDefinition):
            return []
        return [message.sequence_number for message in messages if message.queue is entity.main]

    # --- deleting ---------------------------------------------------------------------------

    def purge_part(
        self, operation: control.PurgePart, now_ms: int, turn: Turn
    ) -> control.PurgedPart:
        """Delete the first messages of a queue."""
        del now_ms
        queue = self._directory.queue(operation.path)
        up_to = queue.last_sequence_number if operation.up_to is None else operation.up_to
        within = takewhile(lambda message: message.sequence_number <= up_to, queue.index.walk())
        messages: list[Message] = []
        is_done = True
        for message in within:
            if len(messages) >= self._context.backlog.part_messages:
                is_done = False
                break
            messages.append(message)
        self._delete(queue, messages, turn)
        return control.PurgedPart(len(messages), up_to, is_done)

    def delete(self, operation: control.DeleteByNumber, now_ms: int, turn: Turn) -> int:
        """Delete messages by number."""
        del now_ms
        queue = self._directory.queue(operation.path)
        messages = numbered(queue, operation.sequence_numbers)
        self._delete(queue, messages, turn)
        return len(messages)

    @staticmethod
    def _delete(queue: Queue, messages: Sequence[Message], turn: Turn) -> None:
        if not messages:
            return
        ready = _take_from_receivers(queue, messages)
        if queue.context.history is not None:
            queue.context.history.record(TransitionKind.DELETED, queue, messages, turn)
        queue.delete(messages, turn)
        queue.discard_ready(ready)
        turn.count(queue.counts, Outcome.DELETED, len(messages))

    def dead_letter(self, operation: control.DeadLetterByNumber, now_ms: int, turn: Turn) -> int:
        """Dead-letter messages by number."""
        del now_ms
        queue = self._directory.queue(operation.path)
        if queue.dead_letters is None:
            raise NotAllowed("A message in a dead-letter queue cannot be dead-lettered again.")
        messages = numbered(queue, operation.sequence_numbers)
        if not messages:
            return 0
        ready = _take_from_receivers(queue, messages)
        cause = DeadLetterCause.APPLICATION
        dead_letter(queue, messages, operation.reason, operation.description, turn, cause)
        queue.discard_ready(ready)
        return len(messages)

    # --- locks ------------------------------------------------------------------------------

    def release(self, operation: control.ReleaseByNumber, now_ms: int, turn: Turn) -> int:
        """Make messages ready to be received."""
        queue = self._directory.queue(operation.path)
        messages = numbered(queue, operation.sequence_numbers)
        scheduled = [one for one in messages if one.state is MessageState.SCHEDULED]
        entity = self._directory.entity_of(queue)
        if scheduled and isinstance(entity.definition, TopicDefinition):
            self._need_bodies(scheduled, turn)
        locked = [message for message in messages if message.lock_token is not None]
        if locked:
            return_locked(queue, locked, now_ms, turn, failed=False)
        deferred = [
            message
            for message in messages
            if message.state is MessageState.DEFERRED and message.lock_token is None
        ]
        if deferred:
            _return_deferred(queue, deferred, now_ms, turn)
        if scheduled:
            _move_schedule(queue, scheduled, now_ms)
            self._admission.activate(scheduled, now_ms, turn)
        return len({*locked, *deferred, *scheduled})

    def expire_locks(self, operation: control.ExpireLocks, now_ms: int, turn: Turn) -> int:
        """End locks as if their time had come."""
        queue = self._directory.queue(operation.path)
        if operation.session_id is not None:
            return _expire_session(queue, operation.session_id, now_ms, turn)
        if operation.lock_tokens is not None:
            found = map(queue.locks.get, queue.live_tokens(operation.lock_tokens))
            messages = [message for message in found if message is not None]
        elif operation.sequence_numbers is None:
            messages = list(queue.locks.values())
        else:
            messages = numbered(queue, operation.sequence_numbers)
            for message in messages:
                if message.lock_token is None:
                    raise ArgumentError(f"Message {message.sequence_number} is not locked.")
        if messages:
            return_locked(queue, messages, now_ms, turn, failed=True)
        return len(messages)

    # --- dead letters -----------------------------------------------------------------------

    def resubmit(self, operation: control.Resubmit, now_ms: int, turn: Turn) -> int:
        """Move dead letters to a queue or topic."""
        queue = self._directory.queue(operation.path)
        if queue.sub_queue == MAIN and operation.destination is None:
            raise ArgumentError(
                f"'{queue.path}' is no dead-letter queue: name the entity that gets its messages."
            )
        entity = self._directory.entity_of(queue)
        if operation.destination is not None:
            entity, _ = sendable(self._directory, operation.destination)
        entity.check_sending()
        found = [queue.index.get(number) for number in sorted(set(operation.sequence_numbers))]
        messages = [one for one in found if one is not None and one.lock_token is None]
        if not messages:
            return 0
        if entity.main.delivery.requires_sessions or isinstance(entity.definition, TopicDefinition):
            self._need_bodies(messages, turn)
        copies = list(map(_never_delivered, messages))
        self._check_destination(queue, entity, copies)
        ready = [message for message in messages if message.waits]
        queue.remove(messages)
        queue.discard_ready(ready)
        turn.count(queue.counts, Outcome.FORWARDED, len(copies))
        recorded = len(turn.transitions)
        # Not through duplicate detection: it knows the ids of these messages, and would drop them.
        entity.republish(copies, now_ms, turn)
        if self._context.history is not None:
            self._context.history.moved(
                TransitionKind.RESUBMITTED,
                queue,
                [message.sequence_number for message in messages],
                entity.main,
                copies,
                turn,
                at=recorded,
                to_topic=isinstance(entity.definition, TopicDefinition),
                delivery_counts=[message.delivery_count for message in messages],
            )
        return len(copies)

    def _check_destination(self, queue: Queue, entity: Entity, copies: Sequence[Message]) -> None:
        """Raises if the entity cannot take copies of messages of this queue. Sets their session ids. The messages stay as
        they are: if one is refused, all stay."""
        needs_sessions = entity.main.delivery.requires_sessions
        entity.begin_screening()
        size = 0
        for copy in copies:
            before_bytes = -copy.size if entity.usage is queue.usage else size
            error = entity.size_error(copy.size, before_bytes)
            if error is not None:
                raise error
            size += copy.size
            if copy.session_id is None and copy.body is not None:
                copy.session_id = self._context.reader.session_id(copy.body)
            if copy.body is not None:
                entity.screen(copy)
            if needs_sessions and copy.session_id is None:
                raise NotAllowed(
                    f"Message {copy.sequence_number} has no session id, and the entity "
                    f"'{entity.path}' requires sessions."
                )

    def _need_bodies(self, messages: Iterable[Message], turn: Turn) -> None:
        missing = [message for message in messages if message.body is None]
        if missing:
            self._context.payloads.request(missing, turn)
            raise BodiesAwaited(missing)


def _take_from_receivers(queue: Queue, messages: Sequence[Message]) -> list[Message]:
    """End the locks of messages. Returns the messages that are in the list of ready messages."""
    ready = [message for message in messages if message.waits]
    queue.delivery.touch_for(ready)
    queue.locks.end([message.lock_token for message in messages if message.lock_token is not None])
    return ready


def _move_schedule(queue: Queue, messages: Sequence[Message], at_ms: int) -> None:
    """Let scheduled messages become active at another time."""
    deadlines = queue.context.deadlines
    for message in messages:
        forget_schedule(deadlines, message)
        message.scheduled_enqueue_time_ms = at_ms
    watch_schedule(deadlines, messages)


def _return_deferred(queue: Queue, deferred: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Make deferred messages active. Those that have expired meanwhile are expired instead, as when they are
    received."""
    expired = [message for message in deferred if 0 < message.expires_at_ms <= now_ms]
    if expired:
        expire(queue, expired, turn)
    messages = [message for message in deferred if message.queue is queue]
    if not messages:
        return
    # The expiry of a message that was deferred when the broker started is not watched yet.
    expiring = [message for message in messages if message.expires_at_ms]
    forget_expiry(queue.context.deadlines, expiring)
    watch_expiry(queue.context.deadlines, expiring)
    for message in messages:
        message.state = MessageState.ACTIVE
    queue.deferred_count -= len(messages)
    turn.records.append(MessagesUpdated(rows_of(messages)))
    turn.count(queue.counts, Outcome.RELEASED, len(messages))
    if queue.context.history is not None:
        queue.context.history.record(TransitionKind.RELEASED, queue, messages, turn)
    queue.delivery.put_back(messages)


def _expire_session(queue: Queue, session_id: str, now_ms: int, turn: Turn) -> int:
    session = sessions_of(queue).get(session_id)
    if session is None or session.holder is None:
        raise ArgumentError(f"Nobody holds the session '{session_id}' of '{queue.path}'.")
    count = len(session.holder.locked)
    session.expire(now_ms, turn)
    return count + 1


def _never_delivered(message: Message) -> Message:
    """Returns a copy of a dead letter as if it was sent now."""
    copy = message.copy()
    copy.delivery_count = 0
    copy.expires_at_ms = 0
    copy.state = MessageState.ACTIVE
    copy.scheduled_enqueue_time_ms = 0
    if copy.changes is not None:
        copy.changes = replace(
            copy.changes,
            dead_letter_reason=None,
            dead_letter_description=None,
            dead_letter_source=None,
            hops=0,
        )
    return copy
