"""The states of the sessions of a queue: their size, their number and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import SessionStateSet
from broker.core.messages.session_ids import session_key

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue
    from broker.core.queues.session import Session


class SessionStates:
    """Counts the states, which the sessions have."""

    __slots__ = ("_other_spellings", "_queue", "count", "size_bytes")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._other_spellings: dict[str, list[str]] = {}
        """By key: other spellings of the id under which the store has a state. Stores from versions
        that compared ids with case have them."""
        self.count = 0
        self.size_bytes = 0

    def set(self, session: Session, state: bytes | None, now_ms: int) -> list[SessionStateSet]:
        """Set or clear the state of a session. Returns the records for the store."""
        self._put(session, state, now_ms)
        entity_id = self._queue.entity_id
        others = self._other_spellings.pop(session_key(session.id), ())
        return [
            *(SessionStateSet(entity_id, other, None, now_ms) for other in others),
            SessionStateSet(entity_id, session.id, state, now_ms),
        ]

    def restore(self, session: Session, stored: SessionStateSet) -> None:
        """Add a state from the store. The oldest come first: of several spellings of one session id
        the last counts."""
        if stored.session_id != session.id:
            self._other_spellings.setdefault(session_key(session.id), []).append(stored.session_id)
        self._put(session, stored.state, stored.updated_time_ms)

    def forget_all(self) -> None:
        """The states are deleted with the sessions."""
        self._queue.usage.add(-self.size_bytes)
        self._queue.context.session_state_bytes -= self.size_bytes

    def _put(self, session: Session, state: bytes | None, now_ms: int) -> None:
        grows_by = len(state or b"") - len(session.state or b"")
        self.size_bytes += grows_by
        self._queue.usage.add(grows_by)
        self._queue.context.session_state_bytes += grows_by
        self.count += (state is not None) - (session.state is not None)
        session.state = state
        session.state_updated_ms = now_ms
