"""Everything whose path is an entity's: one route, two ways to treat it.

Administration and the data plane share paths, so the choice is made here, by what the path names and
the verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.errors import EntityNotFound
from protocol.http import paths
from protocol.http.admin import Administration
from protocol.http.data_plane import DataPlane

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler

    from protocol.http.application import Services


def handler(application: web.Application, services: Services) -> Handler:
    """What serves every path that no other route takes."""
    administration = Administration(services)
    data_plane = DataPlane(services)
    application.on_shutdown.append(data_plane.stop)

    async def handle(request: web.Request) -> web.StreamResponse:
        match paths.parse(request.path, request.method):
            case None:
                raise EntityNotFound(request.path)
            case paths.Messages() | paths.Head() | paths.LockedMessage() as resource:
                return await data_plane.handle(request, resource)
            case resource:
                return await administration.handle(request, resource)

    return handle
