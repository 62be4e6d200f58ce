"""Adds the routes of the control API. Its modules are loaded with the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from protocol.http.control import event_stream, open_waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.http.control.control_api import ControlApi
    from protocol.http.control_services import ControlServices

BASE = "/$peeklock/v1"
IS_OFF = (
    "The control API is off; it is on with authorization=development, and with control_api=true also in strict "
    "authorization."
)


def is_control_path(path: str) -> bool:
    """Whether the path of a request is one of this API."""
    return path == BASE or path.startswith(BASE + "/")


def add_routes(
    application: web.Application, control: ControlServices | None
) -> Callable[[], object]:
    """Adds the control API. None: it is off. Returns a function that begins to load it, before the first request."""
    loading: list[asyncio.Future[ControlApi]] = []
    event_stream.prepare(application)
    open_waits.prepare(application)

    async def handle(request: web.Request) -> web.StreamResponse:
        if control is None:
            return web.json_response(
                {"error": {"code": "control_api_off", "message": IS_OFF, "field": None}}, status=404
            )
        # A client that goes away does not end what others wait for.
        api = await asyncio.shield(load(control))
        return await api.handle(request)

    def load(control: ControlServices) -> asyncio.Future[ControlApi]:
        if not loading or (loading[0].done() and loading[0].exception()):
            # In a thread: loading takes longer than other clients should wait.
            loading[:] = [asyncio.get_running_loop().run_in_executor(None, _load, control)]
        return loading[0]

    application.router.add_route("*", BASE, handle)
    application.router.add_route("*", BASE + "/{path:.*}", handle)
    return lambda: control and load(control)


def _load(control: ControlServices) -> ControlApi:
    from protocol.http.control.control_api import ControlApi

    return ControlApi(control)
