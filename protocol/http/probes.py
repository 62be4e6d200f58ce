"""`/health` for orchestrators and `/metrics` for Prometheus.

`/health` has the same body as the official emulator, for scripts written for it, and needs no token. `/metrics`
contains the names of all entities, and needs a token in strict mode. A request with an `api-version` is about an
entity with that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from protocol.http.broker_services import BrokerServices

HEALTHY = '{"status":"healthy","message":"Service is healthy."}'
UNHEALTHY = '{"status":"unhealthy","message":"Service not available. Please try after some time."}'


def add_routes(application: web.Application, services: BrokerServices, entities: Handler) -> None:
    """Adds `/health` and `/metrics`. `entities` handles the requests that are about an entity."""

    async def health(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        ready = services.is_ready()
        return web.Response(
            status=200 if ready else 503,
            text=HEALTHY if ready else UNHEALTHY,
            content_type="application/json",
        )

    async def metrics(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        services.authorize_metrics(request.headers.get("Authorization"), request.host)
        body, content_type = await services.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)


def _is_about_entity(request: web.Request) -> bool:
    return "api-version" in request.query
