"""A broker under load from many clients, for minutes or hours, and its memory.

Measures and judges; the clients are in `churn.py`. They leave nothing behind, so after some time
the process must stop growing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.observe import cpu_s, resident_megabytes
from tests.soak.churn import Churn, entities
from tests.support.server import BrokerProcess

SAMPLE_EVERY_S = 2.0
TELL_EVERY_S = 30.0
GROWTH_ALLOWED_MEGABYTES = 8.0
"""From the second quarter of the run to its last: what an allocator may take to settle."""
FAILURES_SHOWN = 5


class Watched(NamedTuple):
    """What became of it."""

    seconds: float
    acts: int
    messages: int
    failures: list[str]
    first_megabytes: float
    """Median of the second quarter: the first is for warming up."""
    last_megabytes: float
    """Median of the last quarter."""
    cpu_s: float

    @property
    def failed(self) -> bool:
        return bool(self.failures) or self.growth_megabytes > GROWTH_ALLOWED_MEGABYTES

    @property
    def growth_megabytes(self) -> float:
        return self.last_megabytes - self.first_megabytes


def run_broker(seed: int, minutes: float, *, on_disk: bool) -> Watched:
    """Run one for so long."""
    with tempfile.TemporaryDirectory(prefix="peeklock-soak-") as folder:
        storage = f"sqlite:///{Path(folder) / 'soak.db'}" if on_disk else "memory:"
        with BrokerProcess(config=entities(), storage=storage) as broker:
            return _watch(broker, seed, minutes)


def _watch(broker: BrokerProcess, seed: int, minutes: float) -> Watched:
    churn = Churn(broker.connection_string, seed)
    samples: list[float] = []
    begun_s = told_s = time.monotonic()
    churn.start()
    try:
        while time.monotonic() - begun_s < minutes * 60 and broker.is_running:
            time.sleep(SAMPLE_EVERY_S)
            samples.append(resident_megabytes(broker.process_id))
            if time.monotonic() - told_s > TELL_EVERY_S:
                told_s = time.monotonic()
                spent_s = round(told_s - begun_s)
                print(
                    f"  {spent_s:>6} s  {churn.acts:>7} acts  {churn.messages:>8} messages  "
                    f"{samples[-1]:.1f} MB  {len(churn.failures)} failures",
                    flush=True,
                )
    finally:
        churn.stop()
    quarter = max(1, len(samples) // 4)
    for failure in churn.failures[:FAILURES_SHOWN]:
        print(f"  {failure}")
    return Watched(
        time.monotonic() - begun_s,
        churn.acts,
        churn.messages,
        churn.failures,
        statistics.median(samples[quarter : 2 * quarter] or samples),
        statistics.median(samples[-quarter:]),
        cpu_s(broker.process_id),
    )
