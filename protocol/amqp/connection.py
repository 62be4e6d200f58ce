"""One client connection, without IO: bytes in, commands out; effects in, bytes out.

Owns the SASL preamble, the engine, who the client is and which links it has; routes what the engine
reports to the link it concerns. What a link means is in `links.py`, `cbs.py`, `management.py` and
`coordinator.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import structlog

from broker.core.commands import AttachReceiver, AttachSender, Detach, ReceiveMode, SessionRequest
from broker.core.errors import (
    BrokerError,
    EntityNotFound,
    InvalidField,
    NotImplementedHere,
    QuotaExceeded,
    Unauthorized,
)
from protocol.amqp.addresses import Address, NodeKind, parse
from protocol.amqp.browsing import BrowsingLink
from protocol.amqp.cbs import CbsNode
from protocol.amqp.coordinator import CoordinatorLink
from protocol.amqp.engine import Engine
from protocol.amqp.links import SESSION_FILTER, ClientReceiver, ClientSender
from protocol.amqp.management import ManagementNode
from protocol.amqp.mapping import wire_error
from protocol.amqp.permits import Permits
from protocol.amqp.requests import Request, RequestLink, ResponseLink
from protocol.amqp.sasl import SaslServer
from protocol.identity import LISTEN, NEVER_MS, SEND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.commands import Command, Peer
    from config.limits import Limits
    from protocol.amqp.attach import Attach
    from protocol.amqp.engine import Delivery, EngineLink, TransferKind
    from protocol.amqp.outcomes import Outcome
    from protocol.identity import Identity

log = structlog.get_logger("peeklock.amqp")

SETTLED_MODE = 1
SESSION_WAIT_DEFAULT_MS = 65_000
NON_EXCLUSIVE_SESSION_FILTER = "com.microsoft:non-exclusive-session-filter:list"
SELECTORS = frozenset(
    {
        0x0000468C00000003,
        0x0000468C00000004,
        "apache.org:no-local-filter:list",
        "apache.org:selector-filter:string",
    }
)
"""Filters of generic clients, by descriptor: ignored, they would give a client others' messages."""


