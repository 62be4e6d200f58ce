"""What the engine and its handler speak of: sessions, links, kinds of transfers.

Owns the shapes, not the behaviour: the engine alone fills them in and drives Proton.
A link whose Proton object is gone is `closed`, and stays a harmless object for whoever holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cproton_ffi import lib

from protocol.amqp.engine.link_log import log_attached, log_detached
from protocol.amqp.engine.states import LinkEvent, LinkState, next_link_state

if TYPE_CHECKING:
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.frames.incoming_sessions import IncomingLink, IncomingSession

Delivery = Any
"""A delivery as Proton knows it. Hashable; to be settled once, through its link."""


class TransferKind(NamedTuple):
    """What sets one transfer apart from another on the same link."""

    settled: bool
    """The client wants no answer."""
    batch: bool
    """The payload holds many messages."""
    transaction_id: bytes | None


PLAIN = TransferKind(settled=False, batch=False, transaction_id=None)

KINDS = {
    (settled, batch): TransferKind(settled, batch, None)
    for settled in (False, True)
    for batch in (False, True)
} | {(False, False): PLAIN}


OVERSIZE_KEPT_BYTES = 1024
"""How much is kept of a message over its limit: enough for the id of a request."""


UNCONFIRMED_MAX = 10_000
"""How many deliveries of a link wait for their sender to settle them."""


class EngineSession:
    """An AMQP session: a channel that links share."""

    __slots__ = ("has_coordinator", "incoming", "links", "pointer", "via")

    def __init__(self, pointer: Any, incoming: IncomingSession) -> None:
        self.pointer = pointer
        self.incoming = incoming
        """What the client's frames say of the session."""
        self.links: dict[EngineLink, None] = {}
        self.has_coordinator = False
        """A link to the transaction coordinator was attached in it."""
        self.via: str | None = None
        """See `via_entity.py`."""


class EngineLink:
    """A link of the connection, for as long as anyone holds it; `closed` once it is of no use."""

    __slots__ = (
        "address",
        "channel",
        "container_id",
        "context",
        "drained",
        "handle",
        "held_bytes",
        "host",
        "incoming",
        "is_receiver",
        "kept_bytes",
        "max_message_size_bytes",
        "may_send_settled",
        "name",
        "partial",
        "pointer",
        "received",
        "sent",
        "session",
        "state",
        "unconfirmed",
        "unsettled",
        "waits_for_window",
    )

    def __init__(
        self, pointer: Any, session: EngineSession, attach: Attach, incoming: IncomingLink
    ) -> None:
        self.pointer = pointer
        self.incoming = incoming
        """What the client's frames say of the link."""
        self.session = session
        self.name = attach.name
        self.is_receiver = attach.is_receiver
        """True where we receive and the client sends."""
        self.context: Any = None
        """The handler's own."""
        self.sent = 0
        """Deliveries handed to Proton so far."""
        self.received = 0
        """Deliveries that have begun to arrive."""
        self.state = LinkState.REQUESTED
        self.unsettled: dict[Delivery, Delivery] = {}
        """What may still be settled. Proton uses a settled delivery's memory again for another,
        so only the very object that was handed out counts."""
        self.unconfirmed: dict[Delivery, Delivery] | None = None
        """What we have judged and the client, a sender in mode `second`, has not settled yet. None on
        every other link: there we settle what we judge."""
        self.partial: PartialDelivery | None = None
        """The delivery of which some transfers have come and more are to come."""
        self.may_send_settled = attach.snd_settle_mode != lib.PN_SND_UNSETTLED
        """The client may send settled transfers. It says so when it attaches, and it does not change."""
        self.waits_for_window = False
        """Proton has queued deliveries because the session window is full, and the link's handler is to be
        called when they are sent. Not a state: it changes with every window while the link is attached."""
        self.drained = 0
        """Credit given back so far, by whichever side sends; with what was sent this makes the
        delivery count."""
        self.channel = self.handle = 0
        """Where the link stands in our own frames."""
        self.kept_bytes = 0
        """What Proton keeps of its unsettled deliveries, see `SentBuffers`."""
        self.held_bytes = 0
        """What the connection's account says of it, see `held_memory.py`."""
        self.max_message_size_bytes = 0
        """Of what the client sends here; more is not kept. 0: what the connection allows."""
        self.host = ""
        """The host that the client named when it opened: errors name entities with it."""
        self.container_id = ""
        """The client's, for the log."""
        address = attach.target_address if attach.is_receiver else attach.source_address
        self.address = "$coordinator" if attach.target_is_coordinator else address or ""
        """As the client wrote it, for the log."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can be done on the link."""
        state = self.state
        return state is not LinkState.ATTACHED and state is not LinkState.REQUESTED

    @property
    def is_attached(self) -> bool:
        """Whether the link was granted and has not ended."""
        return self.state is LinkState.ATTACHED

    def apply(self, event: LinkEvent) -> None:
        """Changes the state and logs it. Raises `IllegalTransition` if the table does not allow the event."""
        before = self.state
        self.state = next_link_state(event, before)
        if self.state is LinkState.ATTACHED:
            log_attached(self)
        elif before is LinkState.ATTACHED:
            log_detached(self)

    def await_confirmation(self, delivery: Delivery) -> None:
        """Settle a delivery once the client has: at once if it is settled there, if more of it is to
        come, which will not be looked at, or if too many others wait."""
        unconfirmed = self.unconfirmed
        if (
            unconfirmed is None
            or len(unconfirmed) >= UNCONFIRMED_MAX
            or lib.pn_delivery_settled(delivery)
            or lib.pn_delivery_partial(delivery)
        ):
            lib.pn_delivery_settle(delivery)
        else:
            unconfirmed[delivery] = delivery

    def confirmed(self, delivery: Delivery) -> None:
        """The client said something about a delivery that it sent."""
        unconfirmed = self.unconfirmed
        if unconfirmed and delivery in unconfirmed and lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(unconfirmed.pop(delivery))

    def free(self) -> None:
        """Forgets the deliveries, because Proton's link is freed and they are freed with it."""
        self.apply(LinkEvent.FREE)
        self.unsettled.clear()
        self.unconfirmed = None


