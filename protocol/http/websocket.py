"""AMQP over WebSocket: the content of the messages is the byte stream of an AMQP connection.

`WebSocketTransport` is an asyncio transport over a WebSocket. Boundaries of messages have no meaning. Both
directions pause, so that neither side can fill the memory of the other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import WSMsgType, web

from protocol.http import request_origin
from protocol.http.error_responses import ForeignOrigin, log_failure
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.http.broker_services import BrokerServices, ByteReceiver

log = structlog.get_logger("peeklock.http")

PATH = "/$servicebus/websocket"
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""The name that the service uses, and that of the standard, which the documentation of the Go SDK recommends."""

MESSAGE_MAX_BYTES = 16 * 1024 * 1024
"""The limit of one WebSocket message. A client sends at most the content of one write in a message."""
CHUNK_BYTES = 64 * 1024
HIGH_WATER_BYTES = 256 * 1024
LOW_WATER_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 5.0


def add_routes(application: web.Application, services: BrokerServices) -> None:
    """Adds the route, with and without the slash that the .NET SDK adds at the end."""
    # It warns of each request with another subprotocol, without a bound. `serve` logs them as an event.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)

    async def upgrade(request: web.Request) -> web.StreamResponse:
        refused = request_origin.websocket_refusal(request, services.is_known_host)
        if refused is not None:
            raise ForeignOrigin(refused.message)
        return await serve(request, services.open_amqp)

    application.router.add_get(PATH, upgrade)
    application.router.add_get(PATH + "/", upgrade)


async def serve(
    request: web.Request, open_amqp: Callable[[asyncio.Transport], ByteReceiver]
) -> web.StreamResponse:
    """Serves one client until either side closes the WebSocket."""
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
        repeated_events.note(log.info, "websocket.refused", None, client=request.remote)
        await socket.close(code=1002, message=b"the subprotocol must be AMQPWSB10 or amqp")
        return socket
    transport = WebSocketTransport(socket, request.transport)
    connection = open_amqp(transport)
    transport.attach(connection)
    try:
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(transport.send_all())
            await transport.receive_all()
            if not transport.is_closing():
                sender.cancel()
    except Exception as error:  # noqa: BLE001 -- a bug, logged with its traceback
        # A bug of the broker. The response has begun, so an error page would corrupt the stream.
        log_failure(log, "websocket.failed", request, error)
        transport.abort()
    finally:
        connection.connection_lost(None)
    return socket


class WebSocketTransport(asyncio.Transport):
    """An asyncio transport over a WebSocket."""

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
        """Sets the connection that receives bytes, and that is paused if the client reads too slowly."""
        self._connection = connection

    # --- as asyncio.Transport ------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues bytes to be sent in order."""
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
        """Sends queued bytes, then closes."""
        self._is_closing = True
        self._has_output.set()
        self._may_read.set()

    def abort(self) -> None:
        """Closes the underlying socket at once."""
        self._waiting.clear()
        self.close()
        if self._underneath is not None:
            self._underneath.abort()

    def is_closing(self) -> bool:
        """Returns whether `close` or `abort` was called."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Stops reading from the client."""
        if not self._is_closing:
            self._may_read.clear()

    def resume_reading(self) -> None:
        """Continues reading."""
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        """Returns the number of queued bytes."""
        return self._waiting_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns information about the underlying socket."""
        if self._underneath is None:
            return default
        return self._underneath.get_extra_info(name, default)

    # --- the two directions --------------------------------------------------------------------

    async def receive_all(self) -> None:
        """Passes bytes to the connection until the client or the connection closes."""
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
        """Sends queued bytes until the connection closes or the client disconnects."""
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
            self.abort()  # `receive_all` then ends the connection
