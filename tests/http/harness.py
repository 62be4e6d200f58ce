"""The HTTP side of a broker in memory, served from a thread.

The broker is a `MemoryBroker` whose clock runs and can be moved. In place of AMQP a WebSocket reaches an
echo that can be paused and closed. One harness serves plain HTTP and TLS on free ports until its `with`
block ends.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from broker.app.runtime.clock import Clock
from broker.core.contract.commands import Tick
from broker.core.contract.effects import Reply
from broker.core.contract.errors import Unauthorized
from config.model.limits import RELAXED, Limits, Tier
from protocol.http.application import build
from protocol.http.broker_services import BrokerServices
from tests.support.memory_broker import MemoryBroker
from tests.support.protocol_sources import system_sources

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect

HOST = "localhost"
NAME = "sbemulatorns"
KEY = "SAS_KEY_VALUE"


async def _metrics() -> tuple[bytes, str]:
    return b"peeklock_up 1\n", "text/plain; version=0.0.4"


class HttpHarness:
    """`with HttpHarness() as harness:` serves until the block ends."""

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        limits: Limits = RELAXED,
        tier: Tier = Tier.PREMIUM,
        testing_api: bool = True,
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._tier = tier
        self._testing_api = testing_api
        self.ready = True
        self.refuse_token = False
        self.authorized: list[tuple[str | None, str, str]] = []
        """What `authorize` was asked: header, path, claim."""
        self.echoes: list[Echo] = []
        self.clock = Clock()
        self.port = self.tls_port = 0
        self._broker = MemoryBroker(clock=self.clock, limits=limits)
        self._enter = self._broker.enter(NAME)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, coroutine: Awaitable[Any]) -> Any:
        """Run on the harness's loop and wait."""

        async def awaited() -> Any:
            return await coroutine

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(30)

    @property
    def connection_string(self) -> str:
        """For administration clients, over TLS."""
        return (
            f"Endpoint=sb://{HOST}:{self.tls_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true;"
        )

    def ask(self, build_command: Callable[[Any, object], Any]) -> Any:
        """Ask the core, past HTTP."""
        return self.run(self._ask(build_command))

    def submit(self, command: Command) -> None:
        """Run a command in a turn on the next pass of the loop."""
        self._enter(command)
        self.loop.call_soon(self._broker.run)

    async def _ask(self, build_command: Callable[[Any, object], Any]) -> Any:
        asker = Asker(self.loop.create_future())
        self.submit(build_command(asker, asker))
        return await asker.answer

    # --- life ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        application = build(
            BrokerServices(
                ask=self._ask,
                submit=self.submit,
                not_serving=lambda: None if self.ready else ("stopping", "The broker is stopping."),
                metrics=_metrics,
                advance_clock=self._advance_clock if self._testing_api else None,
                now_ms=self.clock.now_ms,
                authorize=lambda header, path, claim, host, _entity=None: self._authorize(
                    header, path, claim, host
                ),
                open_amqp=self._open_amqp,
                namespace_name=NAME,
                created_time_ms=self.clock.now_ms(),
                sources=system_sources(),
                tier=self._tier,
                limits=self._limits,
            )
        )
        self._runner = web.AppRunner(application, handler_cancellation=True)
        await self._runner.setup()
        self.port = await self._listen(None)
        if self._tls is not None:
            self.tls_port = await self._listen(self._tls)

    async def _listen(self, tls: ssl.SSLContext | None) -> int:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port: int = site._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()  # a TLS client may never say goodbye
        await self._runner.cleanup()

    def _advance_clock(self, amount_ms: int) -> int:
        now_ms = self.clock.advance_ms(amount_ms)
        self.submit(Tick())
        return now_ms

    def _authorize(self, header: str | None, path: str, claim: str, host: str) -> str:
        self.authorized.append((header, path, claim))
        if self.refuse_token:
            raise Unauthorized("InvalidSignature: The token has an invalid signature.")
        return NAME

    def _open_amqp(self, wire: asyncio.Transport) -> Echo:
        echo = Echo(wire)
        self.echoes.append(echo)
        return echo


class Asker:
    """The peer of one awaited request."""

    def __init__(self, answer: asyncio.Future[object]) -> None:
        self.answer = answer

    def receive(self, effect: Effect) -> None:
        assert isinstance(effect, Reply)
        if effect.error is not None:
            self.answer.set_exception(effect.error)
        else:
            self.answer.set_result(effect.value)


class Echo:
    """Replaces an AMQP connection: sends back what it receives, until it receives `close`."""

    def __init__(self, wire: asyncio.Transport) -> None:
        self.wire = wire
        self.heard = b""
        self.pauses = self.resumes = 0
        self.lost = threading.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if data == b"close":
            self.wire.write(b"bye")
            self.wire.close()
        elif data == b"abort":
            self.wire.abort()
        else:
            self.wire.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        with suppress(AttributeError):
            self.lost.set()

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1
