"""All listening sockets of the broker.

The port of HTTP can listen before the broker serves, so that probes are answered. The other ports listen only while the
broker serves: a client is refused at once, and tries the next address of the name that it connects to. Ports that the
system chose stay the same when they listen again.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import structlog

from broker.app.network.listener import Listener

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from config.settings.settings import Settings

log = structlog.get_logger("peeklock.listener")

PORT_WAIT_S = 5.0
"""How long a port may be in use when a standby takes over. The process that served may be ending on this machine."""
PORT_POLL_S = 0.05


class Listeners:
    """The listeners of AMQP, HTTP and, if it is set, TLS. Each accepts all protocols, so one port can be all of them."""

    def __init__(
        self,
        settings: Settings,
        amqp: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._host = settings.host
        self._first_byte_timeout_s = settings.limits.handshake_timeout_ms / 1000
        self._amqp = amqp
        self._tls = tls
        self._http: Callable[[], asyncio.Protocol] | None = None
        self._wanted = {"amqp": settings.amqp_port, "http": settings.http_port}
        if settings.tls_port is not None:
            self._wanted["tls"] = settings.tls_port
        self.ports: dict[str, int] = {}
        """The ports that listen or have listened, by what they are for."""
        self._open: dict[int, Listener] = {}
        """By port."""

    @property
    def all_ports(self) -> list[int]:
        """The ports of AMQP, HTTP and, if it is set, TLS, in this order."""
        return [self.ports[name] for name in self._wanted if name in self.ports]

    def open_probes(self, http: Callable[[], asyncio.Protocol]) -> None:
        """Listens on the port of HTTP only. Raises OSError."""
        self._http = http
        self._listen("http")

    def open_all(self, http: Callable[[], asyncio.Protocol]) -> None:
        """Listens on every port. Raises OSError."""
        self._http = http
        for name in self._wanted:
            self._listen(name)

    async def open_all_after_another(self) -> None:
        """Listens on every port. If one is in use, waits for a while: another process may be ending. Raises OSError."""
        assert self._http is not None
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + PORT_WAIT_S
        while True:
            try:
                self.open_all(self._http)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or loop.time() >= ends_s:
                    raise
            await asyncio.sleep(PORT_POLL_S)

    def close_messaging(self) -> None:
        """Listens on the port of HTTP only."""
        for port in set(self._open) - {self.ports["http"]}:
            self._open.pop(port).close()

    def close(self) -> None:
        """Accepts no more clients."""
        for listener in self._open.values():
            listener.close()
        self._open.clear()

    def _listen(self, name: str) -> None:
        assert self._http is not None
        port = self.ports.get(name) or self._wanted[name]
        if port in self._open:
            self.ports[name] = port
            return
        listener = Listener(
            self._host,
            port,
            amqp=self._amqp,
            http=self._http,
            tls=self._tls,
            first_byte_timeout_s=self._first_byte_timeout_s,
        )
        self.ports[name] = listener.port
        self._open[listener.port] = listener
        listener.start()


class RefusedClient(asyncio.Protocol):
    """A client that connects to a broker that does not serve. Its connection ends at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ends the connection."""
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
