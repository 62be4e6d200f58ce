"""HTTP clients that begin a request and do not go on: dropped after a while.

What a request means is served elsewhere; here is only how long its head may take. Bodies have a
limit of their own, where they are read. A connection that has had a request is left alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler


class Patience:
    """Watches new connections until their first request is there."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._waiting: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def watch(self, application: web.Application) -> None:
        """Learn of the requests that come."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            timer = self._waiting.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            return await handler(request)

        application.middlewares.insert(0, note)

    def over(self, connect: Callable[[], web.RequestHandler]) -> Callable[[], asyncio.Protocol]:
        """The same protocols, each with a time limit."""

        def connect_for_a_while() -> asyncio.Protocol:
            protocol = connect()
            loop = asyncio.get_running_loop()
            self._waiting[protocol] = loop.call_later(self._timeout_s, self._drop, protocol)
            return protocol

        return connect_for_a_while

    def _drop(self, protocol: web.RequestHandler) -> None:
        del self._waiting[protocol]
        if protocol.transport is not None:
            protocol.transport.abort()
