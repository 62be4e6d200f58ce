"""Listening sockets. Each accepts AMQP, HTTP and TLS, and detects the protocol by the first byte.

AMQP begins with `AMQP`, TLS with 0x16, HTTP with a method. Inside TLS the protocol is detected again. A client
that sends nothing is disconnected after a timeout.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

import structlog

from broker.app.network.client_addresses import address_text
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

log = structlog.get_logger("peeklock.listener")

TLS_HANDSHAKE = 0x16
BACKLOG = 1024
ACCEPTS_PER_WAKE_UP = 64
ACCEPT_PAUSE_S = 0.2
"""How long no client is accepted after the process ran out of file descriptors."""
SEGMENT_MAX_BYTES = 8192
"""The segments of the loopback interface are larger than the 8 KiB receive buffer of the older .NET SDK: none
fits into its window, and the kernel then sends some bytes every 200 ms. The segments of other networks are
smaller than this."""

REMEDIES = {
    errno.EADDRINUSE: "another process uses this port: stop it, or choose another port (0 chooses a free one)",
    errno.EACCES: "ports below 1024 need a privilege; choose another port (0 chooses a free one)",
    errno.EADDRNOTAVAIL: "this machine has no such address; 0.0.0.0 listens on all its addresses",
}
NO_SUCH_HOST = "give an address of this machine, such as 127.0.0.1 or 0.0.0.0"


class Listener:
    """One listening socket."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        amqp: Callable[[], asyncio.Protocol],
        http: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext],
        first_byte_timeout_s: float,
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._tls = tls
        self._first_byte_timeout_s = first_byte_timeout_s
        self._loop = asyncio.get_running_loop()
        self._undetected: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failing = False
        """Whether the last accept failed. It is logged once."""
        self._resuming: asyncio.TimerHandle | None = None
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]

    def start(self) -> None:
        """Starts to accept clients."""
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accepts no more clients, and disconnects those that have sent nothing yet."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for client in list(self._undetected):
            self._drop(client)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_UP):
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if self._failing:
                self._failing = False
                log.info("listener.accepts_again", port=self.port)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._undetected[client] = self._loop.call_later(
                self._first_byte_timeout_s, self._drop, client
            )
            self._loop.add_reader(client, self._detect_protocol, client)

    def _pause(self, error: OSError) -> None:
        """Leaves clients in the backlog for a moment, because file descriptors or memory ran out.

        The listening socket stays readable, so the loop would call `_accept` again and again.
        """
        if not self._failing:
            self._failing = True
            log.warning(
                "listener.accept_failed",
                port=self.port,
                error=str(error),
                fix="Raise the limit of open files (ulimit -n), or close connections.",
            )
        self._loop.remove_reader(self._socket)
        self._resuming = self._loop.call_later(ACCEPT_PAUSE_S, self.start)

    def _detect_protocol(self, client: socket.socket) -> None:
        """Looks at the first byte, leaves it in the socket, and starts the connection."""
        try:
            first = client.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(client)
            return
        self._loop.remove_reader(client)
        self._undetected.pop(client).cancel()
        task = self._loop.create_task(
            self._start_connection(client, is_tls=first[0] == TLS_HANDSHAKE)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_connection(self, client: socket.socket, *, is_tls: bool) -> None:
        try:
            tls = self._tls() if is_tls else None
            await self._loop.connect_accepted_socket(
                lambda: ProtocolDetection(self._amqp, self._http, self._first_byte_timeout_s),
                client,
                ssl=tls,
                ssl_handshake_timeout=self._first_byte_timeout_s if tls else None,
            )
        except (OSError, TimeoutError) as error:
            repeated_events.note(log.info, "listener.handshake_failed", None, error=str(error))
            client.close()

    def _drop(self, client: socket.socket) -> None:
        handle = self._undetected.pop(client, None)
        if handle is not None:
            handle.cancel()
            self._loop.remove_reader(client)
            client.close()


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket that listens. Clients that connect wait in its backlog."""
    bound = None
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        # Accepted sockets inherit it.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_MAX_BYTES)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        remedy = REMEDIES.get(error.errno or 0, NO_SUCH_HOST)
        sentence = f"cannot listen on {address_text(host, port)}: {error.strerror}; {remedy}"
        raise OSError(error.errno, sentence) from error
    return bound


class ProtocolDetection(asyncio.Protocol):
    """Detects AMQP or HTTP by the first bytes, then gives the transport to that protocol."""

    def __init__(
        self,
        amqp: Callable[[], asyncio.Protocol],
        http: Callable[[], asyncio.Protocol],
        timeout_s: float,
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the timeout for the first byte."""
        self._transport = transport  # type: ignore[assignment]
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, transport.close)

    def data_received(self, data: bytes) -> None:
        """Chooses the protocol. The header of AMQP starts with `A`; no HTTP method does."""
        transport = self._transport
        if transport is None:
            return
        self._cancel()
        chosen = self._amqp() if data[:1] == b"A" else self._http()
        transport.set_protocol(chosen)
        chosen.connection_made(transport)
        chosen.data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client disconnected before it sent anything."""
        del exc
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
