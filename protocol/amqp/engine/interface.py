"""The types that the engine and its handler share: sessions, links, kinds of transfers.

Only the engine creates and changes them. A link whose Proton object is freed is `closed`; engine calls with it do
nothing.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cproton_ffi import lib

from protocol.amqp.engine.link_log import log_attached, log_detached
from protocol.amqp.engine.proton_functions import address_of
from protocol.amqp.engine.received_deliveries import ReceivedDeliveries
from protocol.amqp.engine.states import LinkEvent, LinkState, next_link_state
from protocol.amqp.frames.sent_deliveries import SentDeliveries

if TYPE_CHECKING:
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.frames.incoming_sessions import IncomingLink, IncomingSession

Delivery = Any
"""The number of a delivery on its link. It is settled once, through its link. The core passes it on as an object."""


class TransferKind(NamedTuple):
    """The properties by which transfers of a link are grouped."""

    settled: bool
    """The client settled the transfer and gets no outcome."""
    batch: bool
    """The payload is a batch of messages."""
    transaction_id: bytes | None


PLAIN = TransferKind(settled=False, batch=False, transaction_id=None)

KINDS = {
    (settled, batch): TransferKind(settled, batch, None)
    for settled in (False, True)
    for batch in (False, True)
} | {(False, False): PLAIN}


OVERSIZE_KEPT_BYTES = 1024
"""How much is kept of a message that is over the limit: enough to read the id of a request."""


UNCONFIRMED_MAX = 10_000
"""How many deliveries of a link may wait for the client to settle them."""


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
    """A link of the connection."""

    __slots__ = (
        "address",
        "channel",
        "closed",
        "container_id",
        "context",
        "drained",
        "handle",
        "held_bytes",
        "host",
        "incoming",
        "is_attached",
        "is_receiver",
        "max_message_size_bytes",
        "may_send_settled",
        "name",
        "partial",
        "pointer",
        "proton_address",
        "received",
        "received_deliveries",
        "sends_settled",
        "sent",
        "sent_deliveries",
        "session",
        "state",
        "unconfirmed",
    )

    def __init__(
        self, pointer: Any, session: EngineSession, attach: Attach, incoming: IncomingLink
    ) -> None:
        self.pointer = pointer
        self.proton_address = address_of(pointer)
        self.incoming = incoming
        """What the client's frames say of the link."""
        self.session = session
        self.name = attach.name
        self.is_receiver = attach.is_receiver
        """True if the client sends on the link and the broker receives."""
        self.context: Any = None
        """The peer that the handler has for the link."""
        self.sent = 0
        """Number of deliveries that were passed to Proton."""
        self.received = 0
        """Number of deliveries of which at least one transfer has arrived."""
        self._enter(LinkState.REQUESTED)
        self.received_deliveries = ReceivedDeliveries()
        self.sent_deliveries = SentDeliveries(session.incoming.sent_deliveries)
        """Deliveries that may still be settled. The link has only one of the two kinds."""
        self.sends_settled: bool | None = None
        """Whether the broker sends its messages settled. It is the same for all messages of a link. None before
        the first."""
        self.unconfirmed: dict[Any, Any] | None = None
        """Deliveries that have an outcome and that the client, a sender in mode `second`, has not settled yet.
        None on every other link: there the broker settles with the outcome."""
        self.partial: PartialDelivery | None = None
        """The delivery of which some transfers have come and more are to come."""
        self.may_send_settled = attach.snd_settle_mode != lib.PN_SND_UNSETTLED
        """The client may send settled transfers. It says so when it attaches, and it does not change."""
        self.drained = 0
        """Credit that was returned by draining. Together with the sent deliveries it is the delivery count."""
        self.channel = self.handle = 0
        """Channel and handle of the link in the broker's own frames."""
        self.held_bytes = 0
        """Bytes of this link in the connection's account, see `held_memory.py`."""
        self.max_message_size_bytes = 0
        """Largest message that the client may send here. 0: the limit of the connection."""
        self.host = ""
        """The host name of the client's open, with which errors name entities."""
        self.container_id = ""
        """The container id of the client, for the log."""
        address = attach.node_address
        self.address = "$coordinator" if attach.target_is_coordinator else address or ""
        """The address as the client wrote it, for the log."""

    def _enter(self, state: LinkState) -> None:
        # Attributes and no properties, because they are looked at several times for each message.
        self.state = state
        self.is_attached = state is LinkState.ATTACHED
        """Whether the link was granted and has not ended."""
        self.closed = state not in (LinkState.REQUESTED, LinkState.ATTACHED)
        """Whether nothing more can be done on the link."""

    def apply(self, event: LinkEvent) -> None:
        """Changes the state and logs it. Raises `IllegalTransition` if the table does not allow the event."""
        before = self.state
        self._enter(next_link_state(event, before))
        if self.is_attached:
            log_attached(self)
        elif before is LinkState.ATTACHED:
            log_detached(self)

    @property
    def unsettled(self) -> list[Delivery]:
        """Deliveries that may still be settled."""
        return sorted((*self.received_deliveries.unsettled, *self.sent_deliveries.unsettled))

    @property
    def queued(self) -> int:
        """How many deliveries Proton has queued because the session window is full. Those for which the client has taken
        the credit back do not count: they wait for credit."""
        count: int = lib.pn_link_queued(self.pointer)
        if count:
            count = max(0, min(count, count + lib.pn_link_credit(self.pointer)))
        return count

    def await_confirmation(self, delivery: Any) -> None:
        """Settles Proton's delivery after the client has settled it. Settles it at once if the client has done so, if it
        is not complete, because the rest is not read, or if too many others wait."""
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

    def confirmed(self, delivery: Any) -> None:
        """Settles Proton's delivery if the client, which sent it, has now settled it."""
        unconfirmed = self.unconfirmed
        if unconfirmed and delivery in unconfirmed and lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(unconfirmed.pop(delivery))

    def free(self) -> None:
        """Forgets the deliveries, because Proton's link is freed and they are freed with it."""
        self.apply(LinkEvent.FREE)
        self.received_deliveries.clear()
        self.sent_deliveries.clear()
        self.unconfirmed = None


