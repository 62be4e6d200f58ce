"""Runs the HTTP application of `protocol/http` in this process.

Gives the application access to the core, the clock and the access rules, and gives the listeners a protocol object for
each HTTP connection. The application is loaded for the first request that needs it (`early_http.py`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from broker.app.network.early_http import EarlyHttpConnection, EarlyHttpConnections
from broker.core.contract.errors import ArgumentError
from protocol.identity.managed_identity import CLIENT_ID, LIFETIME_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import ModuleType

    from broker.app.network.amqp_clients import AmqpClients
    from broker.app.observe.run_report import RunReports
    from broker.app.runtime.clock import Clock
    from broker.app.runtime.durable_core import DurableCore
    from broker.app.security.access import Access
    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from protocol.http.broker_services import WhyNotServing
    from protocol.http.control_services import ControlServices
    from protocol.identity.managed_identity import TokenRequest
    from protocol.sources import ProtocolSources

log = structlog.get_logger("peeklock.http")

HEADER_MAX_BYTES = 65_536
"""The REST API has all broker properties in one header. The control API has an expression in the address."""
SHUTDOWN_TIMEOUT_S = 1.0


class HttpServer:
    """The HTTP application and its connections."""

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        clock: Clock,
        core: DurableCore,
        clients: AmqpClients,
        access: Access,
        sources: ProtocolSources,
        reports: Callable[[], RunReports],
        ports: Callable[[], Sequence[int]],
    ) -> None:
        """`ports` returns those of AMQP, HTTP and, if it is set, TLS."""
        self._ports = ports
        self._settings = settings
        self._reports = reports
        self._topology = topology
        self._clock = clock
        self._core = core
        self._clients = clients
        self._access = access
        self._sources = sources
        self._created_time_ms = clock.now_ms()
        self._connect: Callable[[], asyncio.Protocol] | None = None
        """Creates the protocol of a connection. None until the application is loaded."""
        self._early: EarlyHttpConnections | None = None
        self._loading: asyncio.Task[None] | None = None
        self._runner: object | None = None

    def start(
        self, not_serving: WhyNotServing, metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    ) -> Callable[[], asyncio.Protocol]:
        """Returns a function that creates the protocol of one connection."""
        limits = self._settings.limits
        early = self._early = EarlyHttpConnections(
            limits.handshake_timeout_ms / 1000,
            not_serving,
            lambda count: count + self._clients.connection_count > limits.connections_max,
            lambda: self._load(not_serving, metrics),
        )

        def new_connection() -> asyncio.Protocol:
            return EarlyHttpConnection(early) if self._connect is None else self._connect()

        return new_connection

    def _load(
        self, not_serving: WhyNotServing, metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    ) -> None:
        """Begins to load the application, if that has not begun yet."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(
                self._load_application(not_serving, metrics)
            )

    async def _load_application(
        self, not_serving: WhyNotServing, metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    ) -> None:
        """Loads the application, and gives it the connections that wait for it."""
        assert self._early is not None
        try:
            # In a thread: it takes a tenth of a second, and clients of AMQP are not to wait for it.
            with ThreadPoolExecutor(1) as thread:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(thread, _import_application)
            self._connect = await self._build(not_serving, metrics)
        except Exception:
            # Without this, the next connections would wait until their timeout, and nobody would know why.
            log.exception("http.failed")
            self._early.abort()
            self._loading = None
            return
        self._early.hand_over(self._connect)

    async def _build(
        self, not_serving: WhyNotServing, metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    ) -> Callable[[], asyncio.Protocol]:
        from aiohttp import web

        from broker.app.network.http_connections import HttpConnections
        from protocol.http.application import build
        from protocol.http.broker_services import BrokerServices
        from protocol.http.error_responses import log_unreadable_request

        logging.getLogger("aiohttp.server").addFilter(log_unreadable_request)
        default = self._core.default_namespace
        services = BrokerServices(
            ask=functools.partial(self._ask, default),
            submit=functools.partial(self._submit, default),
            not_serving=not_serving,
            metrics=metrics,
            advance_clock=self._advance_clock if self._settings.testing_api else None,
            now_ms=self._clock.now_ms,
            authorize=self._access.authorize_http,
            authorize_metrics=self._access.authorize_metrics,
            authorize_clock=self._access.authorize_clock,
            open_amqp=self._clients.open_websocket,
            namespace_name=default,
            created_time_ms=self._created_time_ms,
            sources=self._sources,
            tier=self._settings.tier,
            limits=self._settings.limits,
            is_strict=self._access.identity.strict,
            topology=self._export,
            control=self._control(),
            faults=self._clients.faults,
            request_peers=self._core.turns.http_peers,
            is_known_host=self._is_known_host,
            identity_token=(self._identity_token if self._access.issues_identity_tokens else None),
            has_namespace=self._core.namespaces.__contains__,
            in_namespace=lambda name: replace(
                services,
                ask=functools.partial(self._ask, name),
                submit=functools.partial(self._submit, name),
                namespace_name=name,
            ),
        )
        application = build(services)
        limits = self._settings.limits
        connections = HttpConnections(
            limits.handshake_timeout_ms / 1000,
            lambda count: count + self._clients.connection_count > limits.connections_max,
        )
        connections.watch(application)
        runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,  # a REST receiver that closes its connection releases its lock
            max_field_size=HEADER_MAX_BYTES,
            max_line_size=HEADER_MAX_BYTES,
            shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        await runner.setup()
        self._runner = runner
        server = runner.server
        assert server is not None
        return connections.wrap(server)

    async def stop(self) -> None:
        """Waits for running requests, for a moment."""
        if self._loading is not None:
            await self._loading
        if self._early is not None:
            self._early.abort()
        if self._runner is not None:
            await self._runner.cleanup()  # type: ignore[attr-defined]

    def _submit(self, name: str, command: Command) -> None:
        self._core.enter(name)(command)

    async def _ask(self, name: str, build: Callable[[Peer, object], Command]) -> object:
        value = await self._core.ask(name, build)
        if self._access.rules_changed():
            self._clients.check_authorization()
        return value

    def _control(self) -> ControlServices | None:
        """Returns what the control API needs, or None if it is off."""
        if not self._settings.serves_control_api:
            return None
        from broker.app.network.control_access import control_services

        return control_services(
            self._settings,
            self._topology,
            self._clock,
            self._core,
            self._clients,
            self._access,
            self._sources,
            ask=self._ask,
            clock_moved=self._clock_moved,
            reports=self._reports(),
            ports=self._ports,
        )

    def _is_known_host(self, host: str) -> bool:
        from broker.app.network.control_access import is_known_host

        return is_known_host(self._settings, host)

    def _export(self, header: str | None, form: str) -> object:
        from broker.app import topology_export

        self._access.authorize_everything(header)
        if form not in topology_export.FORMS:
            raise ArgumentError(f"The form must be one of {', '.join(topology_export.FORMS)}.")
        now = topology_export.of_namespaces(
            self._core.namespaces, self._core.registry.authorization_rules
        )
        default_ms = self._settings.default_lock_duration_ms
        return topology_export.in_form(now, form, default_ms)._asdict()

    def _identity_token(self, request: TokenRequest) -> dict[str, str]:
        token = self._access.identity_token(request)
        # In real time: a test that moves the broker's clock does not move the clock of the client.
        expires_on_s = self._clock.real_ms() // 1000 + LIFETIME_S
        return {
            "access_token": token,
            "expires_on": str(expires_on_s),
            "expires_in": str(LIFETIME_S),
            "resource": request.resource or "",
            "token_type": "Bearer",
            "client_id": CLIENT_ID,
        }

    def _advance_clock(self, amount_ms: int) -> int:
        self._core.turns.run_waiting()
        now_ms = self._clock.advance_ms(amount_ms)
        self._clock_moved()
        return now_ms

    def _clock_moved(self) -> None:
        self._core.turns.clock_moved()
        self._clients.check_authorization()


def _import_application() -> ModuleType:
    from protocol.http import application

    return application
