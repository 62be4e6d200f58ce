"""Builds the aiohttp application: all routes of the HTTP side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from protocol.http import (
    entity_routes,
    error_responses,
    identity_endpoint,
    probes,
    serving_gate,
    websocket,
)
from protocol.http.console import console_routes
from protocol.http.control import clock_api, control_routes, topology_api

if TYPE_CHECKING:
    from protocol.http.broker_services import BrokerServices


def build(services: BrokerServices) -> web.Application:
    """Returns the application. It opens no socket: `broker/app/network` gives it connections."""
    application = web.Application(
        middlewares=[
            error_responses.middleware(services.sources),
            serving_gate.middleware(services.not_serving),
        ]
    )
    handler = entity_routes.handler(application, services)
    probes.add_routes(application, services, handler)
    identity_endpoint.add_routes(application, services, handler)
    clock_api.add_routes(application, services)
    topology_api.add_routes(application, services)
    load_control_api = control_routes.add_routes(application, services.control)
    websocket.add_routes(application, services)
    console_routes.add_routes(application, handler, load_control_api)
    application.router.add_route("*", "/{path:.*}", handler)
    return application
