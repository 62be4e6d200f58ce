"""The sessions and links that Proton knows on one connection.

Each is found by Proton's pointer and by what the client's own frames say of it (`frames/incoming_sessions.py`).
An endpoint is in the table from Proton's first event about it until Proton is told to free it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import EngineLink, EngineSession
    from protocol.amqp.frames.incoming_sessions import IncomingLink, IncomingSession
    from protocol.amqp.frames.sent_deliveries import SentDeliveries


class Endpoints:
    """Sessions and links of one connection."""

    __slots__ = (
        "_links_by_deliveries",
        "_links_by_incoming",
        "_sessions_by_incoming",
        "links",
        "senders",
        "sessions",
        "waiting_for_window",
    )

    def __init__(self) -> None:
        self.links: dict[Any, EngineLink] = {}
        """By Proton's pointer."""
        self.sessions: dict[Any, EngineSession] = {}
        """By Proton's pointer."""
        self.senders: dict[int, SentDeliveries] = {}
        """Deliveries of links on which the broker sends and the client settles, by channel and handle in the broker's
        frames (`channel << 32 | handle`)."""
        self.waiting_for_window: set[EngineLink] = set()
        """Links whose deliveries Proton has queued because the session window is full. Their handler is called when
        they are sent."""
        self._links_by_deliveries: dict[SentDeliveries, EngineLink] = {}
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
        self._links_by_deliveries[link.sent_deliveries] = link
        link.session.links[link] = None

    def add_sender(self, link: EngineLink) -> None:
        """Adds a link on which the broker sends messages that the client settles."""
        self.senders[link.channel << 32 | link.handle] = link.sent_deliveries

    def remove_session(self, pointer: Any) -> EngineSession:
        """Removes a session and returns it. Its links must have been removed."""
        session = self.sessions.pop(pointer)
        del self._sessions_by_incoming[session.incoming]
        return session

    def remove_link(self, link: EngineLink) -> None:
        """Removes a link."""
        del self.links[link.pointer]
        del self._links_by_incoming[link.incoming]
        del self._links_by_deliveries[link.sent_deliveries]
        key = link.channel << 32 | link.handle
        if (
            self.senders.get(key) is link.sent_deliveries
        ):  # or else Proton has used the handle again
            del self.senders[key]
        del link.session.links[link]
        self.waiting_for_window.discard(link)

    def clear(self) -> None:
        """Removes everything, because the connection is lost."""
        for session in self.sessions.values():
            session.links.clear()
        self.links.clear()
        self.senders.clear()
        self.waiting_for_window.clear()
        self.sessions.clear()
        self._links_by_deliveries.clear()
        self._links_by_incoming.clear()
        self._sessions_by_incoming.clear()

    def link_with(self, deliveries: SentDeliveries) -> EngineLink | None:
        """Returns the link that has these deliveries, or None if it has ended."""
        return self._links_by_deliveries.get(deliveries)

    def link_of(self, incoming: IncomingLink) -> EngineLink | None:
        """Returns the link that the client's frames call `incoming`, or None if Proton has not reported it
        yet or it has been removed."""
        return self._links_by_incoming.get(incoming)

    def session_of(self, incoming: IncomingSession) -> EngineSession | None:
        """Returns the session that the client's frames call `incoming`; None as in `link_of`."""
        return self._sessions_by_incoming.get(incoming)
