"""Ends the waits of the control API when the broker stops, so that their clients get an answer.

Does not know what they wait for. Without this they would hold up the stop, and end without an answer.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

OPEN_WAITS: web.AppKey[set[asyncio.Timeout]] = web.AppKey("open_waits", set)
"""The timeouts of all waits. One that has expired and is not here any more was ended by the stop."""


def prepare(application: web.Application) -> None:
    """Makes an application able to answer waits. They end when it stops."""
    waits: set[asyncio.Timeout] = set()
    application[OPEN_WAITS] = waits

    async def end_waits(_: web.Application) -> None:
        now_s = asyncio.get_running_loop().time()
        while waits:
            waits.pop().reschedule(now_s)

    application.on_shutdown.append(end_waits)
