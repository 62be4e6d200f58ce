"""One client connection, without IO: bytes in, commands out; effects in, bytes out.

Owns the SASL preamble, the engine, who the client is and which links it has; routes what the engine
reports to the link it concerns. What a client can attach to is in `link_factory.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import structlog

from broker.core.contract.commands import Declare, Detach, DoomTransaction
from broker.core.contract.errors import (
    BrokerError,
    LeftOutOfTransaction,
    QuotaExceeded,
    Unauthorized,
)
from config.model.limits import RELAXED
from protocol.amqp.authorization import ConnectionAuthorization
from protocol.amqp.engine.engine import Engine
from protocol.amqp.engine.outcomes import Transactional
from protocol.amqp.engine.states import ConnectionEvent, ConnectionLifecycle, ConnectionState
from protocol.amqp.held_memory import HeldMemory, MemoryBudgets
from protocol.amqp.links.link_context import LinkContext
from protocol.amqp.links.receiving_link import ReceivingLink
from protocol.amqp.links.sending_link import SendingLink
from protocol.amqp.nodes.coordinator import CoordinatorLink
from protocol.amqp.nodes.link_factory import LinkFactory
from protocol.amqp.nodes.management import ManagementNode
from protocol.amqp.nodes.request_response import ResponseLink
from protocol.amqp.outcome_mapping import wire_error
from protocol.amqp.sasl import SaslServer
from protocol.identity import NEVER_MS
from protocol.repeated_events import repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.core.contract.commands import Command
    from config.model.limits import Limits
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.engine import Delivery, EngineLink, TransferKind, WireError
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.identity import Identity
    from protocol.sources import ProtocolSources

log = structlog.get_logger("peeklock.amqp")

KNOWN_TO_CORE = SendingLink | ReceivingLink | CoordinatorLink | ManagementNode
"""Who sends, receives or locks messages, and so must not go in silence."""


@dataclass(frozen=True, slots=True)
class ConnectionServices:
    """What a connection needs of the server it runs in."""

    enter: Callable[[str], Callable[[Command], None]]
    """How commands reach a namespace."""
    touch: Callable[[], None]
    """There is something to write."""
    wake_at: Callable[[int], None]
    """Have `check_authorization` called when the broker's clock gets there, and not before."""
    identity: Identity
    has_entity: Callable[[str, str], bool]
    """(namespace, path): whether a link to this path could find an entity there or below it."""
    now_ms: Callable[[], int]
    limits: Limits
    container_id: str
    idle_timeout_ms: int
    sources: ProtocolSources
    peer_name: str = ""
    memory: MemoryBudgets = field(default_factory=lambda: MemoryBudgets(RELAXED))
    """What this connection may make the broker hold, and all of them together."""


BATCH_ENVELOPE_MAX_BYTES = 64 * 1024
"""What a transfer may have on top of the largest message. Entities refuse a larger message to the
byte; this only bounds memory, and must let the envelope pass that the Python SDK puts around a batch
which it has filled to the limit."""


def _discard(command: Command) -> None:
    """Drops a command, because the core does not know this connection any more."""
    del command


