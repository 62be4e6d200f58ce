"""Routes requests with the path of an entity to administration or to the data plane.

Both share paths, so the path and the method decide. A request is authorized before anything else is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.http import permission, request_origin, request_paths
from protocol.http.admin.administration_api import AdministrationApi
from protocol.http.data_plane.data_plane_api import DataPlane
from protocol.http.error_responses import ForeignOrigin

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler

    from protocol.http.broker_services import BrokerServices

_READING = {"GET", "HEAD", "OPTIONS"}


def handler(application: web.Application, services: BrokerServices) -> Handler:
    """Returns the handler of all paths that have no route of their own."""
    served: dict[str, tuple[AdministrationApi, DataPlane]] = {}

    async def stop(application: web.Application) -> None:
        for _, data_plane in served.values():
            await data_plane.stop(application)

    application.on_shutdown.append(stop)

    def planes(namespace: str) -> tuple[AdministrationApi, DataPlane]:
        if namespace not in served:
            for deleted in [name for name in served if not services.has_namespace(name)]:
                del served[deleted]
            within = services
            if services.in_namespace is not None:
                within = services.in_namespace(namespace)
            served[namespace] = AdministrationApi(within), DataPlane(within)
        return served[namespace]

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method not in _READING:
            refused = request_origin.refusal(request, services.is_known_host)
            if refused is not None:
                raise ForeignOrigin(refused.message)
        resource = request_paths.parse(request.path, request.method)
        try:
            namespace = permission.authorize(services, request, resource)
        except permission.MissingManage:
            if request.method != "GET" or not isinstance(
                resource, request_paths.EntityResource | request_paths.NamespaceRoot
            ):
                raise
            # A client with any claim here may learn that the entity does not exist.
            administration, _ = planes(permission.namespace_of(services, request, resource))
            if await administration.exists(resource):
                raise
            return administration.public_feed()
        administration, data_plane = planes(namespace)
        if isinstance(resource, request_paths.MessageResource):
            return await data_plane.handle(request, resource)
        return await administration.handle(request, resource)

    return handle