class PartialDelivery:
    """A delivery of which some transfers have come."""

    __slots__ = ("batch", "chunks", "kept_bytes", "size_bytes")

    def __init__(self, *, batch: bool) -> None:
        self.batch = batch
        self.chunks: list[bytes] = []
        self.size_bytes = 0
        self.kept_bytes = 0

    def add(self, chunk: bytes, limit_bytes: int) -> None:
        """More of it; beyond the limit only its beginning is kept, by which it can be refused."""
        is_over = self.size_bytes > limit_bytes
        self.size_bytes += len(chunk)
        if is_over:
            return
        self.chunks.append(chunk)
        self.kept_bytes = self.size_bytes
        if self.size_bytes > limit_bytes:
            self.chunks = [b"".join(self.chunks)[:OVERSIZE_KEPT_BYTES]]
            self.kept_bytes = len(self.chunks[0])


class EngineHandler(Protocol):
    """Who is told what the client does, in the order it does it."""

    def on_open(self, hostname: str, container_id: str, properties: dict[str, object]) -> None:
        """The client opened the connection; the engine has answered."""

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """A link to grant (`Engine.attach`) or refuse (`Engine.refuse`), now or later."""

    def on_transfers(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        payloads: list[bytes],
        kind: TransferKind,
    ) -> None:
        """Messages of one kind arrived on one link, one after the other."""

    def on_oversize(
        self,
        link: EngineLink,
        delivery: Delivery,
        size_bytes: int,
        settled: bool,  # noqa: FBT001
        beginning: bytes,
    ) -> None:
        """More of a message than the link's limit arrived: all of it, or as much as shows that.
        All but its beginning was dropped. To be settled at once: no more of it is looked at."""

    def on_outcomes(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,  # noqa: FBT001
    ) -> None:
        """The client said the same about deliveries that we sent on one link. Where it settled
        them, settle them too. It may say something twice, or settle later what it only judged."""

    def on_transaction_part_lost(self, transaction_id: bytes) -> None:
        """The client sent or settled something under a transaction that nobody can take any more:
        its link, its session or the delivery is gone."""

    def on_flow(self, link: EngineLink) -> None:
        """Credit, drain or room changed on a link on which we send."""

    def on_detach(self, link: EngineLink, closed: bool) -> None:  # noqa: FBT001
        """The client detached a link. The engine answers; the link is gone."""

    def on_detach_confirmed(self, link: EngineLink) -> None:
        """A link that we had ended is gone: the client has answered, or ended its session. Not
        called where it went with the connection."""

    def on_session_end(self, links: list[EngineLink]) -> None:
        """The client ended a session; these links went with it."""

    def on_session_error(self, condition: str, description: str) -> None:
        """We ended a session for what the client did in it; `on_session_end` told of its links."""

    def on_close(self) -> None:
        """The client closed the connection; the engine answers."""

    def on_transport_error(self, condition: str, description: str) -> None:
        """The client broke the protocol or fell silent; the connection is finished."""
