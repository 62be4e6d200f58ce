"""What orchestrators and scrapers ask: is it up, and how is it doing.

`/health` answers word for word as the official emulator does, for scripts written against it, and asks
for no token; `/metrics` names every entity, and asks for one in strict mode. With an `api-version`
the same path means an entity of that name.
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
    """Serve `/health` and `/metrics`; `entities` gets the requests that mean an entity."""

    async def health(request: web.Request) -> web.StreamResponse:
        if _means_entity(request):
            return await entities(request)
        ready = services.is_ready()
        return web.Response(
            status=200 if ready else 503,
            text=HEALTHY if ready else UNHEALTHY,
            content_type="application/json",
        )

    async def metrics(request: web.Request) -> web.StreamResponse:
        if _means_entity(request):
            return await entities(request)
        services.authorize_metrics(request.headers.get("Authorization"), request.host)
        body, content_type = await services.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)


def _means_entity(request: web.Request) -> bool:
    return "api-version" in request.query
