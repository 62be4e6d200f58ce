"""HTTP connections before the HTTP application is loaded.

aiohttp and the application are loaded for the first request that needs them, because most brokers only get AMQP clients
and health checks. Until then a connection answers `GET /health` itself. Every other connection keeps its bytes, and is
given to the application when it is there. Such a connection counts as any other, and must send a head in time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.http import health

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_MAX_BYTES = 65_536
"""Beyond this a connection is not read until the application is there."""


class EarlyHttpConnections:
    """The HTTP connections that the application does not have yet."""

    def __init__(
        self,
        head_timeout_s: float,
        not_serving: Callable[[], tuple[str, str] | None],
        is_full: Callable[[int], bool],
        load: Callable[[], None],
    ) -> None:
        self.head_timeout_s = head_timeout_s
        self.not_serving = not_serving
        self.load = load
        """Is called when a connection needs the application, for each of them."""
        self._is_full = is_full
        """Returns whether this many of these connections are too many."""
        self._connections: set[EarlyHttpConnection] = set()

    @property
    def count(self) -> int:
        """Connections at present."""
        return len(self._connections)

    def opened(self, connection: EarlyHttpConnection) -> bool:
        """Counts a connection. Returns False if there are too many."""
        if self._is_full(self.count + 1):
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: EarlyHttpConnection) -> None:
        """Removes a connection."""
        self._connections.discard(connection)

    def hand_over(self, connect: Callable[[], asyncio.Protocol]) -> None:
        """Gives every connection to the application, which has a protocol object for each."""
        for connection in list(self._connections):
            connection.hand_over(connect())

    def abort(self) -> None:
        """Ends every connection."""
        for connection in list(self._connections):
            connection.abort()


class EarlyHttpConnection(asyncio.Protocol):
    """One of these connections."""

    def __init__(self, connections: EarlyHttpConnections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = bytearray()
        self._needs_application = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the timeout of the head."""
        self._transport = transport  # type: ignore[assignment]
        if not self._connections.opened(self):
            self.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.head_timeout_s, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answers a request for the health. Keeps the bytes of any other, and has the application loaded."""
        transport = self._transport
        if transport is None:
            return
        self._data += data
        if self._needs_application:
            if len(self._data) > KEPT_MAX_BYTES:
                transport.pause_reading()
            return
        received = bytes(self._data)
        if health.may_be_health_request(received) and not health.is_whole_head(received):
            if len(received) <= KEPT_MAX_BYTES:
                return  # the rest of the head will tell
        elif health.is_health_request(received):
            transport.write(health.response(self._connections.not_serving()))
            transport.close()
            return
        self._needs_application = True
        self._connections.load()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        del exc
        self._leave()

    def hand_over(self, chosen: asyncio.Protocol) -> None:
        """Lets another protocol object continue with all that was received."""
        transport = self._transport
        self._leave()
        if transport is None:
            return
        transport.set_protocol(chosen)
        chosen.connection_made(transport)
        if self._data:
            chosen.data_received(bytes(self._data))
        transport.resume_reading()

    def abort(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._leave()

    def _leave(self) -> None:
        self._transport = None
        self._connections.closed(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
