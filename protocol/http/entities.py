"""Everything whose path is an entity's: one route, two ways to treat it.

Administration and the data plane share paths, so the choice is made here, by what the path names and
the verb. Nothing is looked at before the client may do what it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.errors import EntityNotFound
from protocol.http import paths
from protocol.http.admin import Administration
from protocol.http.data_plane import DataPlane
from protocol.identity import LISTEN, MANAGE, SEND

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler

    from protocol.http.application import Services

CLAIMS = {paths.Messages: SEND, paths.Head: LISTEN, paths.LockedMessage: LISTEN}
"""What the data plane asks for; all else is administration and asks for Manage."""


def handler(application: web.Application, services: Services) -> Handler:
    """What serves every path that no other route takes."""
    served: dict[str, tuple[Administration, DataPlane]] = {}

    async def stop(application: web.Application) -> None:
        for _, data_plane in served.values():
            await data_plane.stop(application)

    application.on_shutdown.append(stop)

    def planes(namespace: str) -> tuple[Administration, DataPlane]:
        if namespace not in served:
            within = services
            if services.in_namespace is not None:
                within = services.in_namespace(namespace)
            served[namespace] = Administration(within), DataPlane(within)
        return served[namespace]

    async def handle(request: web.Request) -> web.StreamResponse:
        resource = paths.parse(request.path, request.method)
        if resource is None:
            raise EntityNotFound(request.path)
        namespace = services.authorize(
            request.headers.get("Authorization"),
            request.path.strip("/"),
            CLAIMS.get(type(resource), MANAGE),
            request.host,
        )
        administration, data_plane = planes(namespace)
        if isinstance(resource, paths.Runtime):
            return await data_plane.handle(request, resource)
        return await administration.handle(request, resource)

    return handle
