"""AMQP over WebSocket: the frames' content is one stream of bytes, fed to an AMQP connection.

Makes a WebSocket look like an asyncio transport; frame boundaries mean nothing in either direction.
Neither side can make the other's bytes pile up: both directions pause.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.http.broker_services import BrokerServices, ByteReceiver

log = structlog.get_logger("peeklock.http")

PATH = "/$servicebus/websocket"
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""The service's own name for it, and the standard's, which the Go SDK's documentation tells to use."""

MESSAGE_MAX_BYTES = 16 * 1024 * 1024
"""Of one WebSocket message: clients put at most what one write of theirs held into it."""
CHUNK_BYTES = 64 * 1024
HIGH_WATER_BYTES = 256 * 1024
LOW_WATER_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 5.0


def add_routes(application: web.Application, services: BrokerServices) -> None:
    """Serve the path, with or without the slash that .NET puts at its end."""

    async def upgrade(request: web.Request) -> web.StreamResponse:
        return await serve(request, services.open_amqp)

    application.router.add_get(PATH, upgrade)
    application.router.add_get(PATH + "/", upgrade)


async def serve(
    request: web.Request, open_amqp: Callable[[asyncio.Transport], ByteReceiver]
) -> web.StreamResponse:
    """Serve one client until either side ends it."""
    socket = web.WebSocketResponse(
        protocols=SUBPROTOCOLS,
        max_msg_size=MESSAGE_MAX_BYTES,
        compress=False,
        timeout=CLOSE_TIMEOUT_S,
    )
    if not socket.can_prepare(request):
        raise web.HTTPUpgradeRequired(text="This path serves AMQP over WebSocket.")
    await socket.prepare(request)
    if socket.ws_protocol is None:
        await socket.close(code=1002, message=b"the subprotocol must be AMQPWSB10 or amqp")
        return socket
    wire = WebSocketTransport(socket, request.transport)
    connection = open_amqp(wire)
    wire.attach(connection)
    try:
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(wire.send_all())
            await wire.receive_all()
            if not wire.is_closing():
                sender.cancel()
    except Exception:
        # The answer has begun long ago: an error page would only garble the stream.
        log.exception("websocket.failed")
        wire.abort()
    finally:
        connection.connection_lost(None)
    return socket


class WebSocketTransport(asyncio.Transport):
    """A WebSocket, made to look like the socket an AMQP connection expects."""

    def __init__(self, socket: web.WebSocketResponse, underneath: asyncio.Transport | None) -> None:
        super().__init__()
        self._socket = socket
        self._underneath = underneath
        self._connection: ByteReceiver | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._has_output = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_full = False
        self._is_closing = False

    def attach(self, connection: ByteReceiver) -> None:
        """Whom to feed, and to tell when the client reads too slowly."""
        self._connection = connection

    # --- as asyncio.Transport ------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send in order, soon."""
        if self._is_closing or not data:
            return
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)
        self._has_output.set()
        if self._waiting_bytes > HIGH_WATER_BYTES and not self._is_full:
            self._is_full = True
            if self._connection is not None:
                self._connection.pause_writing()

    def close(self) -> None:
        """Send what is waiting, then close."""
        self._is_closing = True
        self._has_output.set()
        self._may_read.set()

    def abort(self) -> None:
        """Close the socket underneath at once."""
        self._waiting.clear()
        self.close()
        if self._underneath is not None:
            self._underneath.abort()

    def is_closing(self) -> bool:
        """True once `close` or `abort` was called."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Leave what the client sends in its socket."""
        if not self._is_closing:
            self._may_read.clear()

    def resume_reading(self) -> None:
        """Read on."""
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        """Bytes that have not been sent."""
        return self._waiting_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known about the socket underneath."""
        if self._underneath is None:
            return default
        return self._underneath.get_extra_info(name, default)

    # --- the two directions --------------------------------------------------------------------

    async def receive_all(self) -> None:
        """Feed the connection until the client leaves or the connection closes."""
        assert self._connection is not None
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                if not self._is_closing:
                    self._connection.data_received(message.data)
            elif message.type is WSMsgType.TEXT:
                await self._socket.close(code=1003, message=b"AMQP comes in binary messages")
                return
            else:
                return

    async def send_all(self) -> None:
        """Send what is written until the connection closes or the client is gone."""
        assert self._connection is not None
        try:
            while self._waiting or not self._is_closing:
                await self._has_output.wait()
                self._has_output.clear()
                output = b"".join(self._waiting)
                self._waiting.clear()
                for start in range(0, len(output), CHUNK_BYTES):
                    chunk = output[start : start + CHUNK_BYTES]
                    await self._socket.send_bytes(chunk)  # waits while the client's socket is full
                    self._waiting_bytes -= len(chunk)
                    if self._is_full and self._waiting_bytes <= LOW_WATER_BYTES:
                        self._is_full = False
                        self._connection.resume_writing()
            await self._socket.close()
        except ConnectionError:
            self.abort()  # the receiving side notices and ends the connection
