"""The HTTP side of a broker, put together: what it needs from the server, and its routes.

Handlers translate; the core decides. Nothing here knows how commands run or where time comes from:
all of that is handed in as `BrokerServices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from config.model.limits import RELAXED, Limits, Tier
from protocol.http import entity_routes, error_responses, identity_endpoint, probes, websocket
from protocol.http.control import clock_api, topology_api

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from broker.core.contract.commands import Command, Peer
    from protocol.identity.managed_identity import TokenRequest
    from protocol.sources import ProtocolSources


class ByteReceiver(Protocol):
    """An AMQP connection as a transport sees it: what an `asyncio.Protocol` is told."""

    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


def _anybody(header: str | None, host: str) -> None:
    """Ask for nothing."""
    del header, host


class Authorize(Protocol):
    """Finds out whether a request may do what it asks for."""

    def __call__(
        self, header: str | None, path: str, claim: str, host: str, entity: str | None = None, /
    ) -> str:
        """(Authorization header, request path, claim, host, path of the entity if it is another):
        the namespace the request is for.

        Clients sign a token for the URL they ask, or for what is above it; a rule's key holds on
        the entity that declares the rule."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """What the server does for its HTTP side."""

    ask: Callable[[Callable[[Peer, object], Command]], Awaitable[object]]
    """Build a request command, run it, wait until it is durable; its value, or raise its error."""
    submit: Callable[[Command], None]
    """Run a command in the next turn; its effects go to its peer."""
    is_ready: Callable[[], bool]
    metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    """Body and content type."""
    advance_clock: Callable[[int], int] | None
    """Move the clock ahead by milliseconds, return the new time; None where that is not allowed."""
    now_ms: Callable[[], int]
    authorize: Authorize
    """Raises `Unauthorized`."""
    open_amqp: Callable[[asyncio.Transport], ByteReceiver]
    namespace_name: str
    created_time_ms: int
    sources: ProtocolSources
    tier: Tier = Tier.PREMIUM
    limits: Limits = RELAXED
    is_strict: bool = False
    """Whether claims are enforced; false: a token must be right, but none need be shown."""
    authorize_metrics: Callable[[str | None, str], None] = _anybody
    """(Authorization header, host): whether metrics may be seen; raises `Unauthorized`."""
    authorize_clock: Callable[[str | None, str], None] = _anybody
    """(Authorization header, host): whether the clock may be moved; raises `Unauthorized`."""
    topology: Callable[[str | None, str], object] | None = None
    """(Authorization header, form): all entities of the broker; raises `Unauthorized`."""
    identity_token: Callable[[TokenRequest], object] | None = None
    """A token for a client that asks as of a managed identity; raises `Unauthorized`. None: there are
    none."""
    in_namespace: Callable[[str], BrokerServices] | None = None
    """The same for another namespace; None where there is only this one."""


def build(services: BrokerServices) -> web.Application:
    """The application; whoever listens feeds it connections."""
    application = web.Application(middlewares=[error_responses.middleware(services.sources)])
    handler = entity_routes.handler(application, services)
    probes.add_routes(application, services, handler)
    identity_endpoint.add_routes(application, services, handler)
    clock_api.add_routes(application, services)
    topology_api.add_routes(application, services)
    websocket.add_routes(application, services)
    application.router.add_route("*", "/{path:.*}", handler)
    return application
