"""One session of a queue: its messages, its state, and the receiver that holds it.

`sessions.py` decides which receiver holds which session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.queues.ready_messages import ReadyMessages
from broker.core.queues.receiver import BURST_MAX_BYTES
from broker.core.queues.session_messages import SessionMessages

if TYPE_CHECKING:
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver
    from broker.core.queues.sessions import Sessions


class Session:
    """One session of a queue. A source of messages for the receiver that holds it."""

    __slots__ = (
        "holder",
        "id",
        "locked_until_ms",
        "messages",
        "queue",
        "ready",
        "sessions",
        "state",
        "state_updated_ms",
    )

    def __init__(self, sessions: Sessions, queue: Queue, session_id: str) -> None:
        self.sessions = sessions
        self.queue = queue
        self.id = session_id
        """The id as it was first used. `session_key` says which other ids are the same session."""
        self.messages = SessionMessages()
        """All its messages in any state."""
        self.ready = ReadyMessages()
        self.holder: Receiver | None = None
        self.locked_until_ms = 0
        self.state: bytes | None = None
        self.state_updated_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no messages, no state and no holder."""
        return not self.messages and self.state is None and self.holder is None

    def touch(self) -> None:
        """Dispatch at the end of this turn, if a receiver holds the session."""
        if self.holder is not None:
            self.queue.context.touched[self] = None

    def grant(self, receiver: Receiver) -> None:
        """See `ReceiverSource.grant`."""
        if receiver is self.holder:
            self.touch()

    def detach(self, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        """See `ReceiverSource.detach`. Closes the session."""
        del receiver
        self.sessions.close_session(self, now_ms, turn)

    def expire(self, now_ms: int, turn: Turn) -> None:
        """The session lock has ended: see `Sessions.expire`."""
        self.sessions.expire(self, now_ms, turn)

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Deliver messages to the holder in order, as many as its credit allows."""
        receiver = self.holder
        if receiver is None or self.queue.overdue_ms:
            return
        room = receiver.room
        messages = self.ready.take(room, BURST_MAX_BYTES) if room > 0 else ()
        if messages:
            receiver.load(messages, self.ready.taken_bytes)
            self.queue.deliver(receiver, receiver.unload(), now_ms, turn)
        payloads = self.queue.context.payloads
        if payloads.any_paged:
            payloads.request(self.ready.to_read_ahead(), turn)
        if not receiver.draining or receiver.drains_later:
            return
        if receiver.room <= 0 or not self.ready.blocked:
            receiver.finish_draining(turn)


class SessionWait(NamedTuple):
    """A receiver that waits for the next available session."""

    sessions: Sessions
    receiver: Receiver
    until_ms: int
    timeout_ms: int
    given_before: int
    """How many sessions had been given to waiting receivers when it began to wait."""
