"""The broker's clock as the control API moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.http.control_services import ClockState

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.app.runtime.clock import Clock


class ClockControl:
    """Implements `ControlledClock`."""

    def __init__(
        self, clock: Clock, run_waiting: Callable[[], None], moved: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._run_waiting = run_waiting
        """Runs commands that came before the clock is moved."""
        self._moved = moved
        """Does what has become due, and sets the timers again."""

    def state(self) -> ClockState:
        """Returns the time that it shows."""
        clock = self._clock
        return ClockState(clock.now_ms(), clock.is_frozen, clock.ahead_ms)

    def advance(self, amount_ms: int) -> ClockState:
        """Moves the clock ahead."""
        self._run_waiting()
        self._clock.advance_ms(amount_ms)
        self._moved()
        return self.state()

    def freeze(self) -> ClockState:
        """Stops the clock."""
        self._clock.freeze()
        return self.state()

    def resume(self) -> ClockState:
        """Lets the clock run again."""
        self._clock.resume()
        self._moved()
        return self.state()
