"""Refuses requests while the broker does not serve: it starts, stops, or another process owns its store.

Probes are answered at all times. Every other request gets 503 and the reason, and may be sent again; requests of the
control API in its own form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from broker.core.contract.errors import ServerBusy
from protocol.http.control import control_errors
from protocol.http.control.control_routes import is_control_path
from protocol.http.probes import is_probe

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

    from protocol.http.broker_services import WhyNotServing


def middleware(not_serving: WhyNotServing) -> Middleware:
    """Returns the middleware."""

    @web.middleware
    async def refuse_unless_serving(request: web.Request, handler: Handler) -> web.StreamResponse:
        why = not_serving()
        if why is not None and not is_probe(request):
            busy = ServerBusy(why[1])
            if is_control_path(request.path):
                return control_errors.of_broker_error(busy, str(busy)).response()
            raise busy
        return await handler(request)

    return refuse_unless_serving
