"""The one source of time for the whole broker, and the only one that can be moved.

Locks, sessions, time-to-live, schedules, duplicate windows and idle deletion all follow it. Socket
idle time-outs and tokens do not: those are about the real network and the clients' own clocks.
"""

from __future__ import annotations

import time


class Clock:
    """Wall clock in milliseconds since the Unix epoch, never running backwards."""

    __slots__ = ("_last_ms", "_offset_ms")

    def __init__(self) -> None:
        self._offset_ms = 0
        self._last_ms = 0

    def now_ms(self) -> int:
        """Now. A wall clock set back holds still until it has caught up."""
        now_ms = self.real_ms() + self._offset_ms
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms

    @staticmethod
    def stopwatch_s() -> float:
        """For measuring how long something takes; it is no time of day."""
        return time.perf_counter()

    @staticmethod
    def real_ms() -> int:
        """The time outside, wherever this clock was moved: clients date their tokens by it."""
        return time.time_ns() // 1_000_000

    def advance_ms(self, amount_ms: int) -> int:
        """Jump ahead; everything that would have become due becomes due now."""
        if amount_ms < 0:
            raise ValueError("the clock can only be moved forward")
        self._offset_ms += amount_ms
        return self.now_ms()
