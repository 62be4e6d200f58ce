"""Limits the number of HTTP connections and the time between requests.

Every request head must arrive within the head timeout. A connection without a request is closed after the
keep-alive timeout. While a request is answered there is no limit here; `request_bodies.py` limits bodies.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

log = structlog.get_logger("peeklock.http")

KEEP_ALIVE_TIMEOUT_S = 75.0


class HttpConnections:
    """Every HTTP connection of this broker."""

    def __init__(
        self,
        head_timeout_s: float,
        is_full: Callable[[int], bool] = lambda _: False,
        keep_alive_timeout_s: float = KEEP_ALIVE_TIMEOUT_S,
    ) -> None:
        self.head_timeout_s = head_timeout_s
        self.keep_alive_timeout_s = keep_alive_timeout_s
        self._is_full = is_full
        """Returns whether this many HTTP connections are too many."""
        self._by_handler: dict[object, TimedConnection] = {}

    @property
    def count(self) -> int:
        """Connections at present."""
        return len(self._by_handler)

    def watch(self, application: web.Application) -> None:
        """Adds a middleware that observes when requests begin and end."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._by_handler.get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.request_began()
            try:
                return await handler(request)
            finally:
                connection.request_ended()

        application.middlewares.insert(0, note)

    def wrap(self, connect: Callable[[], web.RequestHandler]) -> Callable[[], asyncio.Protocol]:
        """Wraps the protocol objects of aiohttp, so that each has its time limits."""
        return lambda: TimedConnection(self, connect())

    def opened(self, connection: TimedConnection, handler: object) -> bool:
        """Counts a connection. Returns False if there are too many."""
        if self._is_full(self.count + 1):
            repeated_events.note(log.warning, "connections.too_many", "http", protocol="http")
            return False
        self._by_handler[handler] = connection
        return True

    def closed(self, handler: object) -> None:
        """Removes a connection."""
        self._by_handler.pop(handler, None)


class TimedConnection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and closes the connection after a timeout."""

    def __init__(self, connections: HttpConnections, handler: web.RequestHandler) -> None:
        self._connections = connections
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        """Requests that are being answered. A client may send the next one before it has the answer."""
        self._in_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the timeout of the first head."""
        self._transport = transport
        if not self._connections.opened(self, self._handler):
            transport.abort()  # type: ignore[attr-defined]
        self._in_head = True
        self._wait(self._connections.head_timeout_s)
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Starts the timeout of a head with its first bytes."""
        if not self._requests and not self._in_head:
            self._in_head = True
            self._wait(self._connections.head_timeout_s)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends nothing more."""
        self._handler.eof_received()
        return None

    def pause_writing(self) -> None:
        """Pauses output: the client reads slowly."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Resumes output."""
        self._handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is closed."""
        self._stop_waiting()
        self._transport = None
        self._connections.closed(self._handler)
        self._handler.connection_lost(exc)

    def request_began(self) -> None:
        """A request head has arrived."""
        self._requests += 1
        self._in_head = False
        self._stop_waiting()

    def request_ended(self) -> None:
        """A request is answered. The keep-alive timeout starts if there is no other."""
        self._requests -= 1
        if not self._requests and self._transport is not None:
            self._wait(self._connections.keep_alive_timeout_s)

    def _wait(self, timeout_s: float) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(timeout_s, self._close_after_timeout)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_after_timeout(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.abort()  # type: ignore[attr-defined]