class PartialDelivery:
    """A delivery of which some transfers have arrived. They are joined one by one: to join the parts of a large message
    at the end would stop all clients for as long as a copy of it takes."""

    __slots__ = ("_kept", "batch", "kept_bytes", "size_bytes")

    def __init__(self, *, batch: bool) -> None:
        self.batch = batch
        self._kept = BytesIO()
        self.size_bytes = 0
        self.kept_bytes = 0

    def add(self, chunk: bytes, limit_bytes: int) -> None:
        """Adds the payload of a transfer. Over the limit only the beginning is kept, by which it is refused."""
        is_over = self.size_bytes > limit_bytes
        self.size_bytes += len(chunk)
        if is_over:
            return
        self._kept.write(chunk)
        self.kept_bytes = self.size_bytes
        if self.size_bytes > limit_bytes:
            self.kept_bytes = min(self.size_bytes, OVERSIZE_KEPT_BYTES)
            self._kept = BytesIO(self._kept.getvalue()[: self.kept_bytes])

    def content(self) -> bytes:
        """Returns what is kept, without a copy."""
        return self._kept.getvalue()


class EngineHandler(Protocol):
    """Is called for everything that the client does, in the order in which it does it."""

    def on_open(self, hostname: str, container_id: str, properties: dict[str, object]) -> None:
        """The client opened the connection. The engine has answered."""

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """The client attached a link. The handler calls `Engine.attach` or `Engine.refuse`, now or later."""

    def on_transfers(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        payloads: list[bytes],
        kind: TransferKind,
    ) -> None:
        """Messages of one kind arrived on one link, in this order."""

    def on_oversize(
        self,
        link: EngineLink,
        delivery: Delivery,
        size_bytes: int,
        settled: bool,  # noqa: FBT001
        beginning: bytes,
    ) -> None:
        """A message is over the link's limit. Only its beginning is kept, and the rest of it is not read. The handler
        settles it at once."""

    def on_outcomes(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,  # noqa: FBT001
    ) -> None:
        """The client sent the same outcome for these deliveries of one link. If it settled them, the handler settles
        them too. A client may repeat an outcome, and may settle later than it sends the outcome."""

    def on_transaction_part_lost(self, transaction_id: bytes) -> None:
        """The client sent or settled something in a transaction that cannot be processed, because the link, the
        session or the delivery is gone."""

    def on_flow(self, link: EngineLink) -> None:
        """Credit, drain or the session window changed on a link on which the broker sends."""

    def on_detach(self, link: EngineLink, closed: bool) -> None:  # noqa: FBT001
        """The client detached a link. The engine answers, and the link is freed."""

    def on_detach_confirmed(self, link: EngineLink) -> None:
        """The client has answered the broker's detach, or has ended the session. Not called for links that end with
        the connection."""

    def on_session_end(self, links: list[EngineLink]) -> None:
        """A session ended, and these links with it."""

    def on_session_error(self, condition: str, description: str) -> None:
        """The broker ended a session for a violation in it. `on_session_end` was called for its links."""

    def on_close(self) -> None:
        """The client closed the connection. The engine answers."""

    def on_transport_error(self, condition: str, description: str) -> None:
        """The client violated the protocol or was idle for too long. The connection is finished."""
