"""The broker's clock, which tests can move.

Locks, sessions, time-to-live, schedules, duplicate windows and idle deletion use this clock. Idle timeouts of
sockets and lifetimes of tokens use real time: they concern the network and the clocks of the clients.
"""

from __future__ import annotations

import time

TIMER_MAX_S = 3600.0
"""The longest timer. A later deadline is checked again then, because the system clock may have been set."""


def timer_delay_s(delay_ms: int) -> float:
    """Returns the delay of a timer for an event that is due in `delay_ms`."""
    return min(max(0.0, delay_ms / 1000), TIMER_MAX_S)


class Clock:
    """Wall clock in milliseconds since the Unix epoch, never running backwards."""

    __slots__ = ("_last_ms", "_offset_ms", "is_frozen")

    def __init__(self) -> None:
        self._offset_ms = 0
        self._last_ms = 0
        self.is_frozen = False
        """Whether it stands still. `advance_ms` moves it all the same."""

    def now_ms(self) -> int:
        """Returns the time. If the system clock is set back, the last time is returned until it is passed."""
        if self.is_frozen:
            return self._last_ms
        now_ms = self.real_ms() + self._offset_ms
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms

    stopwatch_s = staticmethod(time.perf_counter)
    """Returns a monotonic time for measuring durations. It is read several times in every turn."""

    @staticmethod
    def uptime_s() -> float:
        """Returns a monotonic time that also counts while the machine is suspended. A lease is measured by it."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @staticmethod
    def real_ms() -> int:
        """Returns the system time, even if this clock was moved. Clients date their tokens by it."""
        return time.time_ns() // 1_000_000

    def advance_ms(self, amount_ms: int) -> int:
        """Moves the clock ahead and returns the new time. Everything due until then becomes due now."""
        if amount_ms < 0:
            raise ValueError("the clock can only be moved forward")
        if self.is_frozen:
            self._last_ms += amount_ms
        else:
            self._offset_ms += amount_ms
        return self.now_ms()

    @property
    def ahead_ms(self) -> int:
        """By how much it is ahead of the system clock; negative if it is behind, after it was frozen."""
        return self._last_ms - self.real_ms() if self.is_frozen else self._offset_ms

    def freeze(self) -> None:
        """Stops the clock at the time that it shows."""
        self.now_ms()
        self.is_frozen = True

    def resume(self) -> None:
        """Lets the clock run again, from the time that it shows."""
        if self.is_frozen:
            self.is_frozen = False
            self._offset_ms = self._last_ms - self.real_ms()
