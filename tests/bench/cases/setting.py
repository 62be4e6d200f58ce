"""What a case is run with, and how rounds of it are compared.

What the figures mean is said by their names; whether the messages came through whole is decided by the generator.
"""

from __future__ import annotations

import atexit
import statistics
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.bench import appending_broker
from tests.bench.plain_environment import plain_python
from tests.bench.rows import Row
from tests.bench.systems import DISK, MEMORY, POSTGRESQL
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

LOCK = {"lock_duration": "PT5M"}
"""So that no lock runs out on a slow machine, which would look like a duplicate."""
QUEUES = {
    "measured": LOCK,
    "backlog": LOCK | {"max_size_in_megabytes": 5120},
    "sessions": LOCK | {"requires_session": True, "max_size_in_megabytes": 5120},
}

IN_FLIGHT = 1000
"""Unsettled sends, and link credit, over all links of a role."""
FULL_COUNT = 100_000


@cache
def postgres_server() -> PostgresServer:
    """The server for all measurements, which syncs every commit. It is started by the first that needs it."""
    from tests.support.postgres_server import PostgresServer

    server = PostgresServer(durable=True, settings={"shared_buffers": "256MB"})
    atexit.register(server.close)
    server.__enter__()
    return server


@dataclass(frozen=True, slots=True)
class Setting:
    """What a case is run with."""

    storage: str
    folder: Path
    divisor: int = 1
    """Counts are divided by this: 1 for figures to keep, more for a quick look."""

    def count(self, full: int) -> int:
        return max(full // self.divisor, 1)

    def on(self, storage: str) -> Setting:
        """The same with another storage."""
        return replace(self, storage=storage)

    @property
    def file(self) -> Path:
        return self.folder / "bench.db"

    def broker(
        self, config: Mapping[str, Any] | None = None, *, movable_clock: bool = False
    ) -> BrokerProcess:
        """A broker on a store that is empty; the folder is this case's own. `DISK` is a broker in memory that appends to a
        file (`appending_broker.py`)."""
        url = "memory:" if self.storage in (MEMORY, DISK) else f"sqlite:///{self.file}"
        if self.storage == POSTGRESQL:
            url = postgres_server().url()
        entities = dict(config or {"queues": QUEUES})
        broker = BrokerProcess(
            config=entities,
            storage=url,
            testing_api=movable_clock,
            python=plain_python(),
            environment={appending_broker.VARIABLE: str(self.folder / "appended")},
        )
        if self.storage == DISK:
            broker.use_module(appending_broker.__name__)
        return broker


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rounds of a measured thing, each beside a plain one in the same broker."""

    pairs: list[tuple[Row, Row]] = field(default_factory=list)

    def row(self, case: str, *, min_speed: float = 0.0) -> Row:
        """The middle one of the rounds' ratios: one disturbed round must not decide."""
        speed, cpu = self._ratio("messages_per_s"), self._ratio("broker_cpu_us")
        problems = []
        if speed < min_speed:
            problems.append(f"{speed:.2f} of the speed, at least {min_speed} is wanted")
        figures = {"speed_ratio": speed, "cpu_ratio": cpu}
        return Row(case, figures, not problems, "; ".join(problems))

    def _ratio(self, name: str) -> float:
        ratios: list[float] = [
            one.figures.get(name, 0.0) / max(plain.figures.get(name, 0.0), 1e-9)
            for one, plain in self.pairs
        ]
        return statistics.median(ratios)


def in_turns(rounds: int, names: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Each goes first in every other round, so that a drift of the machine cancels out."""
    for number in range(rounds):
        yield number, names if number % 2 == 0 else names[::-1]
