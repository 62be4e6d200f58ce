"""Reads messages and sessions for the control API. Nothing is changed, locked or loaded.

Packed messages stay packed, and bodies that only the store has are left out of the reply: whoever asks reads them
from the store. One operation looks at a limited number of messages.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract import control_operations as control
from broker.core.contract.errors import MessageNotFound, NotAllowed
from broker.core.contract.message import MessageState
from broker.core.queues.locks import group_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.queue import Queue
    from broker.core.queues.session import Session
    from broker.core.queues.sessions import Sessions

ACTIVE, LOCKED, DEFERRED, SCHEDULED = "active", "locked", "deferred", "scheduled"
_STATES = {
    MessageState.ACTIVE: ACTIVE,
    MessageState.DEFERRED: DEFERRED,
    MessageState.SCHEDULED: SCHEDULED,
}
_PACKED_TO_SKIP: dict[str | None, Callable[[PackedMessages], bool]] = {
    ACTIVE: lambda packed: packed.is_scheduled,
    DEFERRED: lambda _: True,
    SCHEDULED: lambda packed: not packed.is_scheduled,
}
"""Packed blocks that have no message in a state. Packed messages are active or scheduled."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")
_ID = attrgetter("id")


class ControlReading:
    """Reads messages and sessions."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    # --- messages ---------------------------------------------------------------------------

    def read_messages(
        self, operation: control.ReadMessages, now_ms: int, turn: Turn
    ) -> control.MessagesRead:
        """Returns messages from a number on."""
        del now_ms, turn
        queue = self._directory.queue(operation.path)
        found: list[control.MessageView] = []
        last = operation.after
        next_after: int | None = None
        for examined, message in enumerate(_candidates(queue, operation)):
            if examined >= operation.examine or len(found) >= operation.limit:
                next_after = last
                break
            last = message.sequence_number
            if operation.state is None or state_of(message) == operation.state:
                found.append(_view(queue, message))
        return control.MessagesRead(found, next_after, queue.last_sequence_number)

    def find_messages(
        self, operation: control.FindMessages, now_ms: int, turn: Turn
    ) -> control.MessagesRead:
        """Returns messages by their numbers."""
        del now_ms, turn
        queue = self._directory.queue(operation.path)
        messages = [_looked_up(queue, number) for number in operation.sequence_numbers]
        views = [_view(queue, message) for message in messages]
        return control.MessagesRead(views, None, queue.last_sequence_number)

    # --- sessions ---------------------------------------------------------------------------

    def read_sessions(
        self, operation: control.ReadSessions, now_ms: int, turn: Turn
    ) -> control.SessionsRead:
        """Returns sessions, ordered by id."""
        del now_ms, turn
        sessions = sessions_of(self._directory.queue(operation.path))
        after = operation.after
        later = (one for one in sessions if after is None or one.id > after)
        chosen = nsmallest(operation.limit, later, key=_ID)
        return control.SessionsRead(list(map(_session_view, chosen)), sessions.waiting_count)


def sessions_of(queue: Queue) -> Sessions:
    """Returns the sessions of a queue. Raises `NotAllowed` if it does not require sessions."""
    if queue.sessions is None:
        raise NotAllowed(f"The entity '{queue.path}' does not require sessions, and has none.")
    return queue.sessions


def state_of(message: Message) -> str:
    """Returns the state of a message. A locked message is locked, whatever it was before."""
    return LOCKED if message.lock_token is not None else _STATES[message.state]


def numbered(queue: Queue, numbers: Sequence[int]) -> list[Message]:
    """Returns messages by their numbers, in the order of the numbers. Raises `MessageNotFound` if one does not
    exist. Unpacks them, because they are about to change."""
    messages = []
    for number in sorted(set(numbers)):
        message = queue.index.get(number)
        if message is None:
            raise _not_found(queue, number)
        messages.append(message)
    return messages


def _candidates(queue: Queue, operation: control.ReadMessages) -> Iterable[Message]:
    """Returns the messages that may be asked for, in the order of their numbers."""
    first = operation.after + 1
    if operation.session_id is not None:
        return queue.delivery.walk_session(operation.session_id, first)
    match operation.state:
        case "locked":
            locked = queue.locks.values()
            later = (message for message in locked if message.sequence_number >= first)
            return nsmallest(operation.limit + 1, later, key=_SEQUENCE_NUMBER)
        case "deferred" if not queue.deferred_count:
            return ()
        case "scheduled" if not queue.scheduled_count:
            return ()
    return queue.index.look(first, _PACKED_TO_SKIP.get(operation.state))


def _looked_up(queue: Queue, number: int) -> Message:
    message = next(islice(queue.index.look(number), 1), None)
    if message is None or message.sequence_number != number:
        raise _not_found(queue, number)
    return message


def _not_found(queue: Queue, number: int) -> MessageNotFound:
    return MessageNotFound(f"'{queue.path}' has no message with the sequence number {number}.")


def _view(queue: Queue, message: Message) -> control.MessageView:
    copy = message.copy()
    token = message.lock_token
    if token is None:
        return control.MessageView(copy, _STATES[message.state], None)
    copy.lock_token = token
    copy.locked_until_ms = message.locked_until_ms
    until_ms = message.locked_until_ms
    if queue.sessions is not None:
        until_ms = queue.sessions.of(message).locked_until_ms
    lock = control.LockView(token, until_ms, group_of(message).holder.peer)
    return control.MessageView(copy, LOCKED, lock)


def _session_view(session: Session) -> control.SessionView:
    holder = session.holder
    lock = None
    if holder is not None:
        lock = control.LockView(None, session.locked_until_ms, holder.peer)
    return control.SessionView(
        session.id,
        len(session.messages),
        0 if holder is None else len(holder.locked),
        session.state,
        session.state_updated_ms,
        lock,
    )