class ClientLink(Protocol):
    """What every kind of link answers to."""

    def on_detach(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a connection needs of the server it runs in."""

    enter: Callable[[str], Callable[[Command], None]]
    """How commands reach a namespace."""
    touch: Callable[[], None]
    """There is something to write."""
    wake_at: Callable[[int], None]
    """Have `check_permits` called when the broker's clock gets there, and not before."""
    identity: Identity
    now_ms: Callable[[], int]
    limits: Limits
    container_id: str
    idle_timeout_ms: int
    peer_name: str = ""


class Connection:
    """The broker's side of one AMQP connection."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._limits = surroundings.limits
        self._sasl: SaslServer | None = SaslServer(self._authenticate)
        self._engine = Engine(
            self,
            container_id=surroundings.container_id,
            max_frame_size_bytes=self._limits.frame_max_bytes,
            idle_timeout_ms=surroundings.idle_timeout_ms,
            max_message_size_bytes=self._limits.message_max_bytes,
        )
        self._output = b""
        self._failed = False
        self._disowned = False
        self._permits = Permits(
            surroundings.identity,
            surroundings.now_ms,
            tokens_max=self._limits.links_per_connection_max,
            authorization_timeout_ms=self._limits.authorization_timeout_ms,
        )
        self._run: Callable[[Command], None] | None = None
        """Into the connection's namespace, once something has to be done there."""
        self._peers: dict[EngineLink, Any] = {}
        self._detached: WeakSet[ClientReceiver] = WeakSet()
        """Receivers whose links are gone but not their locks, which keep them alive."""
        self._responses: list[ResponseLink] = []
        self._management: dict[str, ManagementNode] = {}
        self._cbs = CbsNode(self._permits, self._grants_changed, self._respond)
        self.opened = False
        """True once the client has opened: from then on the engine watches its idleness."""

    # --- towards the socket --------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._sasl is not None:
            step = self._sasl.feed(data)
            self._output += step.output
            self._failed = step.failed
            if step.rest is None or step.failed:
                return
            self._sasl = None
            data = step.rest
        if data:
            self._engine.feed(data)

    def take_output(self) -> bytes:
        """Bytes for the client."""
        if self._output:
            output, self._output = self._output, b""
            return output + (b"" if self._sasl else self._engine.take_output())
        return b"" if self._sasl else self._engine.take_output()

    @property
    def finished(self) -> bool:
        """True when the socket can be closed once its output is written."""
        return self._failed or self._engine.finished

    def tick(self, now_ms: int) -> int:
        """Mind the idle time-out; when to call again, 0 for never."""
        return self._engine.tick(now_ms)

    def pause(self) -> None:
        """The socket takes no more for now."""
        for peer in self._peers.values():
            if isinstance(peer, ClientReceiver):
                peer.pause()

    def resume(self) -> None:
        """The socket takes more again."""
        for peer in self._peers.values():
            if isinstance(peer, ClientReceiver):
                peer.resume()

    def close(self, error: BrokerError) -> None:
        """The broker ends the connection and says why."""
        self._engine.close(wire_error(error, operation="close connection"))

    def disown(self) -> None:
        """The core has forgotten this connection's links: nothing need be told it any more."""
        self._peers.clear()
        self._responses.clear()
        self._disowned = True

    def lost(self) -> None:
        """The socket is gone, and with it every link."""
        self._drop_everything()
        self._engine.connection_lost()

    @property
    def link_count(self) -> int:
        """Links attached at present."""
        return len(self._peers)

    # --- who the client is ---------------------------------------------------------------------

    def _authenticate(self, mechanism: str, user: str | None, password: str | None) -> bool:
        if mechanism != "PLAIN" or self._permits.authenticate(user or "", password or ""):
            return True
        log.info("sasl.refused", user=user, client=self._surroundings.peer_name)
        return False

    def _grants_changed(self, fewer: bool) -> None:
        if fewer:
            self.check_permits()
        else:
            self._watch_permits()

    def check_permits(self) -> None:
        """End links that rest on nothing any more, and a client that never put a token."""
        for link, error in self._permits.lapsed():
            self._end(link, error)
        if self._permits.is_overdue:
            timeout_s = self._limits.authorization_timeout_ms // 1000
            self.close(Unauthorized(f"No token was put within {timeout_s} seconds."))
            self._failed = True
        self._watch_permits()
        self._surroundings.touch()

    def _watch_permits(self) -> None:
        at_ms = self._permits.next_check_ms()
        if at_ms < NEVER_MS and not self._failed:
            self._surroundings.wake_at(at_ms)

    # --- from the engine -----------------------------------------------------------------------

    def on_open(self, hostname: str, container_id: str, properties: Mapping[str, object]) -> None:
        """The client introduced itself."""
        self.opened = True
        log.debug(
            "connection.opened",
            client=self._surroundings.peer_name,
            hostname=hostname,
            container=container_id,
            product=properties.get("product"),
        )
        try:
            self._permits.open(hostname)
        except BrokerError as error:
            self.close(error)
        self._watch_permits()

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """The client wants a link."""
        try:
            if len(self._peers) >= self._limits.links_per_connection_max:
                raise QuotaExceeded("This connection has too many links.")
            peer = self._attach(link, attach)
        except BrokerError as error:
            address = attach.target_address if attach.is_receiver else attach.source_address
            self._engine.refuse(link, wire_error(error, entity=address or "", operation="attach"))
        else:
            link.context = peer
            self._peers[link] = peer
        self._surroundings.touch()

    def on_transfers(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        payloads: list[bytes],
        kind: TransferKind,
    ) -> None:
        """Messages for a node of ours."""
        if link.context is not None:
            link.context.on_transfers(deliveries, payloads, kind)

    def on_oversize(
        self, link: EngineLink, delivery: Delivery, size_bytes: int, settled: bool
    ) -> None:
        """A message over every limit."""
        if link.context is not None:
            link.context.on_oversize(delivery, size_bytes, settled)
            self._surroundings.touch()

    def on_outcomes(
        self, link: EngineLink, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """What became of messages we sent."""
        if link.context is not None:
            link.context.on_outcomes(deliveries, outcome, settled)

    def on_flow(self, link: EngineLink) -> None:
        """Credit for messages we send."""
        if link.context is not None:
            link.context.on_flow()

    def on_detach(self, link: EngineLink, closed: bool) -> None:
        """The client is done with a link, whether it says closed or only detached."""
        del closed
        self._forget([link])
        if link.context is not None:
            link.context.on_detach()

    def on_gone(self, link: EngineLink) -> None:
        """A link that was refused or ended by us: the core has let go of it already."""
        self._forget([link])

    def on_session_end(self, links: list[EngineLink]) -> None:
        """The client ended an AMQP session and all its links."""
        peers = [link.context for link in links if link.context is not None]
        self._forget(links)
        self._drop(peers, connection_lost=False)

    def on_close(self) -> None:
        """The client says goodbye: its locks are given up as with a lost connection."""
        self._drop_everything()

    def on_transport_error(self, condition: str, description: str) -> None:
        """The client broke the protocol, or its bytes ended in the middle of a frame.

        One that has no links left is on its way out, and some do not mind their manners: the
        Python SDK detaches links of a session it has just ended.
        """
        say = log.info if self._peers else log.debug
        say(
            "connection.failed",
            client=self._surroundings.peer_name,
            condition=condition,
            reason=description,
        )

    # --- links ---------------------------------------------------------------------------------

    def _attach(self, link: EngineLink, attach: Attach) -> ClientLink:
        if attach.is_receiver and attach.target_is_coordinator:
            self._permits.rest(link, (None, None))
            return self._attach_coordinator(link)
        text = attach.target_address if attach.is_receiver else attach.source_address
        if attach.dynamic:
            raise NotImplementedHere(
                "Dynamic nodes are not offered: create a queue and name it as the address."
            )
        if not text:
            raise EntityNotFound("")
        address = parse(text)
        if address.kind is NodeKind.ENTITY:
            if attach.is_receiver:
                return self._attach_sender(link, attach, address.path)
            _check_filters(attach)
            if attach.copies:
                return self._attach_browser(link, attach, address.path)
            return self._attach_receiver(link, attach, address.path)
        if address.kind is NodeKind.MANAGEMENT:
            self._permits.rest(link, (None, _management(address.path)))
        if not attach.is_receiver:
            return self._attach_responses(link, attach, address)
        if address.kind is NodeKind.CBS:
            return self._attach_requests(link, address, self._cbs.handle)
        return self._attach_requests(link, address, self._management_node(address.path).handle)

    def _attach_sender(self, link: EngineLink, attach: Attach, path: str) -> ClientSender:
        via = attach.properties.get("com.microsoft:transfer-destination-address")
        destination = None if via is None else parse(str(via)).path
        paths = [path] if destination is None else [path, destination]
        self._permits.rest(link, *((SEND, one) for one in paths))
        peer = ClientSender(
            self._engine,
            link,
            path,
            self._submit,
            self._surroundings.touch,
            self._limits,
        )
        self._submit(AttachSender(peer, path, destination))
        return peer

    def _attach_receiver(self, link: EngineLink, attach: Attach, path: str) -> ClientReceiver:
        self._permits.rest(link, (LISTEN, path))
        session, descriptor = self._session_request(attach)
        presettled = attach.snd_settle_mode == SETTLED_MODE
        peer = ClientReceiver(
            self._engine,
            link,
            path,
            self._submit,
            self._surroundings.touch,
            presettled=presettled,
            session_filter_descriptor=descriptor,
        )
        mode = ReceiveMode.RECEIVE_AND_DELETE if presettled else ReceiveMode.PEEK_LOCK
        self._submit(AttachReceiver(peer, path, mode, session))
        return peer

    def _attach_browser(self, link: EngineLink, attach: Attach, path: str) -> BrowsingLink:
        self._permits.rest(link, (LISTEN, path))
        session, _ = self._session_request(attach)
        peer = BrowsingLink(
            self._engine,
            link,
            path,
            self._submit,
            self._surroundings.touch,
            presettled=attach.snd_settle_mode == SETTLED_MODE,
            session_id=session.session_id if session is not None else None,
        )
        peer.begin()
        return peer

    def _session_request(self, attach: Attach) -> tuple[SessionRequest | None, object | None]:
        """The session a receiver asks for, and the descriptor it wrapped it in, if any."""
        wanted = attach.filter.get(SESSION_FILTER)
        if wanted is None:
            return None, None
        session_id = wanted.value
        if session_id is not None and not isinstance(session_id, str):
            raise InvalidField("The session filter must hold a string, or null for any session.")
        timeout_ms = attach.properties.get("com.microsoft:timeout")
        if not isinstance(timeout_ms, int) or timeout_ms <= 0:
            timeout_ms = SESSION_WAIT_DEFAULT_MS
        request = SessionRequest(None if session_id is None else str(session_id), int(timeout_ms))
        return request, wanted.descriptor

    def _attach_coordinator(self, link: EngineLink) -> CoordinatorLink:
        peer = CoordinatorLink(self._engine, link, self._submit, self._surroundings.touch)
        peer.attach(self._limits.message_max_bytes)
        return peer

    def _attach_requests(
        self, link: EngineLink, node: Address, handle: Callable[[Request], None]
    ) -> RequestLink:
        peer = RequestLink(self._engine, link, node, handle, self._surroundings.touch)
        peer.attach(self._limits.message_max_bytes)
        return peer

    def _attach_responses(self, link: EngineLink, attach: Attach, node: Address) -> ResponseLink:
        peer = ResponseLink(
            self._engine,
            link,
            node,
            attach.target_address,
            self._surroundings.touch,
            presettled=attach.snd_settle_mode == SETTLED_MODE,
        )
        peer.attach()
        self._responses.append(peer)
        return peer

    def _management_node(self, path: str) -> ManagementNode:
        node = self._management.get(path.lower())
        if node is None:
            node = ManagementNode(path, self._submit, self._respond, self._authorize_request)
            self._management[path.lower()] = node
        return node

    def _authorize_request(self, claim: str, path: str) -> None:
        """Some clients put a token for the node of an entity, and not for the entity."""
        self._permits.authorize(claim, _management(path))

    def _respond(self, request: Request, response: bytes) -> None:
        """Answer on the response link of the same node: by AMQP session, else by reply address.

        `reply-to` alone is not enough: clients leave it out, reuse it, or put a link name in it.
        """
        node = request.link.node
        candidates = [link for link in self._responses if link.node == node]
        in_session = [link for link in candidates if link.link.session is request.link.link.session]
        named = [
            link
            for link in in_session or candidates
            if request.reply_to and request.reply_to in (link.address, link.link.name)
        ]
        chosen = named or in_session or candidates
        if chosen:
            chosen[-1].respond(response)
        else:
            log.info("response.dropped", node=node, client=self._surroundings.peer_name)

    # --- comings and goings --------------------------------------------------------------------

    def _submit(self, command: Command) -> None:
        if self._disowned:
            return
        if self._run is None:
            self._run = self._surroundings.enter(self._permits.settle_namespace())
        self._run(command)

    def _end(self, link: EngineLink, error: BrokerError) -> None:
        """End a link from our side, on a connection that lives on."""
        peer = self._peers.get(link)
        self._forget([link])
        path = getattr(peer, "path", "")
        self._engine.detach(link, wire_error(error, entity=path, operation="link ended"))
        if peer is not None:
            peer.on_detach()

    def _forget(self, links: list[EngineLink]) -> None:
        for link in links:
            self._permits.forget(link)
            peer = self._peers.pop(link, None)
            if isinstance(peer, ResponseLink):
                self._responses.remove(peer)
            elif isinstance(peer, ClientReceiver):
                self._detached.add(peer)

    def _drop_everything(self) -> None:
        """The connection is over, and with it what was locked through it."""
        self._drop([*self._peers.values(), *self._detached], connection_lost=True)
        self._peers.clear()
        self._detached.clear()
        self._responses.clear()

    def _drop(self, peers: list[Peer], *, connection_lost: bool) -> None:
        """Tell the core of message-carrying links that are gone."""
        gone = [
            peer
            for peer in peers
            if isinstance(peer, ClientSender | ClientReceiver | CoordinatorLink)
        ]
        if gone:
            self._submit(Detach(gone, connection_lost))


def _check_filters(attach: Attach) -> None:
    if NON_EXCLUSIVE_SESSION_FILTER in attach.filter:
        raise NotImplementedHere("Non-exclusive sessions are not offered.")
    if any(wanted.descriptor in SELECTORS for wanted in attach.filter.values()):
        raise NotImplementedHere(
            "A receiver has no selector here: make a subscription with a rule that selects."
        )


def _management(path: str) -> str:
    return f"{path}/$management".lstrip("/")
