"""Handles the requests of the control API: finds the route, authorizes, checks the request, writes the answer.

The handlers of the resources get checked values and return plain data. What they raise becomes an answer here, in
the one form of `control_errors.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from broker.core.contract.errors import BrokerError, Unauthorized
from protocol.http import request_bodies, request_origin
from protocol.http.control import control_errors, openapi
from protocol.http.control.control_errors import ControlError
from protocol.http.control.control_routes import BASE
from protocol.http.control.request_models import read_body, read_query
from protocol.http.control.route_table import ROUTES, RouteTable
from protocol.http.control.routes import Call, Route, Scope
from protocol.http.error_responses import log_failure

if TYPE_CHECKING:
    from protocol.http.control_services import ControlServices

log = structlog.get_logger("peeklock.control")


class ControlApi:
    """The control API of one broker."""

    def __init__(self, services: ControlServices) -> None:
        self._services = services
        description = Route(
            "GET",
            "/openapi.json",
            "getDescription",
            "This description of the API",
            self._describe,
            None,
            scope=Scope.DESCRIPTION,
        )
        self._table = RouteTable((*ROUTES, description))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers a request."""
        try:
            answer = await self._answer(request)
        except ControlError as error:
            return error.response()
        except BrokerError as error:
            return control_errors.of_broker_error(error, str(error)).response()
        except ConnectionResetError:
            return _internal_error("The client has gone.")  # the client does not read it
        except Exception as error:  # noqa: BLE001 -- a bug, logged with its traceback
            tracking_id = log_failure(log, "control.failed", request, error)
            return _internal_error(f"The request could not be processed. TrackingId:{tracking_id}")
        return answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        routes, segments = self._table.find(_below_base(request))
        if not routes:
            raise ControlError(
                404,
                "no_such_resource",
                f"There is no resource '{request.path}'; {BASE}/openapi.json describes all.",
            )
        route = routes.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(routes))
            return ControlError(
                405,
                "method_not_allowed",
                f"'{request.path}' takes {allowed}, not {request.method}.",
            ).response({"Allow": allowed})
        self._check_origin(request)
        namespace = self._authorize(request, route, segments.get("namespace"))
        query = read_query(route.query, request.query.items())
        body = None
        if route.body is not None:
            data = await request_bodies.read(request, self._services.limits.http_body_max_bytes)
            body = read_body(route.body, data)
        answer = await route.handle(Call(self._services, namespace, segments, query, body, request))
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(answer, status=route.status)

    def _check_origin(self, request: web.Request) -> None:
        """Refuses requests of pages of other sites. What is read here is protected as well."""
        refused = request_origin.refusal(request, self._services.is_known_host, by_any_client=True)
        if refused is not None:
            raise ControlError(403, refused.code, refused.message)

    def _authorize(self, request: web.Request, route: Route, named: str | None) -> str:
        """Returns the namespace of a request. Raises `ControlError`."""
        services = self._services
        header = request.headers.get("Authorization")
        try:
            if route.scope is Scope.BROKER:
                services.authorize_broker(header, request.host)
                return services.namespaces()[0]
            path = request.path.strip("/")
            namespace = services.authorize(header, path, request.host, named)
        except Unauthorized as error:
            raise ControlError(401, "unauthorized", str(error)) from None
        if namespace is None:
            raise ControlError(
                404, "namespace_not_found", f"There is no namespace '{named}'.", "namespace"
            )
        return namespace

    async def _describe(self, call: Call) -> web.StreamResponse:
        return web.json_response(openapi.describe(self._table.routes, call.services.version))


def _below_base(request: web.Request) -> str:
    """Returns the path below the base, still percent-encoded."""
    return request.rel_url.raw_path.split("/", BASE.count("/") + 1)[-1]


def _internal_error(sentence: str) -> web.Response:
    return ControlError(500, "internal_error", sentence).response()
