"""Starts, runs and stops the broker process.

The broker is ready when every listener accepts clients and every entity can be used. To stop, it accepts no more
clients, commits what clients have asked for, closes connections with a reason, and closes the store. While another
process owns its store, it answers probes only.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from broker.app.exit_codes import ExitCode
from broker.app.network.amqp_clients import AmqpClients
from broker.app.network.client_addresses import address_text, connection_string
from broker.app.network.http_server import HttpServer
from broker.app.network.listeners import Listeners, RefusedClient
from broker.app.observe.dead_letter_log import log_dead_letters
from broker.app.observe.metrics import Metrics, count
from broker.app.observe.report_notes import ReportNotes
from broker.app.runtime.clock import Clock
from broker.app.runtime.durable_core import DurableCore
from broker.app.runtime.garbage_collection import GarbageCollection
from broker.app.runtime.standby import RESTORING, STARTING, STOPPING
from broker.app.security import tls
from broker.app.security.access import Access
from broker.core.contract.errors import BrokerError
from broker.core.operations.entity_administration import DeclarationRefused
from config.model.storage_urls import mask_password
from protocol.repeated_events import repeated_events
from protocol.sources import make_sources
from storage.contract import StorageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from broker.app.observe.run_report import RunReports
    from broker.app.observe.tracing import Tracing
    from broker.app.runtime.batch_commit import CommitWay
    from broker.app.runtime.standby import NotServing
    from broker.core.contract.effects import EntityView, Peer
    from broker.core.contract.turn import Turn
    from config.files.topology import Topology
    from config.settings.settings import Settings

log = structlog.get_logger("peeklock")

READY_TEXT = "Emulator Service is Successfully Up!"
"""Scripts and test containers for the official emulator wait for exactly this text."""

CHECK_INTERVAL_S = 0.5
OTHER_DESCRIPTORS = 100
"""Files and sockets that are no connections of clients."""

SWITCH_INTERVAL_S = 0.000_5
"""How long a thread waits before it requests the interpreter lock. A commit needs the lock some twenty times,
and waits so long each time if the event loop is busy. Python's default is ten times as long."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A terminal sends SIGHUP when its window is closed."""


