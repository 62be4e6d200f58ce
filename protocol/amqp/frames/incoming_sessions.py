"""What a client's frames say about its sessions and links, before Proton sees them.

Proton answers with the end of the connection where the service ends a session, ends a link or does
not look at all. This knows channels, handles and link names as the client uses them, so that
`FrameScan` can change or hold back a frame, and `Dispatch` can be told what to do instead.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from protocol.amqp.frames.delivery_ids import DeliveryIds


class ProtocolViolation(NamedTuple):
    """Why a connection cannot go on."""

    condition: str
    description: str


class IncomingLink:
    """A link by the handle that the client gave it."""

    __slots__ = (
        "attach_bytes",
        "client_sends",
        "deferred_flows",
        "drain_waits",
        "ended",
        "handle",
        "initial_delivery_count",
        "layout",
        "name",
        "number",
        "open_numbers",
    )

    def __init__(
        self,
        handle: int,
        name: str,
        *,
        client_sends: bool,
        initial_delivery_count: int = 0,
        attach_bytes: int = 0,
    ) -> None:
        self.handle = handle
        self.name = name
        self.client_sends = client_sends
        self.initial_delivery_count = initial_delivery_count
        self.attach_bytes = attach_bytes
        self.number: int | None = None
        """Proton's id of a delivery of which more is to come."""
        self.open_numbers: set[int] = set()
        """Proton's ids of renumbered deliveries that may not be settled yet."""
        self.layout: Any = None
        """How the client writes its transfers on this link; see `FrameScan`."""
        self.drain_waits = False
        """The client asked for a drain that has not been answered."""
        self.deferred_flows: list[tuple[bytes, bool]] = []
        """Flows that came after that drain, and whether each is a drain itself."""
        self.ended = False
        """Another link has taken its name: what the client still says on it is not looked at."""

    def defer_flow(self, flow: bytes, *, drain: bool) -> None:
        """Keep a flow until the drain before it is answered. Flows carry absolute values, so only
        the newest counts, and the newest drain."""
        if drain:
            self.deferred_flows.clear()
        elif self.deferred_flows and not self.deferred_flows[-1][1]:
            self.deferred_flows.pop()
        self.deferred_flows.append((flow, drain))


class IncomingSession:
    """A session by the channel that the client gave it."""

    __slots__ = ("channel", "discards", "ids", "links", "names")

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.ids = DeliveryIds()
        self.links: dict[int, IncomingLink] = {}
        self.names: dict[tuple[str, bool], IncomingLink] = {}
        """Links by name and whether the client sends on them."""
        self.discards = False
        """We have ended it, so nothing counts any more but the client's end (AMQP 1.0 §2.5.5)."""


class IncomingSessions:
    """All sessions of a connection, and which of them need their output changed."""

    def __init__(self) -> None:
        self.by_channel: dict[int, IncomingSession] = {}
        self.begun: deque[IncomingSession] = deque()
        """Sessions that Proton has not told of yet, in the order it will."""
        self.attached: deque[IncomingLink] = deque()
        """Links that Proton has not told of yet, in the order it will."""
        self.unanswered: list[IncomingSession] = []
        """Sessions whose channel in our own frames is not known yet."""
        self.by_own_channel: dict[int, IncomingSession] = {}
        self.renumbered: set[IncomingSession] = set()
        self.discarding: set[IncomingSession] = set()
        """Sessions that we have ended and the client has not."""
        self.transactional = False
        """Some transfer had a state: only that of a transaction says anything."""
        self.ended_with_deliveries = False
        """We have ended a link while the client may be settling what came on it."""
        self.settled_later: list[tuple[IncomingSession, set[int]]] = []
        """Deliveries of links that are gone: forgotten once our last words about them are out."""

    def begin(self, channel: int) -> None:
        """The client begins a session."""
        session = IncomingSession(channel)
        self.by_channel[channel] = session
        self.begun.append(session)
        self.unanswered.append(session)

    def end(self, session: IncomingSession) -> None:
        """The client ended a session."""
        del self.by_channel[session.channel]
        self.discarding.discard(session)
        if session in self.unanswered:
            # Proton's begin will not name the channel any more, and nothing follows it but an end.
            self.unanswered.remove(session)
            self.renumbered.discard(session)

    def attach(self, session: IncomingSession, link: IncomingLink) -> None:
        """The client attaches a link; its handle and name are free."""
        session.links[link.handle] = link
        session.names[link.name, link.client_sends] = link
        self.attached.append(link)

    def detach(self, session: IncomingSession, link: IncomingLink) -> None:
        """The client detached a link."""
        del session.links[link.handle]
        self.forget_name(session, link)

    def forget_name(self, session: IncomingSession, link: IncomingLink) -> None:
        """The link is gone for Proton, whether the client knows or not."""
        key = link.name, link.client_sends
        if session.names.get(key) is link:
            del session.names[key]
        if link.open_numbers:
            self.settled_later.append((session, link.open_numbers))
            link.open_numbers = set()

    @property
    def all_plain(self) -> bool:
        """No session is renumbered or discarded, and no link was ended with messages on it: the
        client's dispositions stand as they are."""
        return not (self.renumbered or self.discarding or self.ended_with_deliveries)

    @property
    def watches_output(self) -> bool:
        """Whether Proton's output must be inspected."""
        return bool(self.renumbered or self.unanswered)

    def begin_answered(self, own_channel: int, channel: int) -> None:
        """Our begin went out."""
        for session in self.unanswered:
            if session.channel == channel:
                self.unanswered.remove(session)
                self.by_own_channel[own_channel] = session
                return

    def end_written(self, own_channel: int) -> None:
        """Our end went out."""
        session = self.by_own_channel.pop(own_channel, None)
        if session is not None:
            self.renumbered.discard(session)

    def output_taken(self) -> None:
        """All frames about links that are gone were written."""
        for session, numbers in self.settled_later:
            for number in list(numbers):
                session.ids.forget(number)
        self.settled_later.clear()
