"""Requests the bodies of the sessions that receivers will get next, if only the store has them.

Sessions that are sent to in turn have their messages in the same blocks of the store, and a block is read as a whole. So
the bodies of many sessions are requested together. One session after the other would read all blocks for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.ready_messages import READ_AHEAD_MAX_BYTES, READ_AHEAD_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.message import Message
    from broker.core.messages.payloads import Payloads
    from broker.core.queues.session import Session


class SessionReadAhead:
    """The sessions without a holder whose bodies are in memory or requested."""

    __slots__ = ("_available", "_bytes", "_messages", "_payloads", "_sessions")

    def __init__(self, available: Mapping[Session, None], payloads: Payloads) -> None:
        self._payloads = payloads
        self._available = available
        """Sessions that can be held, the next one first."""
        self._sessions: dict[Session, tuple[int, int]] = {}
        """Number and size of the messages whose bodies are in memory or requested. All these sessions are available."""
        self._messages = 0
        self._bytes = 0

    def forget(self, session: Session) -> None:
        """The session is not available any more."""
        messages, size_bytes = self._sessions.pop(session, (0, 0))
        self._messages -= messages
        self._bytes -= size_bytes

    def forget_all(self) -> None:
        """No session is available any more."""
        self._sessions.clear()
        self._messages = self._bytes = 0

    def to_read(self, unpacked_before: int) -> list[Message]:
        """Returns the messages whose bodies should be read from the store now. None while many are in memory, so that
        each read has many, or if this turn has unpacked many. `unpacked_before` is the number of messages in memory
        before the turn unpacked any."""
        wanted: list[Message] = []
        if (
            self._messages > READ_AHEAD_MESSAGES // 2
            or self._bytes > READ_AHEAD_MAX_BYTES // 2
            or len(self._sessions) == len(self._available)
        ):
            return wanted
        for session in self._available:
            if session in self._sessions:
                continue
            if self._payloads.message_count - unpacked_before >= READ_AHEAD_MESSAGES // 2:
                break  # each session may unpack further blocks, which also contain messages of other sessions
            wanted += session.ready.to_read_ahead()
            self._sessions[session] = messages, size_bytes = session.ready.read_ahead
            self._messages += messages
            self._bytes += size_bytes
            if self._messages >= READ_AHEAD_MESSAGES or self._bytes >= READ_AHEAD_MAX_BYTES:
                break
        return wanted