class Server:
    """One broker process."""

    def __init__(self, settings: Settings, topology: Topology, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or Clock()
        self._core = DurableCore(settings, topology, self._clock, self)
        self._access = Access(
            settings,
            topology,
            self._core.namespaces,
            self._clock,
            self._core.registry.authorization_rules,
        )
        sources = make_sources(self._clock.real_ms, self._clock.stopwatch_s, os.urandom)
        self._clients = AmqpClients(settings, self._core, self._access, sources)
        self._http = HttpServer(
            settings,
            topology,
            self._clock,
            self._core,
            self._clients,
            self._access,
            sources,
            self._make_reports,
            lambda: self._listeners.all_ports,
        )
        self._refusals = sources.refusals
        self._report_notes = ReportNotes(self._clock.real_ms)
        self._reports: RunReports | None = None
        self._metrics = Metrics(
            self._core.namespaces,
            self._clients,
            sources.refusals,
            lambda: self._core.not_serving is None,
        )
        self._listeners = Listeners(settings, self._new_amqp_client, self._tls_context)
        self._tls: ssl.SSLContext | None = None
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None
        self._ready = False
        self._listening_again: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._garbage = GarbageCollection()
        self._tracing: Tracing | None = None
        self._turn_count = 0
        """The number of turns at the last check."""

    # --- start and stop ----------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serves until a signal or a failure. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, for example
                loop.add_signal_handler(number, self._handle_stop_signal, number)
        try:
            await self._unless_stopped(self._start())
        except (StorageError, OSError) as error:
            code = _failed_to_start(error)
            await self._stop()
            return code
        except DeclarationRefused as error:
            code = _refused_to_start(error)
            await self._stop()
            return code
        await self._stopping.wait()
        await self._stop()
        return ExitCode.OK if self._failure is None else ExitCode.FAILED

    def _handle_stop_signal(self, number: signal.Signals) -> None:
        """Stops in order; at the second signal, at once. What was accepted is stored in both cases."""
        if self._stopping.is_set():
            log.warning("stopped.at_once", signal=number.name)
            os._exit(ExitCode.FAILED)
        log.info("stopping", signal=number.name)
        self._stopping.set()

    async def _unless_stopped(self, start: Coroutine[None, None, None]) -> None:
        """Starts. A signal ends a start, which may wait for its store for ever."""
        loop = asyncio.get_running_loop()
        starting, stopping = loop.create_task(start), loop.create_task(self._stopping.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            await starting
        else:
            starting.cancel()
            await asyncio.wait((starting,))

    async def _start(self) -> None:
        _raise_file_limit(self._settings.limits.connections_max)
        loop = asyncio.get_running_loop()
        http = self._http.start(self._not_serving, self._metrics.render)
        if self._core.is_shared:
            self._listeners.open_probes(http)  # it may wait for its store
        await self._core.open()
        self._prepare_tls()
        if self._settings.tracing:
            self._start_tracing()
        await self._core.begin()
        if self._core.is_shared:
            await self._listeners.open_all_after_another()
        else:
            self._listeners.open_all(http)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._garbage.begin(loop.time())
        self._ready = True
        self._watch = loop.call_later(CHECK_INTERVAL_S, self._check_periodically, loop.time())
        self._announce()

    async def _stop(self) -> None:
        was_ready, self._ready = self._ready and self._core.not_serving is None, False
        if self._listening_again is not None:
            self._listening_again.cancel()
        self._listeners.close()
        if self._failure is None:
            await self._core.settle()
            if was_ready and self._settings.report is not None:
                await self._write_reports(self._settings.report)
        if self._core.is_shared and self._failure is None:
            self._clients.end_all()
            # Before clients answer: another process can serve them now.
            await self._core.hand_over()
        await self._clients.close_all(self._settings.shutdown_grace_ms / 1000)
        if self._failure is None:
            await self._core.settle()
        if self._watch is not None:
            self._watch.cancel()
        await self._http.stop()
        await self._core.close()
        if self._tracing is not None:
            await self._tracing.stop()
        repeated_events.write_all()
        log.info("stopped")

    def _make_reports(self) -> RunReports:
        """Returns the reports. They are loaded when they are first used."""
        if self._reports is None:
            from broker.app.observe.run_report import RunReports

            settings = self._settings
            self._reports = RunReports(
                self._core,
                self._refusals,
                self._report_notes,
                settings.azure_limits,
                kept_fail_on=None if settings.report is None else settings.report_fail_on,
            )
        return self._reports

    async def _write_reports(self, files: Sequence[Path]) -> None:
        """Writes what went wrong, before clients are disconnected."""
        from broker.app.observe.report_files import write_reports

        names = [str(path) for path in files]
        try:
            reports = await self._make_reports().all_reports(self._settings.report_fail_on)
            write_reports(files, reports)
        except (OSError, BrokerError) as error:
            log.error("report.failed", files=names, error=_sentence(error))  # noqa: TRY400 -- no bug
        except Exception as error:  # ours; the store must still be closed in order
            log.exception("report.failed", files=names, error=repr(error))
        else:
            log.info("report.written", files=names, passed=all(one["is_passed"] for one in reports))

    def _start_tracing(self) -> None:
        """Exports what happens to messages. Its libraries are loaded only here."""
        try:
            from broker.app.observe.tracing import Tracing

            self._tracing = Tracing(self._clock, self._core.namespaces)
        except ModuleNotFoundError as error:
            sentence = f"tracing needs {error.name}: install it with pip install 'peeklock[otel]'"
            raise OSError(sentence) from error
        self._core.histories.observe = self._tracing.observe

    def _announce(self) -> None:
        settings = self._settings
        addresses = {
            name: address_text(settings.host, port) for name, port in self._listeners.ports.items()
        }
        log.info(
            "ready",
            text=READY_TEXT,
            amqp=addresses["amqp"],
            http=addresses["http"],
            tls=addresses.get("tls"),
            storage=mask_password(settings.storage),
            entities=sum(1 for _ in self._entity_views()),
            connection_string=connection_string(settings, self._listeners.ports["amqp"]),
        )

    # --- listening -----------------------------------------------------------------------------

    def _new_amqp_client(self) -> asyncio.Protocol:
        """Returns the protocol of a connection whose first bytes are AMQP. The port of HTTP also accepts them while
        the broker waits for its store."""
        return self._clients.new_transport() if self._core.not_serving is None else RefusedClient()

    def _prepare_tls(self) -> None:
        """Reports a wrong certificate at start. The context of our own certificate is created for the first client."""
        settings = self._settings
        if settings.tls_certificate is not None:
            self._tls_context()
            return
        try:
            self._certificate_files()
        except OSError as error:
            folder = settings.tls_folder
            sentence = f"no certificate can be kept in {folder}: {error.strerror}; set tls_folder"
            if settings.tls_port is not None:
                raise OSError(error.errno, sentence) from error
            log.warning("tls.unavailable", reason=sentence)

    def _tls_context(self) -> ssl.SSLContext:
        """Returns the context, which is created for the first client."""
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

    # --- called by the core -------------------------------------------------------------------

    def released(self, turn: Turn) -> None:
        """Counts operations and logs dead letters."""
        count(turn)
        if turn.dead_lettered:
            log_dead_letters(turn.dead_lettered)
            self._report_notes.note_dead_letters(turn.dead_lettered)

    def committed(self, seconds: float, records: int, way: CommitWay) -> None:
        """Measures a commit, and resumes clients that wait for it."""
        self._metrics.committed(seconds, records, way)
        self._clients.committed()

    def peer_failed(self, peer: Peer, error: BrokerError) -> None:
        """Ends the connection of a peer that could not get its answer."""
        self._clients.end_connection_of(peer, error)

    def restored_from_store(self, reason: str) -> None:
        """Closes all AMQP connections; clients reconnect."""
        self._clients.force_close_all(f"The broker starts again from what it has stored: {reason}")

    def stopped_serving(self, reason: str) -> None:
        """Accepts no more clients, and closes all AMQP connections; clients find the process that serves now."""
        self._ready = False
        if self._listening_again is not None:
            self._listening_again.cancel()
        self._listeners.close_messaging()
        self._clients.force_close_all(f"This process does not own its store any more: {reason}")

    def serving_again(self) -> None:
        """Accepts clients again."""
        loop = asyncio.get_running_loop()
        self._listening_again = loop.create_task(self._listen_again())

    async def _listen_again(self) -> None:
        try:
            await self._listeners.open_all_after_another()
        except OSError as error:
            self.failed(error)
        else:
            self._ready = True
            self._announce()

    def failed(self, error: Exception) -> None:
        """Stops the process: memory contains changes that the store does not have."""
        log.error("storage.failed", error=str(error) or repr(error))
        self._failure = self._failure or error
        self._ready = False
        self._stopping.set()

    def _not_serving(self) -> NotServing | None:
        if self._core.not_serving is not None:
            return self._core.not_serving
        if not self._core.is_serving:
            return RESTORING
        return None if self._ready else STOPPING if self._stopping.is_set() else STARTING

    # --- periodic checks ------------------------------------------------------------------------------

    def _check_periodically(self, scheduled_from_s: float) -> None:
        """Measures the delay of the event loop, checks the disk space, writes summaries of repeated events, and
        collects garbage if it is time to."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._metrics.event_loop_lag_seconds = max(0.0, now_s - scheduled_from_s - CHECK_INTERVAL_S)
        if self._core.is_serving:
            self._core.check_disk_space()
        repeated_events.write_summaries()
        turn_count = self._core.turn_count
        self._garbage.collect_if_due(now_s, is_calm=turn_count == self._turn_count)
        self._turn_count = turn_count
        self._watch = loop.call_later(CHECK_INTERVAL_S, self._check_periodically, now_s)

    def _entity_views(self) -> Iterator[tuple[str, EntityView]]:
        for name, namespace in self._core.namespaces.items():
            for view in namespace.views():
                yield name, view


def _raise_file_limit(connections: int) -> None:
    """Raises the soft limit of open files for the allowed number of connections, up to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _failed_to_start(error: Exception) -> int:
    log.error("start.failed", error=_sentence(error))
    return ExitCode.FAILED


def _refused_to_start(error: DeclarationRefused) -> int:
    for mistake in str(error).splitlines():
        log.error("start.refused", error=mistake)
    return ExitCode.MISUSED


def _sentence(error: Exception) -> str:
    """Returns the text of an error for the operator, without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def run(settings: Settings, topology: Topology) -> int:
    """Runs a broker until it stops. Returns the exit code."""
    import uvloop

    if settings.tls_certificate is None:
        tls.create_in_child(settings.tls_folder, settings.tls_names)

    async def main() -> int:
        try:
            server = Server(settings, topology)
        except (StorageError, OSError) as error:
            return _failed_to_start(error)
        return await server.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
