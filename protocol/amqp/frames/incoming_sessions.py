"""The sessions and links of a client by its own frames, before Proton gets them.

Proton closes the connection for errors for which the service ends a session, detaches a link, or does nothing. With
the channels, handles and link names that the client uses, `FrameScan` can change or drop a frame, and `Engine` can
perform another action instead.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from protocol.amqp.frames.delivery_ids import SERIAL_MASK, DeliveryIds
from protocol.amqp.frames.sent_deliveries import SentSession


class ProtocolViolation(NamedTuple):
    """The error with which a connection or a session is ended."""

    condition: str
    description: str


class IncomingLink:
    """A link of the client, with the handle that the client uses."""

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
        """Proton's id of a delivery that is not complete."""
        self.open_numbers: set[int] = set()
        """Proton's ids of renumbered deliveries that may not be settled yet."""
        self.layout: Any = None
        """How the client encodes transfers on this link, see `FrameScan`."""
        self.drain_waits = False
        """The client asked for a drain that has not been answered."""
        self.deferred_flows: list[tuple[bytes, bool]] = []
        """Flows that arrived after that drain, and whether each is a drain too."""
        self.ended = False
        """Another link has its name now. Further frames of this link are dropped."""

    def defer_flow(self, flow: bytes, *, drain: bool) -> None:
        """Keeps a flow until the drain before it is answered. Flows have absolute values, so only the newest flow and
        the newest drain are kept."""
        if drain:
            self.deferred_flows.clear()
        elif self.deferred_flows and not self.deferred_flows[-1][1]:
            self.deferred_flows.pop()
        self.deferred_flows.append((flow, drain))


class IncomingSession:
    """A session of the client, with the channel that the client uses."""

    __slots__ = ("channel", "discards", "handle_max", "ids", "links", "names", "sent_deliveries")

    def __init__(self, channel: int, handle_max: int = SERIAL_MASK) -> None:
        self.channel = channel
        self.handle_max = handle_max
        """The highest handle that the client takes. Proton writes nothing more if it needs a higher one."""
        self.ids = DeliveryIds()
        """Ids of deliveries that the client sends."""
        self.sent_deliveries = SentSession()
        """Deliveries that the broker sent and the client has not settled."""
        self.links: dict[int, IncomingLink] = {}
        self.names: dict[tuple[str, bool], IncomingLink] = {}
        """Links by name and whether the client sends on them."""
        self.discards = False
        """The broker has ended the session. All its frames are dropped until the client's end (AMQP 1.0 §2.5.5)."""


class IncomingSessions:
    """All sessions of a connection, and which of them have output that must be changed."""

    def __init__(self) -> None:
        self.by_channel: dict[int, IncomingSession] = {}
        self.begun: deque[IncomingSession] = deque()
        """Sessions that Proton has not reported yet, in the order in which it will."""
        self.attached: deque[IncomingLink] = deque()
        """Links that Proton has not reported yet, in the order in which it will."""
        self.unanswered: list[IncomingSession] = []
        """Sessions whose channel in the broker's frames is not known yet."""
        self.by_own_channel: dict[int, IncomingSession] = {}
        self.renumbered: set[IncomingSession] = set()
        self.discarding: set[IncomingSession] = set()
        """Sessions that the broker has ended and the client has not."""
        self.transactional = False
        """A transfer had a state, so transfers must be checked for transactions."""
        self.ended_with_deliveries = False
        """The broker has detached a link whose deliveries the client may still settle."""
        self.settled_later: list[tuple[IncomingSession, set[int]]] = []
        """Deliveries of detached links. They are forgotten when the last disposition of them is written."""

    def begin(self, channel: int, handle_max: int | None = None) -> None:
        """Adds a session that the client begins."""
        session = IncomingSession(channel, SERIAL_MASK if handle_max is None else handle_max)
        self.by_channel[channel] = session
        self.begun.append(session)
        self.unanswered.append(session)

    def end(self, session: IncomingSession) -> None:
        """Removes a session that the client ended."""
        del self.by_channel[session.channel]
        self.discarding.discard(session)

    def attach(self, session: IncomingSession, link: IncomingLink) -> None:
        """Adds a link that the client attaches. Its handle and name must be free."""
        session.links[link.handle] = link
        session.names[link.name, link.client_sends] = link
        self.attached.append(link)

    def detach(self, session: IncomingSession, link: IncomingLink) -> None:
        """Removes a link that the client detached."""
        del session.links[link.handle]
        self.forget_name(session, link)

    def forget_name(self, session: IncomingSession, link: IncomingLink) -> None:
        """Frees the name of a link that Proton has detached."""
        key = link.name, link.client_sends
        if session.names.get(key) is link:
            del session.names[key]
        if link.open_numbers:
            self.settled_later.append((session, link.open_numbers))
            link.open_numbers = set()

    @property
    def watches_output(self) -> bool:
        """Whether Proton's output must be inspected."""
        return bool(self.renumbered or self.unanswered)

    def begin_answered(self, own_channel: int, channel: int) -> None:
        """Records the channel of a begin that was written."""
        for session in self.unanswered:
            if session.channel == channel:
                self.unanswered.remove(session)
                self.by_own_channel[own_channel] = session
                return

    def end_written(self, own_channel: int) -> None:
        """Forgets the channel of an end that was written."""
        session = self.by_own_channel.pop(own_channel, None)
        if session is not None:
            self.renumbered.discard(session)

    def output_taken(self) -> None:
        """Forgets the deliveries of detached links, because all their frames were written."""
        for session, numbers in self.settled_later:
            for number in list(numbers):
                session.ids.forget(number)
        self.settled_later.clear()
