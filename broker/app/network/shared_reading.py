"""The time that clients' bytes may take, shared by those that have sent much.

A client whose bytes take long waits here with the rest of them. In each pass of the event loop, those
that wait take turns for some milliseconds in all, however many they are. A client that has sent little
does not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

PASS_S = 0.003
"""How long those that wait may keep everybody else waiting."""
TURN_S = 0.0015
"""How long one of them may keep the others waiting."""


class WaitingClient(Protocol):
    """A client with bytes that were read and not yet looked at."""

    def process_more(self, ends_s: float) -> bool:
        """Take of them until this time; whether any are left."""


class SharedReading:
    """Whose bytes are next."""

    def __init__(self, is_held_up: Callable[[], bool] = lambda: False) -> None:
        self._is_held_up = is_held_up
        """Whether so many answers wait to be told that nobody should ask for more in great numbers."""
        self._waiting: deque[WaitingClient] = deque()
        self._scheduled = False

    def new_bytes_end_s(self) -> float:
        """Until when a client that does not wait may take of its new bytes."""
        return perf_counter() + (TURN_S if self._waiting else PASS_S)

    def add(self, client: WaitingClient) -> None:
        """Have a client take the rest of its bytes when it is its turn."""
        self._waiting.append(client)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        now_s = perf_counter()
        ends_s = now_s + PASS_S
        while self._waiting and now_s < ends_s and not self._is_held_up():
            client = self._waiting.popleft()
            if client.process_more(min(ends_s, now_s + TURN_S)):
                self._waiting.append(client)
            now_s = perf_counter()
        if self._waiting:
            self._schedule()
