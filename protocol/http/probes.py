"""`/health` for orchestrators and `/metrics` for Prometheus.

`/health` has the same body as the official emulator, for scripts written for it, and needs no token. `/metrics`
contains the names of all entities, and needs a token in strict mode. A request with an `api-version` is about an
entity with that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from protocol.http.health import CONTENT_TYPE, health

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from protocol.http.broker_services import BrokerServices

HEALTH_PATH, METRICS_PATH = "/health", "/metrics"


def add_routes(application: web.Application, services: BrokerServices, entities: Handler) -> None:
    """Adds `/health` and `/metrics`. `entities` handles the requests that are about an entity."""

    async def answer_health(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        status, text = health(services.not_serving())
        return web.Response(status=status, text=text, content_type=CONTENT_TYPE)

    async def metrics(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        services.authorize_metrics(request.headers.get("Authorization"), request.host)
        body, content_type = await services.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    application.router.add_get(HEALTH_PATH, answer_health)
    application.router.add_get(METRICS_PATH, metrics)


def is_probe(request: web.Request) -> bool:
    """Returns whether a request is about the broker itself, and is answered at all times."""
    return request.path in (HEALTH_PATH, METRICS_PATH) and not _is_about_entity(request)


def _is_about_entity(request: web.Request) -> bool:
    return "api-version" in request.query
