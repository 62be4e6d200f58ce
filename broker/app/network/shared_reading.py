"""Shares the time for processing received bytes among the clients that have sent much.

A client whose bytes take long to process waits here with the rest of its bytes. In each pass of the event
loop, the waiting clients take turns for some milliseconds in total, however many they are. A client that has
sent little does not wait. What cannot be divided, such as the end of a connection with thousands of links, may
take longer than that. Then the waiting clients pause, so that others get most of the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

PASS_S = 0.003
"""The time for all waiting clients in one pass of the event loop."""
CLIENT_S = 0.0015
"""The time for one waiting client before the next one."""
PAUSE_FACTOR = 4
PAUSE_MAX_S = 0.1
"""How long the waiting clients pause after they have taken too long: so many times as long, up to a maximum."""


class WaitingClient(Protocol):
    """A client with bytes that were read and not processed yet."""

    def process_more(self, ends_s: float) -> bool:
        """Processes some of them until this time. Returns whether any are left."""


class SharedReading:
    """Decides whose bytes are processed next."""

    def __init__(self, is_held_up: Callable[[], bool] = lambda: False) -> None:
        self._is_held_up = is_held_up
        """Returns whether so many effects wait to be released that no more bytes of waiting clients are processed."""
        self._waiting: deque[WaitingClient] = deque()
        self._scheduled = False

    def new_bytes_end_s(self) -> float:
        """Returns until when a client that does not wait may process its new bytes."""
        return perf_counter() + (CLIENT_S if self._waiting else PASS_S)

    def add(self, client: WaitingClient) -> None:
        """Lets a client process the rest of its bytes when it is its turn."""
        self._waiting.append(client)
        self._schedule()

    def _schedule(self, pause_s: float = 0.0) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if pause_s > 0:
            loop.call_later(pause_s, self._run)
        else:
            loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        busy_s = -thread_time()  # a loaded machine is no reason to pause
        now_s = perf_counter()
        ends_s = now_s + PASS_S
        try:
            while self._waiting and now_s < ends_s and not self._is_held_up():
                client = self._waiting.popleft()
                if client.process_more(min(ends_s, now_s + CLIENT_S)):
                    self._waiting.append(client)
                now_s = perf_counter()
        finally:  # the others go on, whatever a client does
            busy_s += thread_time()
            if self._waiting:
                pause_s = min(PAUSE_FACTOR * busy_s, PAUSE_MAX_S) if busy_s > 2 * PASS_S else 0.0
                self._schedule(pause_s)
