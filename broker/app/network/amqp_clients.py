"""All AMQP connections of the broker.

Creates their transports, limits how much may be read before it is committed, and closes them when the
broker stops. `protocol/amqp/connection.py` handles what a client sends.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from broker.app.network.amqp_transport import AmqpTransport
from broker.app.network.shared_reading import SharedReading
from broker.app.network.unread_output import UnreadOutput
from broker.core.contract.errors import BrokerError
from protocol.amqp.browsing_slots import BrowsingSlots
from protocol.amqp.connection import Connection
from protocol.amqp.connection_services import ConnectionServices
from protocol.amqp.held_memory import MemoryBudgets
from protocol.faults.fault_registry import FaultRegistry
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.app.network.frame_views import FrameViews
    from broker.app.runtime.durable_core import DurableCore
    from broker.app.security.access import Access
    from broker.core.contract.effects import Peer
    from config.settings.settings import Settings
    from protocol.sources import ProtocolSources

log = structlog.get_logger("peeklock.clients")

FORCED_CLOSE_TIMEOUT_S = 1.0
"""How long a client may take to answer the close before its socket is closed."""


class ConnectionForced(BrokerError):
    """The broker closes a connection that did nothing wrong."""

    condition = "amqp:connection:forced"
    status = 503


class AmqpClients:
    """Every AMQP connection, over TCP, TLS or WebSocket."""

    def __init__(
        self,
        settings: Settings,
        core: DurableCore,
        access: Access,
        sources: ProtocolSources,
    ) -> None:
        self._idle_timeout_ms = settings.idle_timeout_ms
        self._limits = settings.limits
        self._core = core
        self.touch = core.turns.touch
        """Flushes a transport at the end of the next turn. See `TransportOwner`."""
        self._access = access
        self._sources = sources
        self._container_id = f"peeklock-{sources.new_uuid().hex[:12]}"
        self._transports: dict[AmqpTransport, None] = {}
        """A dict keeps the order, so that a simulation can repeat a run."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._sharing = SharedReading(lambda: core.turns.is_behind)
        self._memory = MemoryBudgets(settings.limits)
        loop = asyncio.get_running_loop()
        self._unread = UnreadOutput(settings.limits.unread_max_bytes, loop.time, loop.call_later)
        self._browsing_slots = BrowsingSlots(loop.call_later)
        self.faults = FaultRegistry(loop.call_later)
        self._paused: list[AmqpTransport] = []
        self._bytes_taken_in = 0
        self._last_connection_id = 0
        self.connections_total = 0
        self._frame_views: FrameViews | None = None
        """None until somebody wants to look at frames."""
        if settings.frames:
            self._frame_views = self.frame_views(settings.frames)

    # --- new connections --------------------------------------------------------------------------------

    def new_transport(self) -> AmqpTransport:
        """Returns a transport for a client whose first bytes are AMQP."""
        timeout_s = self._limits.handshake_timeout_ms / 1000
        transport = AmqpTransport(self, self._connect, timeout_s, self._sharing)
        self._transports[transport] = None
        self._empty.clear()
        self.connections_total += 1
        return transport

    def open_websocket(self, stream: asyncio.Transport) -> AmqpTransport:
        """Returns a transport over a WebSocket, which is an `asyncio.Transport`."""
        transport = self.new_transport()
        transport.begin(stream, "websocket")
        return transport

    def _connect(self, transport: AmqpTransport, peer_name: str) -> Connection | None:
        if len(self._transports) > self._limits.connections_max:
            most = self._limits.connections_max
            repeated_events.note(
                log.warning, "connections.too_many", "amqp", client=peer_name, max=most
            )
            return None
        self._last_connection_id += 1
        connection = Connection(
            ConnectionServices(
                enter=self._core.enter,
                touch=functools.partial(self._core.turns.touch, transport),
                wake_at=lambda at_ms: transport.check_authorization_in(
                    at_ms - self._access.now_ms()
                ),
                identity=self._access.identity,
                has_entity=self._core.has_entity,
                now_ms=self._access.now_ms,
                limits=self._limits,
                container_id=self._container_id,
                idle_timeout_ms=self._idle_timeout_ms,
                sources=self._sources,
                memory=self._memory,
                browsing_slots=self._browsing_slots,
                faults=self.faults,
                drop=transport.drop,
                peer_name=peer_name,
                connection_id=f"{self._container_id}-{self._last_connection_id}",
            )
        )
        if self._frame_views is not None and self._frame_views.is_looking:
            self._frame_views.tap(transport, connection)
        return connection

    # --- open connections -------------------------------------------------------------------

    def note_bytes_read(self, transport: AmqpTransport, size_bytes: int) -> bool:
        """Counts bytes that were read. Returns True if the transport must pause reading."""
        self._bytes_taken_in += size_bytes
        if self._bytes_taken_in < self._limits.sender_bytes_in_flight_max:
            return False
        if not self._core.is_writing:  # then nothing would resume it
            self._bytes_taken_in = 0
            return False
        self._paused.append(transport)
        return True

    def note_unread_bytes(self, transport: AmqpTransport, size_bytes: int) -> None:
        """Records how many written bytes the client has not read."""
        self._unread.note(transport, size_bytes)

    def committed(self) -> None:
        """Everything that was read is durable. Resumes the transports that paused reading."""
        self._bytes_taken_in = 0
        if self._paused:
            paused, self._paused = self._paused, []
            for transport in paused:
                transport.resume_after_commit()

    def check_authorization(self) -> None:
        """Checks the permissions of all clients again, after the clock or the keys have changed."""
        for transport in list(self._transports):
            transport.check_authorization()

    def connections(self) -> list[Connection]:
        """Returns the connections of all clients that have opened one."""
        found = [transport.connection for transport in self._transports]
        return [one for one in found if one is not None and one.opened]

    def frame_views(self, last: int = 0) -> FrameViews:
        """Returns the views of frames. They are loaded when they are first used. `last` frames of every namespace
        are recorded from the beginning."""
        if self._frame_views is None:
            from broker.app.network.frame_views import FrameViews

            self._frame_views = FrameViews(
                self._transports,
                self._limits,
                self._sources.real_ms,
                is_strict=self._access.identity.strict,
                last=last,
            )
        return self._frame_views

    def forget_namespace(self, name: str) -> None:
        """Forgets what is kept beside a namespace that was deleted: its fault rules and frames."""
        self.faults.clear(name)
        if self._frame_views is not None:
            self._frame_views.forget(name)

    @property
    def connection_count(self) -> int:
        """Connections at present."""
        return len(self._transports)

    @property
    def link_count(self) -> int:
        """Links of all connections."""
        return sum(
            transport.connection.link_count
            for transport in self._transports
            if transport.connection is not None
        )

    def end_connection_of(self, peer: Peer, error: BrokerError) -> None:
        """Closes the connection of a link with an error, as lost: its locks end, and others get its messages."""
        for transport in list(self._transports):
            if transport.connection is not None and transport.connection.has(peer):
                transport.fail(error)

    # --- closed connections ---------------------------------------------------------------------------------

    def transport_closed(self, transport: AmqpTransport) -> None:
        """Removes a transport whose socket is closed."""
        if transport.tap is not None:
            transport.tap.closed()
            transport.tap = None
        self._transports.pop(transport, None)
        self._unread.note(transport, 0)
        if not self._transports:
            self._empty.set()
        self._core.turns.forget(transport)

    def closer(self, namespace: str) -> Callable[[BrokerError], None]:
        """Returns a function that closes the connections that are in a namespace now, because it is deleted or
        replaced. Clients may connect again."""
        concerned = [
            transport
            for transport in self._transports
            if transport.connection is not None
            and transport.connection.selected_namespace == namespace
        ]

        def close(error: BrokerError) -> None:
            for transport in concerned:
                if transport in self._transports:
                    self._force_close(transport, error)

        return close

    def force_close_all(self, text: str) -> None:
        """Closes all connections, because the restored core does not know their links. Clients reconnect."""
        self.committed()
        forced = ConnectionForced(text)
        for transport in list(self._transports):
            self._force_close(transport, forced)

    @staticmethod
    def _force_close(transport: AmqpTransport, error: BrokerError) -> None:
        transport.end(error)
        transport.detach_from_core()
        asyncio.get_running_loop().call_later(FORCED_CLOSE_TIMEOUT_S, transport.abort)

    def end_all(self) -> None:
        """Closes all connections because the broker stops."""
        forced = ConnectionForced("The broker is shutting down.")
        for transport in list(self._transports):
            transport.end(forced)

    async def close_all(self, grace_s: float) -> None:
        """Closes all connections because the broker stops, and waits for the clients to answer."""
        self.end_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for transport in list(self._transports):
            # Its locks end with the process. The core must not count them as failed deliveries.
            transport.detach_from_core()
            transport.abort()