class Connection:
    """The broker's side of one AMQP connection."""

    def __init__(self, surroundings: ConnectionServices) -> None:
        self._services = surroundings
        self._limits = surroundings.limits
        self._memory = HeldMemory(
            surroundings.memory, self._evict, needs_token=surroundings.identity.strict
        )
        self._sasl: SaslServer | None = SaslServer(self._authenticate)
        """None once AMQP follows."""
        self._lifecycle = ConnectionLifecycle(ConnectionState.SASL)
        self._engine = Engine(
            self,
            container_id=surroundings.container_id,
            max_frame_size_bytes=self._limits.frame_max_bytes,
            idle_timeout_ms=surroundings.idle_timeout_ms,
            max_message_size_bytes=self._limits.message_max_bytes + BATCH_ENVELOPE_MAX_BYTES,
            memory=self._memory,
            links_max=2 * self._limits.links_per_connection_max,
            lifecycle=self._lifecycle,
        )
        self._output = b""
        self._authorization = ConnectionAuthorization(
            surroundings.identity,
            surroundings.now_ms,
            tokens_max=self._limits.links_per_connection_max,
            authorization_timeout_ms=self._limits.authorization_timeout_ms,
        )
        self._run: Callable[[Command], None] | None = None
        """Into the connection's namespace, once something has to be done there."""
        self._waiting: list[Declare] = []
        """What goes before the first thing to be done there."""
        self._peers: dict[EngineLink, Any] = {}
        self._detached: WeakSet[ReceivingLink] = WeakSet()
        """Receivers whose links are gone but not their locks, which keep them alive."""
        self._nodes = LinkFactory(
            LinkContext(
                self._engine, self._submit, surroundings.touch, self._limits, surroundings.sources
            ),
            self._authorization,
            self._submit_later,
            self._grants_changed,
            surroundings.has_entity,
        )
        self._container_id = ""
        """The client's."""

    # --- towards the socket --------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Takes bytes from the client."""
        if self._lifecycle.is_failed:
            return
        if self._sasl is not None:
            step = self._sasl.feed(data)
            self._output += step.output
            if step.failed:
                self._lifecycle.apply(ConnectionEvent.FAIL)
            if step.rest is None or step.failed:
                return
            self._lifecycle.apply(ConnectionEvent.SASL_DONE)
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
        """Whether the socket can be closed once the output is written."""
        return self._engine.finished

    @property
    def opened(self) -> bool:
        """Whether the client has opened the connection. From then on the engine watches its idle time."""
        return self._lifecycle.is_past_open

    @property
    def client_may_write(self) -> bool:
        """Whether more bytes of the client may be on their way, because it has not closed."""
        return self._lifecycle.client_may_send

    def tick(self, now_ms: int) -> int:
        """Mind the idle time-out; when to call again, 0 for never."""
        return self._engine.tick(now_ms)

    def pause(self) -> None:
        """The socket takes no more for now."""
        self._nodes.browsing.pause()
        for peer in self._peers.values():
            if isinstance(peer, ReceivingLink | ResponseLink):
                peer.pause()

    def resume(self) -> None:
        """The socket takes more again."""
        for peer in list(self._peers.values()):
            if isinstance(peer, ReceivingLink | ResponseLink):
                peer.resume()
        self._nodes.browsing.resume()

    def close(self, error: BrokerError) -> None:
        """The broker closes the connection in order and says why."""
        self._drop_everything(connection_lost=False)
        self._engine.close(self._wire_error(error, operation="close connection"))

    def _evict(self) -> None:
        """Others need the memory that this client makes us hold, and nobody holds more."""
        log.debug("connection.evicted", client=self._services.peer_name)
        self._close_at_once(QuotaExceeded(self._memory.refusal))
        self._services.touch()

    def _close_at_once(self, error: BrokerError) -> None:
        """Closes the connection without waiting for the client's close."""
        self.close(error)
        if not self.finished:
            self._lifecycle.apply(ConnectionEvent.FAIL)

    def detach_from_core(self) -> None:
        """The core has dropped the links of this connection, so it is not told of their end."""
        for link in self._peers:
            link.context = None
        self._peers.clear()
        self._nodes.clear()
        self._run = _discard

    def lost(self) -> None:
        """The socket is gone. What was not closed before is broken off: silence beyond the idle
        time-out and a broken protocol end here too."""
        self._drop_everything(connection_lost=True)
        self._engine.connection_lost()
        # Break reference cycles: the garbage collector runs rarely here, and clients may be many.
        self._nodes.connection_lost()
        self._memory.end()
        self._sasl = None

    @property
    def link_count(self) -> int:
        """Links attached at present."""
        return len(self._peers)

    # --- who the client is ---------------------------------------------------------------------

    def _authenticate(self, mechanism: str, user: str | None, password: str | None) -> bool:
        if mechanism != "PLAIN" or self._authorization.authenticate(user or "", password or ""):
            return True
        client = self._services.peer_name
        repeats.note(log.info, "sasl.refused", None, user=user, client=client)
        return False

    def _grants_changed(self, fewer: bool) -> None:
        if self._authorization.is_authenticated:
            self._memory.trust()
        if fewer:
            self.check_authorization()
        else:
            self._schedule_authorization_check()

    def check_authorization(self) -> None:
        """End links that rest on nothing any more, and a client that never put a token."""
        for link, error in self._authorization.links_without_claims():
            self._end(link, error)
        if self._authorization.is_overdue:
            timeout_s = self._limits.authorization_timeout_ms // 1000
            self._close_at_once(Unauthorized(f"No token was put within {timeout_s} seconds."))
        self._schedule_authorization_check()
        self._services.touch()

    def _schedule_authorization_check(self) -> None:
        at_ms = self._authorization.next_check_ms()
        if at_ms < NEVER_MS and not self.finished:
            self._services.wake_at(at_ms)

    # --- from the engine -----------------------------------------------------------------------

    def on_open(self, hostname: str, container_id: str, properties: Mapping[str, object]) -> None:
        """The client introduced itself."""
        self._container_id = container_id
        log.debug(
            "connection.opened",
            client=self._services.peer_name,
            hostname=hostname,
            container=container_id,
            product=properties.get("product"),
        )
        try:
            self._nodes.open(properties)
            self._authorization.open(hostname)
            if self._authorization.is_authenticated:
                self._memory.trust()
        except BrokerError as error:
            self.close(error)
        self._schedule_authorization_check()

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """The client wants a link."""
        link.host = self._authorization.hostname
        link.container_id = self._container_id
        try:
            if len(self._peers) >= self._limits.links_per_connection_max:
                raise QuotaExceeded("This connection has too many links.")
            peer = self._nodes.attach(link, attach)
        except BrokerError as error:
            address = attach.target_address if attach.is_receiver else attach.source_address
            refusal = self._wire_error(
                error, entity=address or "", operation="attach", host=link.host
            )
            self._engine.refuse(link, refusal)
        else:
            link.context = peer
            self._peers[link] = peer
        self._services.touch()

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
        self, link: EngineLink, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """A message over its link's limit."""
        if link.context is not None:
            link.context.on_oversize(delivery, size_bytes, settled, beginning)
            self._services.touch()

    def on_outcomes(
        self, link: EngineLink, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """What became of messages we sent."""
        if link.context is not None:
            link.context.on_outcomes(deliveries, outcome, settled)
        elif isinstance(outcome, Transactional):
            self.on_transaction_part_lost(outcome.transaction_id)

    def on_transaction_part_lost(self, transaction_id: bytes) -> None:
        """Something was sent or settled in a transaction, and nobody is there to take it."""
        self._submit(DoomTransaction(transaction_id, self._engine, LeftOutOfTransaction()))

    def on_flow(self, link: EngineLink) -> None:
        """Credit for messages we send."""
        if link.context is not None:
            link.context.on_flow()

    def on_detach(self, link: EngineLink, closed: bool) -> None:
        """The client is done with a link, whether it says closed or only detached."""
        del closed
        peer = link.context
        self._forget([link])
        if peer is not None:
            peer.on_detach()

    def on_detach_confirmed(self, link: EngineLink) -> None:
        """A link that was refused or ended by us: the core has let go of it already."""
        self._forget([link])

    def on_session_end(self, links: list[EngineLink]) -> None:
        """The client ended an AMQP session and all its links."""
        peers = [link.context for link in links if link.context is not None]
        self._forget(links)
        self._drop(peers, connection_lost=False)

    def on_session_error(self, condition: str, description: str) -> None:
        """A session was ended for what the client did in it."""
        repeats.note(
            log.warning,
            "session.failed",
            condition,
            client=self._services.peer_name,
            condition=condition,
            reason=description,
        )

    def on_close(self) -> None:
        """The client closed the connection in order: its locks stand, as those of detached links
        do, so that another connection can settle them by token."""
        self._drop_everything(connection_lost=False)

    def on_transport_error(self, condition: str, description: str) -> None:
        """The client broke the protocol, or its bytes ended in the middle of a frame.

        One that has no links left is on its way out, and nobody misses anything.
        """
        say = log.warning if self._peers else log.debug
        repeats.note(
            say,
            "connection.failed",
            (condition, bool(self._peers)),
            client=self._services.peer_name,
            condition=condition,
            reason=description,
        )

    def _wire_error(
        self, error: BrokerError, *, entity: str = "", operation: str = "", host: str = ""
    ) -> WireError:
        refusals = self._services.sources.refusals
        return wire_error(refusals.refuse(error, entity=entity, operation=operation, host=host))

    # --- comings and goings --------------------------------------------------------------------

    def _submit(self, command: Command) -> None:
        if self._run is None and isinstance(command, Detach):
            # The core knows none of them: what they have declared is still here.
            self._waiting = [one for one in self._waiting if one.peer not in command.peers]
            return
        if self._run is None and isinstance(command, DoomTransaction):
            # It was promised only, and is as good as unknown from now on.
            doomed = command.transaction_id
            self._waiting = [one for one in self._waiting if one.transaction_id != doomed]
            return
        if self._run is None:
            self._run = self._services.enter(self._authorization.fix_namespace())
            for earlier in self._waiting:
                self._run(earlier)
            self._waiting.clear()
        self._run(command)

    def _submit_later(self, command: Declare) -> bool:
        """Submit with what comes next, if the client has no token yet that is asked for, or no
        namespace is selected; else say False."""
        has_token = self._authorization.has_any
        if self._run is not None or (has_token and self._authorization.namespace is not None):
            return False
        limits = self._limits
        if len(self._waiting) >= (
            limits.transactions_per_connection_max
            if has_token
            else limits.transactions_without_token_max
        ):
            return False
        self._waiting.append(command)
        return True

    def _end(self, link: EngineLink, error: BrokerError) -> None:
        """End a link from our side, on a connection that lives on."""
        peer = self._peers.get(link)
        self._forget([link])
        path = getattr(peer, "path", "")
        self._engine.detach(link, self._wire_error(error, entity=path, operation="link ended"))
        if peer is not None:
            peer.on_detach()

    def _forget(self, links: list[EngineLink]) -> None:
        for link in links:
            self._authorization.forget(link)
            peer = self._peers.pop(link, None)
            link.context = None
            self._nodes.forget(peer)
            if isinstance(peer, ReceivingLink):
                self._detached.add(peer)

    def _drop_everything(self, *, connection_lost: bool) -> None:
        """The connection is over; only if it is lost, so is what was locked through it."""
        requesters = self._nodes.requesters if self._run is not None else ()
        gone = [*self._peers.values(), *self._detached, *requesters]
        self._drop(gone, connection_lost=connection_lost)
        for link in self._peers:
            link.context = None
        self._peers.clear()
        self._detached.clear()
        self._nodes.clear()

    def _drop(self, peers: Sequence[object], *, connection_lost: bool) -> None:
        """Tell the core who is gone of those that it knows."""
        gone = [peer for peer in peers if isinstance(peer, KNOWN_TO_CORE)]
        if gone:
            self._submit(Detach(gone, connection_lost))
