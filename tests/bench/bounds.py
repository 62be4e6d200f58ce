"""The figures that must be reached: one table, checked after a run.

A bound that compares two figures is preferred, because machines differ. A bound whose figures were not measured in
this run says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.bench.cases.dotnet import DOTNET_PROCESSOR, THROUGH_DOTNET, THROUGH_DOTNET_APPENDS
from tests.bench.cases.neighbours import LARGE_APPEND, LARGE_MESSAGES, NEIGHBOURS
from tests.bench.cases.ready import (
    IDLE,
    IN_SESSIONS,
    READY_EMPTY,
    SMALL_BODY_BYTES,
    memory_with,
    ready_with,
)
from tests.bench.cases.sdk import THROUGH_SDK, THROUGH_SDK_APPENDS
from tests.bench.cases.sessions import (
    KEPT_SESSIONS_AGAINST_PLAIN,
    WAITING_SESSIONS_AGAINST_PLAIN,
)
from tests.bench.cases.single import BARE_APPEND, ONE_IN_FLIGHT, STEADY
from tests.bench.cases.throughput import case_name
from tests.bench.systems import ARTEMIS, DISK, MEMORY, POSTGRESQL, RABBITMQ, SQLITE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.rows import Row

THROUGH_256 = case_name("both", 256)
THROUGH_1024 = case_name("both", 1024)
P50, P99, CPU, RATE = "ack_p50_us", "ack_p99_us", "broker_cpu_us", "messages_per_s"
VICTIM_P99_MS = 50.0
LARGE_APPENDS_MAX = 3.0
"""A large body is written twice, to the log and to the database."""
COMMITS = 2
"""A message that is sent, received and completed alone takes two commits."""
CONTROLS = 3.0
"""Or so many times what a client of an idle broker waits meanwhile, on a machine that has other work, too."""


class Measured:
    """The figures of a run, by case, system and name."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {(row.case, row.system): row for row in rows}

    def __call__(self, case: str, system: str, figure: str) -> float:
        """Raises KeyError if it was not measured."""
        return float(self._rows[case, system].figures[figure])

    def row(self, case: str, system: str) -> Row | None:
        return self._rows.get((case, system))


class Bound(NamedTuple):
    """The most or the least that a figure may be."""

    case: str
    system: str
    figure: str
    limit: Callable[[Measured], float]
    text: str
    """The limit in words, for the table."""
    is_least: bool = False

    def missed(self, measured: Measured) -> str:
        """What was found instead; empty if the bound holds or its figures were not measured."""
        try:
            found, limit = measured(self.case, self.system, self.figure), self.limit(measured)
        except KeyError:
            return ""
        holds = found >= limit if self.is_least else found <= limit
        return "" if holds else f"{self.figure} is {found:,.2f} and not {limit:,.2f} ({self.text})"


def _most(case: str, system: str, figure: str, limit: float, unit: str) -> Bound:
    return Bound(case, system, figure, lambda _: limit, f"≤ {limit:g} {unit}")


def _below(case: str, figure: str, peer: str) -> Bound:
    return Bound(
        case, SQLITE, figure, lambda of: of(case, peer, figure), f"≤ {peer}'s {figure[4:7]}"
    )


def _through(case: str, appends: str) -> Bound:
    return Bound(
        case,
        SQLITE,
        P50,
        lambda of: (
            of(case, MEMORY, P50) + 2.5 * (of(appends, DISK, P50) - of(case, MEMORY, P50)) / COMMITS
        ),
        "p50 ≤ memory + 2.5 x one of the two appends",
    )


def _neighbour(case: str) -> Bound:
    return Bound(
        case,
        SQLITE,
        "victim_p99_ms",
        lambda of: max(VICTIM_P99_MS, CONTROLS * of(case, SQLITE, "control_p99_ms")),
        f"p99 ≤ {VICTIM_P99_MS:g} ms",
    )


def _on_postgresql(case: str) -> tuple[Bound, Bound]:
    return (
        Bound(case, POSTGRESQL, RATE, lambda _: 15_000, "rate ≥ 15,000 /s", is_least=True),
        Bound(case, POSTGRESQL, CPU, lambda of: 1.5 * of(case, SQLITE, CPU), "≤ 1.5 x sqlite's µs"),
    )


