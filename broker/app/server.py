"""The broker process: start, serve, stop, and start again from the store when it must.

Ready means that every listener accepts and every entity can be used, not before. Stopping takes no
more clients, lets what was asked become durable, tells clients why, and gives the store back.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from broker.app import tls
from broker.app.access import Access
from broker.app.clock import Clock
from broker.app.committer import Committer
from broker.app.imports import without_trusted_certificates
from broker.app.listener import Listener
from broker.app.metrics import Metrics
from broker.app.snapshots import by_namespace
from broker.app.transport import AmqpTransport
from broker.app.turns import TurnLoop
from broker.core.errors import ArgumentError, BrokerError, ServerBusy
from broker.core.identifiers import MessageIds, lock_tokens
from broker.core.namespace import Namespace
from broker.core.turn import Turn
from protocol.amqp.connection import Connection, Surroundings
from protocol.amqp.reader import Reader
from storage.contract import StorageError, StorageFull, StoreUnusable
from storage.urls import store_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    from broker.core.commands import Command, Peer
    from broker.core.effects import Effect, EntityView
    from config.settings import Settings
    from config.topology import Topology
    from storage.contract import Store

log = structlog.get_logger("peeklock")

READY_TEXT = "Emulator Service is Successfully Up!"
"""Scripts and test containers made for the official emulator wait for exactly this."""

LAG_INTERVAL_S = 0.5
FULL_DISK_FIX = "Receive messages, or free space on it; sends are refused until then."

GARBAGE_THRESHOLDS = (50_000, 20, 50)
"""Messages are many and hold no cycles: looking for garbage at Python's usual pace costs a tenth of
all time."""

HTTP_HEADER_MAX_BYTES = 65_536
"""Broker properties of the REST API travel in one header."""

EXIT_OK, EXIT_FAILED = 0, 1
EVERY_INTERFACE = ("127.0.0.1", "0.0.0.0", "::", "::1")  # noqa: S104 -- shown as localhost


class ConnectionForced(BrokerError):
    """The broker ends a connection that did nothing wrong."""

    condition = "amqp:connection:forced"
    status = 503


class Server:
    """One broker process."""

    def __init__(self, settings: Settings, topology: Topology, clock: Clock | None = None) -> None:
        self._settings = settings
        self._topology = topology
        self._limits = settings.limits
        self.clock = clock or Clock()
        self._store: Store = store_for(settings.storage)
        self._reads = ThreadPoolExecutor(1, "read")
        self._namespaces: dict[str, Namespace] = {}
        self._default = next(iter(topology.namespaces))
        self._access: Access
        self._container_id = f"peeklock-{uuid.uuid4().hex[:12]}"
        self._transports: set[AmqpTransport] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._paused: list[AmqpTransport] = []
        self._bytes_taken_in = 0
        self._listeners: list[Listener] = []
        self._tls: ssl.SSLContext | None = None
        self._stopping = asyncio.Event()
        self._failure: StorageError | None = None
        self._ready = False
        self._has_room = True
        self._started_ms = self.clock.now_ms()
        self._turns = TurnLoop(self._namespaces, self.clock, self._read_payloads, self._start_again)
        self._committer = Committer(self._store, self._release, self._commit_failed, self._observe)
        self._turns.attach(self._committer)
        self._metrics = Metrics(self._entity_views, self._connection_count, self._link_count)
        self._http_runner: object | None = None
        self._lag_timer: asyncio.TimerHandle | None = None

    # --- life ----------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to stop; the exit code."""
        try:
            await self._start()
        except (StoreUnusable, OSError) as error:
            log.error("start.failed", error=_sentence(error))  # noqa: TRY400 -- the sentence says it
            await self._stop()
            return EXIT_FAILED
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await self._stopping.wait()
        await self._stop()
        return EXIT_OK if self._failure is None else EXIT_FAILED

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._access = Access(self._settings, self._topology, self._namespaces, self.clock)
        opening = loop.run_in_executor(self._reads, self._store.open)
        runner = await self._build_http()
        await opening
        self._certificate_files()
        self._restore()
        await self._committer.settle()
        settings = self._settings
        for port in (settings.amqp_port, settings.http_port, settings.tls_port):
            if port is not None:
                self._listeners.append(self._listen(port, runner))
        for listener in self._listeners:
            listener.start()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()
        self._ready = True
        self._lag_timer = loop.call_later(LAG_INTERVAL_S, self._measure_lag, loop.time())
        self._announce()

    async def _stop(self) -> None:
        self._ready = False
        for listener in self._listeners:
            listener.close()
        if self._failure is None:
            await self._committer.settle()
        goodbye = ConnectionForced("The broker is shutting down.")
        for transport in list(self._transports):
            transport.end(goodbye)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_grace_ms / 1000):
                await self._empty.wait()
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0)
        if self._failure is None:
            await self._committer.settle()
        self._turns.stop()
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        await self._close_http()
        self._committer.close()
        self._reads.shutdown(wait=True)
        self._store.close()
        log.info("stopped")

    def _restore(self) -> None:
        """Bring memory to what the store holds, then to what the configuration declares."""
        snapshot = self._store.load()
        self._namespaces.clear()
        ids = MessageIds()
        budget = (
            None if self._store.keeps_payloads_in_memory else self._settings.payload_memory_bytes
        )
        names = {*self._topology.namespaces, *(entity.namespace for entity in snapshot.entities)}
        for name in (self._default, *sorted(names - {self._default})):
            self._namespaces[name] = Namespace(
                name,
                reader=Reader(),
                new_lock_token=lock_tokens(os.urandom),
                limits=self._limits,
                ids=ids,
                payload_budget_bytes=budget,
                hold_locks_after_connection_loss=(self._settings.hold_locks_after_connection_loss),
            )
        now_ms = self.clock.now_ms()
        turn = Turn()
        for name, part in by_namespace(snapshot).items():
            self._namespaces[name].restore(part, now_ms)
        for name, entities in self._topology.namespaces.items():
            self._namespaces[name].declare(entities, now_ms, turn)
        if turn:
            self._committer.submit(turn)
        self._turns.tick()

    def _announce(self) -> None:
        settings = self._settings
        ports = [listener.port for listener in self._listeners]
        shown = "localhost" if settings.host in EVERY_INTERFACE else settings.host
        port = "" if ports[0] == 5672 else f":{ports[0]}"
        log.info(
            "ready",
            text=READY_TEXT,
            amqp=f"{settings.host}:{ports[0]}",
            http=f"{settings.host}:{ports[1]}",
            tls=f"{settings.host}:{ports[2]}" if len(ports) > 2 else None,
            storage=settings.storage,
            entities=sum(len(list(one.views())) for one in self._namespaces.values()),
            connection_string=(
                f"Endpoint=sb://{shown}{port};"
                f"SharedAccessKeyName={settings.shared_access_key_name};"
                f"SharedAccessKey={settings.shared_access_key};UseDevelopmentEmulator=true;"
            ),
        )

    # --- clients -------------------------------------------------------------------------------

    def _listen(self, port: int, http: Callable[[], asyncio.Protocol]) -> Listener:
        return Listener(
            self._settings.host,
            port,
            amqp=self._new_transport,
            http=http,
            tls=self._tls_context,
            first_byte_timeout_s=self._limits.handshake_timeout_ms / 1000,
        )

    def _tls_context(self) -> ssl.SSLContext:
        """Made when the first client wants it."""
        if self._tls is None:
            self._tls = tls.server_context(self._certificate_files())
        return self._tls

    def _certificate_files(self) -> tls.CertificateFiles:
        settings = self._settings
        if settings.tls_certificate is not None:
            return tls.CertificateFiles(
                settings.tls_certificate, settings.tls_key or settings.tls_certificate
            )
        return tls.own_certificate(settings.tls_folder, settings.tls_names)

    def _new_transport(self) -> AmqpTransport:
        transport = AmqpTransport(self, self._connect, self._limits.handshake_timeout_ms / 1000)
        self._transports.add(transport)
        self._empty.clear()
        self._metrics.connections_total += 1
        return transport

    def _connect(self, transport: AmqpTransport, peer_name: str) -> Connection:
        return Connection(
            Surroundings(
                enter=self._enter,
                touch=lambda: self._turns.touch(transport),
                wake_at=lambda at_ms: transport.wake_in(at_ms - self._access.now_ms()),
                identity=self._access.identity,
                now_ms=self._access.now_ms,
                limits=self._limits,
                container_id=self._container_id,
                idle_timeout_ms=self._settings.idle_timeout_ms,
                peer_name=peer_name,
            )
        )

    def touch(self, transport: AmqpTransport) -> None:
        """Flush this transport at the end of the next turn."""
        self._turns.touch(transport)

    def took_in(self, transport: AmqpTransport, size_bytes: int) -> bool:
        """Account for bytes read; True asks the transport to stop reading for now."""
        self._bytes_taken_in += size_bytes
        if self._bytes_taken_in < self._limits.sender_bytes_in_flight_max:
            return False
        if self._committer.idle:
            self._bytes_taken_in = 0
            return False
        self._paused.append(transport)
        return True

    def left(self, transport: AmqpTransport) -> None:
        """The transport is gone."""
        self._transports.discard(transport)
        if not self._transports:
            self._empty.set()
        self._turns.forget(transport)

    def _enter(self, name: str) -> Callable[[Command], None]:
        """How commands reach a namespace; for as long as it lives, as connections do."""
        return functools.partial(self._turns.submit, self._namespaces[name])

    def _check_permits(self) -> None:
        for transport in list(self._transports):
            transport.check_permits()

    # --- turns, commits, payloads --------------------------------------------------------------

    def _release(self, effects: list[Effect]) -> None:
        self._metrics.count(effects)
        self._turns.release(effects)
        if self._paused:
            paused, self._paused = self._paused, []
            self._bytes_taken_in = 0
            for transport in paused:
                transport.go_on_reading()

    def _observe(self, seconds: float, records: int) -> None:
        self._metrics.committed(seconds, records)
        if not self._paused:
            self._bytes_taken_in = 0

    def _read_payloads(self, payload_ids: Sequence[int]) -> None:
        if not self._store.blocking:
            self._turns.payloads_loaded(self._store.read_payloads(payload_ids))
            return
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._reads, self._store.read_payloads, payload_ids)
        reading.add_done_callback(
            lambda done: (
                self._commit_failed(StorageError(str(done.exception())))
                if done.exception()
                else self._turns.payloads_loaded(done.result())
            )
        )

    def _commit_failed(self, error: StorageError) -> None:
        """With a full disk, clients can still make room by receiving; otherwise stop."""
        if isinstance(error, StorageFull):
            self._start_again(error)
            self._watch_room()
        else:
            self._failure = error
            self._stopping.set()

    def _watch_room(self) -> None:
        """Refuse sends while the store has no room to spare; the client may try again."""
        has_room = self._store.has_room
        if has_room == self._has_room:
            return
        self._has_room = has_room
        if has_room:
            log.info("storage.has_room", storage=self._settings.storage)
            self._refuse_sends(None)
        else:
            log.error("storage.full", storage=self._settings.storage, fix=FULL_DISK_FIX)
            self._refuse_sends(ServerBusy(f"The broker's disk is full. {FULL_DISK_FIX}"))

    def _start_again(self, error: Exception) -> None:
        """Memory is ahead of the store, or wrong: end every connection, keep what is durable.

        Nothing is lost by it: what was not stored was not accepted, and clients reconnect.
        """
        log.error("starting_again", reason=str(error))
        forced = ConnectionForced(f"The broker starts again from what it has stored: {error}")
        for transport in list(self._transports):
            transport.end(forced)
            transport.disown()
        self._restore()

    def _refuse_sends(self, error: BrokerError | None) -> None:
        for namespace in self._namespaces.values():
            namespace.refuse_sends(error)

    # --- watching ------------------------------------------------------------------------------

    def _measure_lag(self, scheduled_from: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._watch_room()
        self._metrics.event_loop_lag_seconds = max(0.0, now - scheduled_from - LAG_INTERVAL_S)
        self._lag_timer = loop.call_later(LAG_INTERVAL_S, self._measure_lag, now)

    def _entity_views(self) -> Iterator[tuple[str, EntityView]]:
        for name, namespace in self._namespaces.items():
            for view in namespace.views():
                yield name, view

    def _connection_count(self) -> int:
        return len(self._transports)

    def _link_count(self) -> int:
        return sum(
            transport.connection.link_count
            for transport in self._transports
            if transport.connection is not None
        )

    # --- HTTP ----------------------------------------------------------------------------------

    async def _build_http(self) -> Callable[[], asyncio.Protocol]:
        with without_trusted_certificates():
            from aiohttp import web

        from protocol.http.application import Services, build

        services = Services(
            ask=functools.partial(self._ask, self._default),
            submit=functools.partial(self._submit, self._default),
            is_ready=lambda: self._ready,
            metrics=self._metrics.render,
            advance_clock=self._advance_clock if self._settings.testing_api else None,
            now_ms=self.clock.now_ms,
            authorize=self._access.authorize_http,
            open_amqp=self._open_websocket,
            namespace_name=self._default,
            created_time_ms=self._started_ms,
            tier=self._settings.tier,
            limits=self._limits,
            is_strict=self._access.identity.strict,
            topology=self._export,
            in_namespace=lambda name: replace(
                services,
                ask=functools.partial(self._ask, name),
                submit=functools.partial(self._submit, name),
                namespace_name=name,
            ),
        )
        runner = web.AppRunner(
            build(services),
            access_log=None,
            handler_cancellation=True,  # a REST receiver that hangs up gives its lock back
            max_field_size=HTTP_HEADER_MAX_BYTES,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        self._http_runner = runner
        server = runner.server
        assert server is not None
        return server

    async def _close_http(self) -> None:
        if self._http_runner is not None:
            await self._http_runner.cleanup()  # type: ignore[attr-defined]

    def _submit(self, name: str, command: Command) -> None:
        self._turns.submit(self._namespaces[name], command)

    async def _ask(self, name: str, build: Callable[[Peer, object], Command]) -> object:
        value = await self._turns.ask(self._namespaces[name], build)
        if self._access.rules_changed():
            self._check_permits()
        return value

    def _export(self, header: str | None, form: str) -> object:
        from broker.app import exporting

        self._access.authorize_everything(header)
        if form not in exporting.FORMS:
            raise ArgumentError(f"The form must be one of {', '.join(exporting.FORMS)}.")
        now = exporting.of_namespaces(self._namespaces, self._topology)
        return exporting.in_form(now, form)._asdict()

    def _open_websocket(self, wire: asyncio.Transport) -> AmqpTransport:
        transport = self._new_transport()
        transport.begin(wire, "websocket")
        return transport

    def _advance_clock(self, amount_ms: int) -> int:
        now_ms = self.clock.advance_ms(amount_ms)
        self._turns.clock_moved()
        self._check_permits()
        return now_ms


def _sentence(error: Exception) -> str:
    """What an operator needs to read: the words, not the number."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def run(settings: Settings, topology: Topology) -> int:
    """Serve until told to stop; the exit code."""
    import uvloop

    async def main() -> int:
        return await Server(settings, topology).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
