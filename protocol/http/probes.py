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


def add_routes(application: web.Application, services: BrokerServices, entities: Handler) -> None:
    """Adds `/health` and `/metrics`. `entities` handles the requests that are about an entity."""

    async def answer_health(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        status, text = health(is_ready=services.is_ready())
        return web.Response(status=status, text=text, content_type=CONTENT_TYPE)

    async def metrics(request: web.Request) -> web.StreamResponse:
        if _is_about_entity(request):
            return await entities(request)
        services.authorize_metrics(request.headers.get("Authorization"), request.host)
        body, content_type = await services.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    application.router.add_get("/health", answer_health)
    application.router.add_get("/metrics", metrics)


def _is_about_entity(request: web.Request) -> bool:
    return "api-version" in request.query
