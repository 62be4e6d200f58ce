"""The clock of one namespace: by how much it is ahead of the broker's clock, or the time at which it stands still.

It reads no clock. Callers pass the time of the broker's clock.
"""

from __future__ import annotations


class NamespaceClock:
    """Follows the broker's clock at a distance, unless it is frozen."""

    __slots__ = ("frozen_ms", "offset_ms")

    def __init__(self) -> None:
        self.offset_ms = 0
        """By how much it is ahead of the broker's clock. While it is frozen: was, apart from later moves."""
        self.frozen_ms: int | None = None
        """The time at which it stands still. None: it runs."""

    def time_ms(self, broker_ms: int) -> int:
        """Returns the time that it shows when the broker's clock shows `broker_ms`."""
        return broker_ms + self.offset_ms if self.frozen_ms is None else self.frozen_ms

    def broker_time_ms(self, time_ms: int) -> int | None:
        """Returns what the broker's clock shows when this clock shows `time_ms`; a time that has passed, if it has.
        None: it stands still before that time."""
        if self.frozen_ms is not None and time_ms > self.frozen_ms:
            return None
        return time_ms - self.offset_ms

    def advance(self, amount_ms: int) -> None:
        """Moves it ahead."""
        self.offset_ms += amount_ms
        if self.frozen_ms is not None:
            self.frozen_ms += amount_ms

    def freeze(self, broker_ms: int) -> None:
        """Stops it at the time that it shows."""
        self.frozen_ms = self.time_ms(broker_ms)

    def resume(self, broker_ms: int) -> None:
        """Lets it run again, from the time that it shows."""
        if self.frozen_ms is not None:
            self.offset_ms = self.frozen_ms - broker_ms
            self.frozen_ms = None
