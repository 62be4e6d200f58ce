"""Runs an asynchronous test on a virtual clock: a sleep takes no time, and timers fire in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

THREAD_CALL_S = 0.001
"""How long a call in a thread takes."""


def on_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a coroutine function without fixtures."""

    def run() -> None:
        loop = VirtualLoop(lambda: (THREAD_CALL_S, THREAD_CALL_S))
        try:
            loop.run_until_complete(test())
        finally:
            loop.close()

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
