"""The testing API, with which tests move the clock instead of sleeping.

Off unless the setting `testing_api` is on. In strict mode it needs the key of the whole broker, because all
clients share the clock.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp import web

from protocol.http import request_bodies, request_origin

if TYPE_CHECKING:
    from protocol.http.broker_services import BrokerServices

CLOCK = "/$peeklock/clock"
BODY_MAX_BYTES = 4096
ADVANCE_MAX_MS = 100 * 365 * 24 * 3600 * 1000
"""A century. Later dates may not be representable."""
CLOCK_MAX_MS = 250_250_000_000_000
"""In the year 9900. Later times, such as the end of a lock, could not be written."""


def add_routes(application: web.Application, services: BrokerServices) -> None:
    """Adds the route of the clock."""

    async def clock(request: web.Request) -> web.Response:
        advance_clock = services.advance_clock
        if advance_clock is None:
            return _refusal(404, "The testing API is off; PEEKLOCK_TESTING_API=true turns it on.")
        refused = request_origin.refusal(request, services.is_known_host)
        if refused is not None:
            return _refusal(403, refused.message)
        services.authorize_clock(request.headers.get("Authorization"), request.host)
        if request.method == "GET":
            return web.json_response({"now_ms": services.now_ms()})
        if request.method != "POST":
            return _refusal(405, "The clock takes GET and POST.")
        try:
            document = json.loads(await request_bodies.read(request, BODY_MAX_BYTES))
            advance_ms = document["advance_ms"]
        except (ValueError, TypeError, KeyError, RecursionError):
            advance_ms = None
        if type(advance_ms) is not int or not 0 <= advance_ms <= ADVANCE_MAX_MS:
            return _refusal(
                400,
                'The body must be JSON such as {"advance_ms": 60000}: whole milliseconds, '
                f"from 0 to {ADVANCE_MAX_MS}.",
            )
        if services.now_ms() + advance_ms > CLOCK_MAX_MS:
            return _refusal(400, f"The clock cannot be moved beyond {CLOCK_MAX_MS} ms after 1970.")
        return web.json_response({"now_ms": advance_clock(advance_ms)})

    application.router.add_route("*", CLOCK, clock)


def _refusal(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)
