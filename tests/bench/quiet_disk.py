"""Waits until the disk has written what earlier measurements left, so that a figure shows the broker.

A disk that still writes, or frees the blocks of deleted files, answers a sync up to a hundred milliseconds later. How long
a sync takes on a quiet disk differs between machines, so the fastest that was seen in this run is the measure.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SYNCS = 100
"""In one check. Together with the pauses a check takes about half a second."""
PAUSE_S = 0.005
BLOCK = bytes(4096)
QUIET_FACTOR = 5.0
"""The disk is quiet if the slowest syncs of a check take no longer than so many times the fastest median."""
LEAST_LIMIT_MS = 2.0
"""Single syncs of a quiet disk take so long, too."""
FIRST_CHECKS = 6
"""The first wait takes at least so many checks, to find out how fast the disk is."""
WAIT_MAX_S = 60.0


class DiskState(NamedTuple):
    """How long syncs took in the last check, and how long it took until then."""

    p50_ms: float
    p99_ms: float
    waited_s: float


class QuietDisk:
    """The disk below a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "syncs"
        self._fastest_ms = float("inf")
        self._checks = 0
        self.last = DiskState(0.0, 0.0, 0.0)
        """The last state that `wait` returned."""

    def wait(self, most_s: float = WAIT_MAX_S) -> DiskState:
        """Returns when two checks after each other found the disk quiet, or the time is over."""
        began_s = time.monotonic()
        os.sync()
        quiet_checks = 0
        while True:
            p50_ms, p99_ms = self._check()
            self._checks += 1
            self._fastest_ms = min(self._fastest_ms, p50_ms)
            is_quiet = p99_ms <= max(LEAST_LIMIT_MS, QUIET_FACTOR * self._fastest_ms)
            quiet_checks = quiet_checks + 1 if is_quiet else 0
            waited_s = time.monotonic() - began_s
            if (quiet_checks >= 2 and self._checks >= FIRST_CHECKS) or waited_s > most_s:
                self.last = DiskState(p50_ms, p99_ms, waited_s)
                return self.last

    def _check(self) -> tuple[float, float]:
        """Returns the median and the 99th percentile of syncs, each after a write to the same place."""
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT)
        took_ms = []
        try:
            for _ in range(SYNCS):
                before_s = time.perf_counter()
                os.pwrite(descriptor, BLOCK, 0)
                os.fdatasync(descriptor)
                took_ms.append(1e3 * (time.perf_counter() - before_s))
                time.sleep(PAUSE_S)
        finally:
            os.close(descriptor)
        took_ms.sort()
        return took_ms[SYNCS // 2], took_ms[SYNCS * 99 // 100]
