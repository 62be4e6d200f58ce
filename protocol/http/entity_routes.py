"""Everything whose path is an entity's: one route, two ways to treat it.

Administration and the data plane share paths, so the choice is made here, by what the path names and
the verb. Nothing is looked at before the client may do what it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.http import permission, request_paths
from protocol.http.admin.administration_api import AdministrationApi
from protocol.http.data_plane.handlers import DataPlane

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler

    from protocol.http.broker_services import BrokerServices


def handler(application: web.Application, services: BrokerServices) -> Handler:
    """What serves every path that no other route takes."""
    served: dict[str, tuple[AdministrationApi, DataPlane]] = {}

    async def stop(application: web.Application) -> None:
        for _, data_plane in served.values():
            await data_plane.stop(application)

    application.on_shutdown.append(stop)

    def planes(namespace: str) -> tuple[AdministrationApi, DataPlane]:
        if namespace not in served:
            within = services
            if services.in_namespace is not None:
                within = services.in_namespace(namespace)
            served[namespace] = AdministrationApi(within), DataPlane(within)
        return served[namespace]

    async def handle(request: web.Request) -> web.StreamResponse:
        resource = request_paths.parse(request.path, request.method)
        try:
            namespace = permission.authorize(services, request, resource)
        except permission.MissingManage:
            if request.method != "GET" or not isinstance(
                resource, request_paths.EntityResource | request_paths.NamespaceRoot
            ):
                raise
            # Whoever may do anything here may see that there is no such entity.
            administration, _ = planes(permission.namespace_of(services, request, resource))
            if await administration.exists(resource):
                raise
            return administration.public_feed()
        administration, data_plane = planes(namespace)
        if isinstance(resource, request_paths.MessageResource):
            return await data_plane.handle(request, resource)
        return await administration.handle(request, resource)

    return handle
