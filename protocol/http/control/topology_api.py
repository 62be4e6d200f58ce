"""All entities of the broker in one answer, for `peeklock export`.

The answer contains keys, so the request needs the key of the whole broker, and no page of another web site can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from broker.core.contract.errors import BrokerError
from protocol.http import request_origin

if TYPE_CHECKING:
    from protocol.http.broker_services import BrokerServices

PATH = "/$peeklock/topology"


def add_routes(application: web.Application, services: BrokerServices) -> None:
    """Adds the route of the topology."""
    read_topology = services.topology
    if read_topology is None:
        return

    async def topology(request: web.Request) -> web.Response:
        refused = request_origin.refusal(request, services.is_known_host, by_any_client=True)
        if refused is not None:
            return web.json_response({"error": refused.message}, status=403)
        try:
            content = read_topology(
                request.headers.get("Authorization"), request.query.get("form", "yaml")
            )
        except BrokerError as error:
            refusal = services.sources.refusals.refuse(error, operation="export")
            return web.json_response({"error": refusal.text}, status=refusal.status)
        return web.json_response(content)

    application.router.add_get(PATH, topology)
