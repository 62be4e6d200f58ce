"""Adds the routes of the control API. Its modules are loaded with the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from protocol.http.control import event_stream, open_waits

if TYPE_CHECKING:
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


def add_routes(application: web.Application, control: ControlServices | None) -> None:
    """Adds the control API. None: it is off."""
    loaded: list[ControlApi] = []
    event_stream.prepare(application)
    open_waits.prepare(application)

    async def handle(request: web.Request) -> web.StreamResponse:
        if control is None:
            return web.json_response(
                {"error": {"code": "control_api_off", "message": IS_OFF, "field": None}}, status=404
            )
        if not loaded:
            # In a thread: loading takes longer than other clients should wait.
            loaded.append(await asyncio.get_running_loop().run_in_executor(None, _load, control))
        return await loaded[0].handle(request)

    application.router.add_route("*", BASE, handle)
    application.router.add_route("*", BASE + "/{path:.*}", handle)


def _load(control: ControlServices) -> ControlApi:
    from protocol.http.control.control_api import ControlApi

    return ControlApi(control)
