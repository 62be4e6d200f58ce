"""Long work of one request is interrupted, so that the clients of the broker are served in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from protocol.http.control.routes import Call

WORK_S = 0.001
"""How long to work before a pause."""
PAUSE_MAX_S = 0.01

_One = TypeVar("_One")
_Other = TypeVar("_Other")


class Pace:
    """Pauses for as long as the request has worked since its last pause: it takes half of the time at most."""

    __slots__ = ("_began_s", "_stopwatch_s")

    def __init__(self, call: Call) -> None:
        self._stopwatch_s = call.services.sources.stopwatch_s
        self._began_s = self._stopwatch_s()

    async def pause(self) -> None:
        """Pauses if the request has worked long enough."""
        worked_s = self._stopwatch_s() - self._began_s
        if worked_s > WORK_S:
            await asyncio.sleep(min(worked_s, PAUSE_MAX_S))
            self._began_s = self._stopwatch_s()


async def each(
    call: Call, items: Iterable[_One], convert: Callable[[_One], _Other]
) -> list[_Other]:
    """Returns the converted items."""
    pace = Pace(call)
    converted = []
    for one in items:
        converted.append(convert(one))
        await pace.pause()
    return converted
