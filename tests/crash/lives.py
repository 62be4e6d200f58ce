"""The lives of the broker under test: how each begins, how much it may hold, how it ends.

Owns the process and the moments; clients only learn which life is on. The same seed gives the same
lives, as far as the machine keeps time.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from tests.crash.sabotage import VARIABLE
from tests.crash.workload import NO_LIFE
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.sharedctypes import Synchronized
    from pathlib import Path

    from tests.crash.workload import Workload

UPTIME_S = (0.3, 3.0)
"""Shortest and longest time from healthy to the kill."""
START_KILL_SHARE = 0.1
"""Kills that hit a broker still starting, on top of the counted ones."""
START_KILL_AFTER_S = (0.05, 0.6)
STOP_SHARE = 0.1
"""Lives that end as an orchestrator ends them, on top of the kills: those must lose nothing too."""
PAYLOAD_MEMORIES = ("128MiB", "16KiB")
"""Each life has one of these: all bodies stay in memory, or hardly any."""


def config(workloads: Sequence[type[Workload]]) -> dict[str, Any]:
    """All workloads' entities in one file."""
    return {
        "queues": {name: queue for kind in workloads for name, queue in kind.queues.items()},
        "topics": {name: topic for kind in workloads for name, topic in kind.topics.items()},
    }


class MortalBroker(BrokerProcess):
    """The broker on a file of its own, as it is or with a mistake built in."""

    def __init__(
        self, kinds: Sequence[type[Workload]], database: Path, seed: int, sabotage: str | None
    ) -> None:
        super().__init__(
            config=config(kinds),
            storage=f"sqlite:///{database}",
            testing_api=False,
            environment={VARIABLE: sabotage or "", "PEEKLOCK_LOG_LEVEL": "warning"},
        )
        self._memory_chance = random.Random(seed)
        if sabotage is not None:
            self._command[self._command.index("broker")] = "tests.crash.sabotage"

    def launch(self) -> None:
        """See `BrokerProcess.launch`."""
        payload_memory = self._memory_chance.choice(PAYLOAD_MEMORIES)
        self._environment["PEEKLOCK_PAYLOAD_MEMORY"] = payload_memory
        super().launch()


class Reaper:
    """Ends the broker's lives and starts new ones."""

    def __init__(self, broker: BrokerProcess, life: Synchronized[int], seed: int) -> None:
        self.kills = 0
        self.kills_at_start = 0
        self.stops = 0
        self.bad_stops: list[str] = []
        self.slowest_start_s = 0.0
        self._broker = broker
        self._life = life
        self._chance = random.Random(seed)

    def kill_once(self) -> None:
        """Let the broker work for a while, kill it, and bring it back."""
        while self._chance.random() < STOP_SHARE:
            self._end_life(self._stop)
        self._end_life(self._kill)

    def _end_life(self, end: Callable[[], None]) -> None:
        time.sleep(self._chance.uniform(*UPTIME_S))
        life = self._life.value
        # Workloads must know before it happens, or they would call it the broker's own failure.
        self._life.value = NO_LIFE
        end()
        self._broker.start()
        self.slowest_start_s = max(self.slowest_start_s, self._broker.ready_after_s)
        self._life.value = life + 1

    def _kill(self) -> None:
        self._broker.kill()
        self.kills += 1
        while self._chance.random() < START_KILL_SHARE:
            self._broker.launch()
            time.sleep(self._chance.uniform(*START_KILL_AFTER_S))
            self._broker.kill()
            self.kills_at_start += 1

    def _stop(self) -> None:
        self.stops += 1
        code = self._broker.terminate()
        if code:
            self.bad_stops.append(f"the broker ended with {code}")

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of a working broker, {self.kills_at_start} of one still starting, "
            f"{self.stops} orderly stops; slowest start {self.slowest_start_s:.2f} s"
        )
