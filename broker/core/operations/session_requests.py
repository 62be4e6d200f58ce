"""Requests about sessions: renew a session lock, get and set a session state, list sessions.

Each request returns the value of its reply, or raises the refusal before anything has changed.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from broker.core.contract.errors import MessageSizeExceeded, NotAllowed, QuotaExceeded
from broker.core.operations.link_operations import receivable

if TYPE_CHECKING:
    from broker.core.contract.commands import (
        GetSessionState,
        ListSessions,
        RenewSessionLock,
        SetSessionState,
    )
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.sessions import Sessions

NOT_SORTED_PART = 8
"""A page within this part of all sessions is found without sorting them, which is quicker."""


class SessionRequests:
    """Answers requests about sessions."""

    __slots__ = ("_context", "_directory")

    def __init__(self, context: NamespaceContext, directory: Directory) -> None:
        self._context = context
        self._directory = directory

    def renew_session_lock(self, command: RenewSessionLock, now_ms: int, turn: Turn) -> int:
        """Renew the lock of a session. Returns its new end."""
        del turn
        sessions = self._sessions(command.path, now_ms)
        return sessions.renew(sessions.held(command.session_id, command.origin), now_ms)

    def set_session_state(self, command: SetSessionState, now_ms: int, turn: Turn) -> None:
        """Set or clear the state of a session."""
        sessions = self._sessions(command.path, now_ms)
        session = sessions.held(command.session_id, command.origin)
        entity = self._directory.entity_of(session.queue)
        limits = self._context.limits
        grows_by = len(command.state or b"") - len(session.state or b"")
        most_bytes = min(limits.session_state_max_bytes, entity.max_message_bytes)
        if len(command.state or b"") > most_bytes:
            raise MessageSizeExceeded(
                f"A session state is no larger than a message: it has at most {most_bytes} bytes."
            )
        observations = self._context.observations
        if len(command.state or b"") > observations.azure.session_state_max_bytes:
            observations.note_over_quota(
                "session_state_max_bytes", entity.path, len(command.state or b"")
            )
        is_new = command.state is not None and session.state is None
        if is_new and sessions.state_count >= limits.session_states_per_entity_max:
            raise QuotaExceeded(
                f"An entity keeps at most {limits.session_states_per_entity_max} session states."
            )
        all_bytes = self._context.session_state_bytes + grows_by
        if grows_by > 0 and all_bytes > limits.session_states_max_bytes:
            raise QuotaExceeded(
                "The states of all sessions of a namespace have at most "
                f"{limits.session_states_max_bytes} bytes together."
            )
        if grows_by > 0 and (error := entity.size_error(0, grows_by)) is not None:
            raise error
        if command.state and self._context.room.is_scarce:
            self._context.room.check_state(len(command.state))
            self._context.room.take(len(command.state), turn)
        turn.records += sessions.set_state(session, command.state, now_ms)

    def get_session_state(self, command: GetSessionState, now_ms: int, turn: Turn) -> bytes | None:
        """Returns the state of a session."""
        del turn
        sessions = self._sessions(command.path, now_ms)
        return sessions.held(command.session_id, command.origin).state

    def list_sessions(self, command: ListSessions, now_ms: int, turn: Turn) -> list[str]:
        """Returns the ids of sessions."""
        del turn
        return _list_ids(self._sessions(command.path, now_ms), command)

    def _sessions(self, path: str, now_ms: int) -> Sessions:
        entity, queue = receivable(self._directory, path)
        entity.record_access(now_ms)
        if queue.sessions is None:
            raise NotAllowed(f"The entity '{queue.path}' does not require sessions, and has none.")
        return queue.sessions


def _list_ids(sessions: Sessions, command: ListSessions) -> list[str]:
    """Returns the sorted ids of sessions with messages or a state, or of those whose state was set after
    a time."""
    since_ms = command.updated_since_ms
    if since_ms is None:
        chosen = [one.id for one in sessions if one.messages or one.state is not None]
    else:
        chosen = [
            one.id for one in sessions if one.state is not None and one.state_updated_ms > since_ms
        ]
    start = command.skip
    if command.after_session_id is not None:
        known = sessions.get(command.after_session_id)
        after = command.after_session_id if known is None else known.id
        chosen = [session_id for session_id in chosen if session_id > after]
        start = 0
    end = start + command.top
    if end < len(chosen) // NOT_SORTED_PART:
        return nsmallest(end, chosen)[start:]
    chosen.sort()
    return chosen[start:end]