BOUNDS = (
    Bound(
        ONE_IN_FLIGHT,
        SQLITE,
        P50,
        lambda of: 2.2 * of(BARE_APPEND, DISK, P50),
        "p50 ≤ 2.2 x the append",
    ),
    _below(ONE_IN_FLIGHT, P50, ARTEMIS),
    _most(ONE_IN_FLIGHT, SQLITE, CPU, 250, "µs"),
    _below(STEADY, P50, RABBITMQ),
    _below(STEADY, P99, RABBITMQ),
    _most(STEADY, SQLITE, CPU, 400, "µs"),
    _through(THROUGH_SDK, THROUGH_SDK_APPENDS),
    _through(THROUGH_DOTNET, THROUGH_DOTNET_APPENDS),
    Bound(
        DOTNET_PROCESSOR,
        SQLITE,
        RATE,
        lambda of: 0.8 * of(DOTNET_PROCESSOR, MEMORY, RATE),
        "rate ≥ 0.8 x memory's",
        is_least=True,
    ),
    _most(THROUGH_256, MEMORY, CPU, 9, "µs"),
    _most(THROUGH_256, SQLITE, CPU, 15, "µs"),
    Bound(
        THROUGH_256,
        SQLITE,
        RATE,
        lambda of: of(THROUGH_256, ARTEMIS, RATE),
        "rate ≥ Artemis's",
        is_least=True,
    ),
    Bound(
        THROUGH_256,
        SQLITE,
        RATE,
        lambda of: 2.5 * of(THROUGH_256, RABBITMQ, RATE),
        "rate ≥ 2.5 x RabbitMQ's",
        is_least=True,
    ),
    *_on_postgresql(THROUGH_256),
    *_on_postgresql(THROUGH_1024),
    _most(KEPT_SESSIONS_AGAINST_PLAIN, SQLITE, "cpu_ratio", 1.3, "x plain"),
    _most(WAITING_SESSIONS_AGAINST_PLAIN, SQLITE, "cpu_ratio", 1.3, "x plain"),
    _most(READY_EMPTY, MEMORY, "start_s", 0.3, "s"),
    _most(READY_EMPTY, SQLITE, "start_s", 0.3, "s"),
    _most(ready_with(1_000_000), SQLITE, "start_s", 1.0, "s"),
    _most(ready_with(10_000_000, SMALL_BODY_BYTES), SQLITE, "start_s", 6.0, "s"),
    _most(IDLE, MEMORY, "resident_mb", 45, "MB"),
    _most(IDLE, SQLITE, "resident_mb", 45, "MB"),
    _most(memory_with(100_000), SQLITE, "resident_mb", 150, "MB"),
    _most(memory_with(1_000_000), SQLITE, "resident_mb", 350, "MB"),
    Bound(
        f"{memory_with(1_000_000)}{IN_SESSIONS}",
        SQLITE,
        "resident_mb",
        lambda of: 1.3 * of(memory_with(1_000_000), SQLITE, "resident_mb"),
        "≤ 1.3 x without sessions",
    ),
    *(
        _neighbour(case)
        for name, case in NEIGHBOURS.items()
        if name != "nothing" and case != LARGE_MESSAGES
    ),
    Bound(
        LARGE_MESSAGES,
        SQLITE,
        "victim_p99_ms",
        lambda of: LARGE_APPENDS_MAX * of(LARGE_APPEND, DISK, P50) / 1e3,
        f"p99 ≤ {LARGE_APPENDS_MAX:g} x the append",
    ),
)


def check(rows: Sequence[Row]) -> list[Row]:
    """Mark the rows that miss a bound. Returns these rows."""
    measured = Measured(rows)
    missing = []
    for bound in BOUNDS:
        found = bound.missed(measured)
        row = measured.row(bound.case, bound.system)
        if not found or row is None:
            continue
        row.problem = f"{row.problem}; {found}" if row.problem else found
        row.is_clean = False
        missing.append(row)
    return missing
