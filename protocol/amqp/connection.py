"""One client connection, without IO: bytes in, commands out; effects in, bytes out.

Owns the SASL layer, the engine and the client's authorization. Passes what the engine reports to the link that it
concerns. What a client can attach to is in `link_factory.py`, and what becomes of its links in `attached_links.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.commands import SetRollbackOnly
from broker.core.contract.errors import (
    BrokerError,
    IncompleteTransaction,
    QuotaExceeded,
    Unauthorized,
)
from protocol.amqp.attached_links import AttachedLinks
from protocol.amqp.authorization import ConnectionAuthorization
from protocol.amqp.engine.engine import Engine
from protocol.amqp.engine.outcomes import Transactional
from protocol.amqp.engine.states import ConnectionEvent, ConnectionLifecycle, ConnectionState
from protocol.amqp.faults.connection_faults import ConnectionFaults
from protocol.amqp.faults.opening_faults import OpeningFaults
from protocol.amqp.held_memory import HeldMemory
from protocol.amqp.links.browsing_link import BrowsingLink
from protocol.amqp.links.link_context import ClientView, LinkContext
from protocol.amqp.links.receiving_link import ReceivingLink
from protocol.amqp.links.sending_link import SendingLink
from protocol.amqp.namespace_commands import NamespaceCommands
from protocol.amqp.nodes.link_factory import LinkFactory
from protocol.amqp.sasl import SaslServer
from protocol.faults.conditions import ExpiredToken
from protocol.identity import NEVER_MS
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.amqp.connection_services import ConnectionServices
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.engine import Delivery, EngineLink, TransferKind
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.links.link_view import LinkView

log = structlog.get_logger("peeklock.amqp")

BATCH_ENVELOPE_MAX_BYTES = 64 * 1024
"""How much larger than the largest message a transfer may be. This only bounds memory: entities check the exact
size of a message. The Python SDK fills a batch to the limit and then puts an envelope around it."""


class Connection:
    """The broker's side of one AMQP connection."""

    def __init__(self, services: ConnectionServices) -> None:
        self._services = services
        self._limits = services.limits
        self._memory = HeldMemory(
            services.memory, self._evict, needs_token=services.identity.strict
        )
        self._sasl: SaslServer | None = SaslServer(self._authenticate)
        """None once AMQP follows."""
        self._lifecycle = ConnectionLifecycle(ConnectionState.SASL)
        self._engine = Engine(
            self,
            container_id=services.container_id,
            max_frame_size_bytes=self._limits.frame_max_bytes,
            idle_timeout_ms=services.idle_timeout_ms,
            max_message_size_bytes=self._limits.message_max_bytes + BATCH_ENVELOPE_MAX_BYTES,
            memory=self._memory,
            links_max=2 * self._limits.links_per_connection_max,
            lifecycle=self._lifecycle,
        )
        self._output = b""
        authorization = self._authorization = ConnectionAuthorization(
            services.identity,
            services.now_ms,
            tokens_max=self._limits.links_per_connection_max,
            authorization_timeout_ms=self._limits.authorization_timeout_ms,
        )
        self._refusals = services.sources.refusals.of_namespace(
            lambda: authorization.expected_namespace
        )
        self._commands = NamespaceCommands(services.enter, self._authorization, self._limits)
        self._faults = ConnectionFaults(
            services.faults, self._authorization, services.drop, self._expire_tokens
        )
        self.client = ClientView(services.connection_id, services.peer_name)
        self._context = LinkContext(
            self._engine,
            self._commands.submit,
            services.touch,
            self._limits,
            replace(services.sources, refusals=self._refusals),
            self.client,
            self._faults,
        )
        self._nodes = LinkFactory(
            self._context,
            self._authorization,
            self._commands.submit_later,
            self._grants_changed,
            services.has_entity,
            services.browsing_slots,
        )
        self._links = AttachedLinks(self._context, self._authorization, self._commands, self._nodes)
        self._opening = OpeningFaults(
            self._faults, self, self._engine, self._commands.submit, services.touch
        )

    # --- for the transport -----------------------------------------------------------------------

    def receive_data(self, data: bytes) -> bool:
        """Takes bytes from the client. Returns False if there is nothing to write after them."""
        if self._lifecycle.is_failed:
            return True
        if self._opening.holds_input(data):
            return True
        if self._sasl is not None:
            step = self._sasl.feed(data)
            self._output += step.output
            if step.failed:
                self._lifecycle.apply(ConnectionEvent.FAIL)
            if step.rest is None or step.failed:
                return True
            self._lifecycle.apply(ConnectionEvent.SASL_DONE)
            self._sasl = None
            data = step.rest
        # Faults may do anything to a link.
        return not data or self._engine.feed(data) or self._faults.registry.is_used

    def take_output(self) -> bytes:
        """Returns the bytes to write to the client."""
        if self._opening.holds_output:
            return b""
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
        """Checks the idle timeouts. Returns when to call again, or 0 for never."""
        return self._engine.tick(now_ms)

    @property
    def incomplete_input(self) -> bytes:
        """The beginning of a frame of which the rest has not arrived."""
        return self._engine.incomplete_input if self._sasl is None else self._sasl.incomplete_input

    def output_written(self) -> None:
        """Called when output was written to the socket, and the socket is not full."""
        self._nodes.browsing.output_written()

    def pause(self) -> None:
        """Stops deliveries and responses, because the write buffer of the socket is full."""
        self._nodes.browsing.pause()
        self._links.pause()

    def resume(self) -> None:
        """Continues after `pause`."""
        self._links.resume()
        self._nodes.browsing.resume()

    def close(self, error: BrokerError) -> None:
        """Closes the connection with an error, and detaches its links from the core."""
        self._detach_all(connection_lost=False)
        self._engine.close(self._context.refuse(error, operation="close connection"))

    def has(self, peer: object) -> bool:
        """Returns whether a peer of the core is a link of this connection."""
        return getattr(peer, "connection", None) is self._engine

    def fail(self, error: BrokerError) -> None:
        """Closes the connection with an error because of a bug of the broker. Nobody knows what the client
        has got, so its locks end, as when a connection is lost."""
        self._detach_all(connection_lost=True)
        self._close_at_once(error)

    def _evict(self) -> None:
        """Closes this connection to free memory, because it holds more than any other."""
        log.debug("connection.evicted", client=self._services.peer_name)
        self._close_at_once(QuotaExceeded(self._memory.refusal))
        self._services.touch()

    def _close_at_once(self, error: BrokerError) -> None:
        """Closes the connection without waiting for the client's close."""
        self.close(error)
        if not self.finished:
            self._lifecycle.apply(ConnectionEvent.FAIL)

    def _detach_all(self, *, connection_lost: bool) -> None:
        """Detaches all links from the core. Locks are released only if the connection is lost."""
        self._faults.is_ended = True
        self._links.detach_all(connection_lost=connection_lost)

    def detach_from_core(self) -> None:
        """Removes all links without a `Detach` command, because the core has dropped them."""
        self._links.clear()
        self._commands.discard()

    def lost(self) -> None:
        """Frees everything, because the socket is gone. If the connection was not closed before, its links are
        detached from the core as lost; this includes idle timeouts and violations of the protocol."""
        self._detach_all(connection_lost=True)
        self._engine.connection_lost()
        # Break reference cycles: the garbage collector runs rarely, and clients may be many.
        self._nodes.connection_lost()
        self._faults.connection_lost()
        self._opening.connection_lost()
        self._memory.end()
        self._sasl = None

    @property
    def selected_namespace(self) -> str | None:
        """The namespace that the host name or a key selected, or in which a link was attached. None if there is none
        yet."""
        return self._authorization.namespace

    @property
    def link_count(self) -> int:
        """The number of attached links."""
        return len(self._links)

    @property
    def namespace(self) -> str:
        """The namespace that the client uses, or would use if nothing else selected one."""
        return self._authorization.expected_namespace

    def link_views(self) -> list[LinkView]:
        """Returns its links for the control API."""
        return self._links.views()

    # --- authorization --------------------------------------------------------------------------

    def _authenticate(self, mechanism: str, user: str | None, password: str | None) -> bool:
        if mechanism != "PLAIN" or self._authorization.authenticate(user or "", password or ""):
            return True
        client = self._services.peer_name
        repeated_events.note(log.info, "sasl.refused", None, user=user, client=client)
        return False

    def _credentials_changed(self) -> None:
        self.client.key_name = self._authorization.key_name
        if self._authorization.is_authenticated:
            self._memory.use_authenticated_budget()
        self._opening.count_open(is_known=self._authorization.is_namespace_known)

    def _grants_changed(self, fewer: bool) -> None:
        self._credentials_changed()
        if fewer:
            self.check_authorization()
        else:
            self._schedule_authorization_check()

    def check_authorization(self) -> None:
        """Detaches links whose grants are gone, and closes the connection if no token was put in time."""
        for link, error in self._authorization.links_without_claims():
            self._links.end(link, error)
        if self._authorization.is_overdue:
            timeout_s = self._limits.authorization_timeout_ms // 1000
            self._close_at_once(Unauthorized(f"No token was put within {timeout_s} seconds."))
        self._schedule_authorization_check()
        self._services.touch()

    def _schedule_authorization_check(self) -> None:
        at_ms = self._authorization.next_check_ms()
        if at_ms < NEVER_MS and not self.finished:
            self._services.wake_at(at_ms)

    def _expire_tokens(self) -> None:
        """Drops the tokens of the client and detaches its links to entities, as if the tokens had expired."""
        self._authorization.expire_tokens()
        for link in self._links.of_kind(SendingLink, ReceivingLink, BrowsingLink):
            self._links.end(link, ExpiredToken())
        self._services.touch()

    # --- from the engine -----------------------------------------------------------------------

    def on_open(self, hostname: str, container_id: str, properties: Mapping[str, object]) -> None:
        """Selects the namespace and the permissions of a client that opened the connection."""
        client = self.client
        client.container_id = container_id
        self._faults.container_id = container_id
        client.host = hostname
        product = properties.get("product")
        client.product = None if product is None else str(product)
        client.opened_ms = self._services.sources.real_ms()
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
        except BrokerError as error:
            self.close(error)
        else:
            self._credentials_changed()
        self._schedule_authorization_check()

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """Attaches a link, or does to it what fault rules say."""
        link.host = self._authorization.hostname
        link.container_id = self.client.container_id
        if not self._opening.takes_attach(link, attach):
            self.attach(link, attach)

    def attach(self, link: EngineLink, attach: Attach) -> None:
        """Attaches a link to the node that it names, or refuses it."""
        if link.closed:
            return  # it was delayed, and the client has not waited
        try:
            if len(self._links) >= self._limits.links_per_connection_max:
                raise QuotaExceeded("This connection has too many links.")
            peer = self._nodes.attach(link, attach)
        except BrokerError as error:
            self.refuse_attach(link, attach, error)
        else:
            self._links.add(link, peer)
        self._services.touch()

    def refuse_attach(self, link: EngineLink, attach: Attach, error: BrokerError) -> None:
        """Refuses a link."""
        self._context.refuse_link(link, error, attach.node_address or "", "attach")

    def on_transfers(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        payloads: list[bytes],
        kind: TransferKind,
    ) -> None:
        """Passes messages to their link."""
        if link.context is not None:
            link.context.on_transfers(deliveries, payloads, kind)

    def on_oversize(
        self, link: EngineLink, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """Passes a message that is over its link's limit to the link."""
        if link.context is not None:
            link.context.on_oversize(delivery, size_bytes, settled, beginning)
            self._services.touch()

    def on_outcomes(
        self, link: EngineLink, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """Passes the outcomes of sent messages to their link."""
        if link.context is not None:
            link.context.on_outcomes(deliveries, outcome, settled)
        elif isinstance(outcome, Transactional):
            self.on_transaction_part_lost(outcome.transaction_id)

    def on_transaction_part_lost(self, transaction_id: bytes) -> None:
        """Fails a transaction of which a message or an outcome cannot be processed."""
        self._commands.submit(
            SetRollbackOnly(transaction_id, self._engine, IncompleteTransaction())
        )

    def on_flow(self, link: EngineLink) -> None:
        """Passes a flow to its link."""
        if link.context is not None:
            link.context.on_flow()

    def on_detach(self, link: EngineLink, closed: bool) -> None:
        """Detaches a link from the core. Closing and detaching have the same effect."""
        del closed
        peer = link.context
        self._links.forget([link])
        if peer is not None:
            peer.on_detach()

    def on_detach_confirmed(self, link: EngineLink) -> None:
        """Forgets a link that the broker refused or detached. The core does not know it any more."""
        self._links.forget([link])

    def on_session_end(self, links: list[EngineLink]) -> None:
        """Detaches the links of an AMQP session that the client ended."""
        self._links.detach(links)

    def on_session_error(self, condition: str, description: str) -> None:
        """Logs that a session was ended because the client violated the protocol in it."""
        self._refusals.note("", "session ended", condition, description)
        repeated_events.note(
            log.warning,
            "session.failed",
            condition,
            client=self._services.peer_name,
            condition=condition,
            reason=description,
        )

    def on_close(self) -> None:
        """Detaches all links. As with every detached link, its locks stay until they expire, so that another
        connection can settle them by token."""
        self._detach_all(connection_lost=False)

    def on_transport_error(self, condition: str, description: str) -> None:
        """Logs that the client violated the protocol, or that its bytes ended within a frame. If it has no links,
        nothing was lost, so the level is debug.
        """
        has_links = len(self._links) > 0
        say = log.warning if has_links else log.debug
        if has_links:
            self._refusals.note("", "connection ended", condition, description)
        repeated_events.note(
            say,
            "connection.failed",
            (condition, has_links),
            client=self._services.peer_name,
            condition=condition,
            reason=description,
        )
