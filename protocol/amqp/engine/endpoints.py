"""The sessions and links that Proton knows on one connection.

Each is found by Proton's pointer and by what the client's own frames say of it (`frames/incoming_sessions.py`).
An endpoint is in the table from Proton's first event about it until Proton is told to free it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import EngineLink, EngineSession
    from protocol.amqp.frames.incoming_sessions import IncomingLink, IncomingSession


class Endpoints:
    """Sessions and links of one connection."""

    __slots__ = ("_links_by_incoming", "_sessions_by_incoming", "links", "sessions")

    def __init__(self) -> None:
        self.links: dict[Any, EngineLink] = {}
        """By Proton's pointer."""
        self.sessions: dict[Any, EngineSession] = {}
        """By Proton's pointer."""
        self._links_by_incoming: dict[IncomingLink, EngineLink] = {}
        self._sessions_by_incoming: dict[IncomingSession, EngineSession] = {}

    def add_session(self, session: EngineSession) -> None:
        """Adds a session that the client has begun."""
        self.sessions[session.pointer] = session
        self._sessions_by_incoming[session.incoming] = session

    def add_link(self, link: EngineLink) -> None:
        """Adds a link that the client has attached."""
        self.links[link.pointer] = link
        self._links_by_incoming[link.incoming] = link
        link.session.links[link] = None

    def remove_session(self, pointer: Any) -> EngineSession:
        """Removes a session and returns it. Its links must have been removed."""
        session = self.sessions.pop(pointer)
        del self._sessions_by_incoming[session.incoming]
        return session

    def remove_link(self, link: EngineLink) -> None:
        """Removes a link."""
        del self.links[link.pointer]
        del self._links_by_incoming[link.incoming]
        del link.session.links[link]

    def clear(self) -> None:
        """Removes everything, because the connection is lost."""
        for session in self.sessions.values():
            session.links.clear()
        self.links.clear()
        self.sessions.clear()
        self._links_by_incoming.clear()
        self._sessions_by_incoming.clear()

    def link_of(self, incoming: IncomingLink) -> EngineLink | None:
        """Returns the link that the client's frames call `incoming`, or None if Proton has not reported it
        yet or it has been removed."""
        return self._links_by_incoming.get(incoming)

    def session_of(self, incoming: IncomingSession) -> EngineSession | None:
        """Returns the session that the client's frames call `incoming`; None as in `link_of`."""
        return self._sessions_by_incoming.get(incoming)
