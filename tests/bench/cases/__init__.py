"""The cases that are measured. A new one is a function that yields rows, and a line in CASES."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.bench.cases.dotnet import through_dotnet
from tests.bench.cases.fan_out import fan_out
from tests.bench.cases.large import backlog, duplicates, scheduled
from tests.bench.cases.neighbours import neighbours
from tests.bench.cases.ready import SMALL_BODY_BYTES, empty, waiting, waiting_in_sessions
from tests.bench.cases.rules import rules
from tests.bench.cases.sdk import through_sdk
from tests.bench.cases.sessions import sessions
from tests.bench.cases.single import one_at_a_time, steady
from tests.bench.cases.throughput import throughput
from tests.bench.systems import LOCAL, MEMORY, SQLITE, STORAGES, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting
    from tests.bench.rows import Row

DEFAULT, MORE, LARGE, TEN_MILLION = "default", "more", "large", "ten-million"
"""When a case runs: always, or if the option of this name is given."""


@dataclass(frozen=True, slots=True)
class Case:
    """A measurement, which yields rows for the storages that it names."""

    name: str
    run: Callable[[Setting], Iterator[Row]]
    storages: tuple[str, ...] = STORAGES
    group: str = DEFAULT
    on_target: Callable[[Setting, Target], Iterator[Row]] | None = None
    """The same for a broker that runs already, if other brokers can be measured with it."""


def on_targets(
    name: str, run: Callable[[Setting, Target], Iterator[Row]], group: str = DEFAULT
) -> Case:
    """A case that needs only a queue: for Peeklock a new broker, and for others the one that runs."""

    def on_storages(setting: Setting) -> Iterator[Row]:
        with setting.broker() as broker:
            yield from run(setting, Target.of(setting.storage, broker))

    return Case(name, on_storages, group=group, on_target=run)


def on_storages(
    name: str,
    run: Callable[[Setting, str], Iterator[Row]],
    storages: tuple[str, ...] = LOCAL,
    group: str = DEFAULT,
) -> Case:
    """A case that needs Peeklock, once for each storage."""

    def on_one(setting: Setting) -> Iterator[Row]:
        for row in run(setting, f"{name},"):
            yield replace(row, system=setting.storage)

    return Case(name, on_one, storages, group)


CASES = (
    on_targets("single", one_at_a_time),
    on_targets("steady", steady),
    on_targets("throughput 256 B", throughput(256)),
    on_targets("throughput 1 KiB", throughput(1024)),
    Case("SDK", through_sdk, storages=(SQLITE,)),
    Case(".NET", through_dotnet, storages=(SQLITE,)),
    on_storages("1,000 sessions, 256 B", sessions, (SQLITE,)),
    on_storages("ready empty", empty, STORAGES),
    on_storages("waiting 100,000", waiting(100_000), STORAGES),
    on_storages("waiting 1,000,000", waiting(1_000_000), (SQLITE,)),
    on_storages("waiting 1,000,000 in sessions", waiting_in_sessions(1_000_000), (SQLITE,)),
    on_storages(
        "waiting 10,000,000", waiting(10_000_000, SMALL_BODY_BYTES), (SQLITE,), TEN_MILLION
    ),
    Case("neighbours", neighbours, storages=(SQLITE,)),
    on_targets("throughput 256 B, 10 connections", throughput(256, 10), MORE),
    on_targets("throughput 1 KiB, 10 connections", throughput(1024, 10), MORE),
    on_storages("1,000 sessions, 256 B", sessions, (MEMORY,), MORE),
    on_storages("topic with 1, 256 B", fan_out(1), group=MORE),
    on_storages("topic with 10, 256 B", fan_out(10), group=MORE),
    on_storages("topic with 1,000, 256 B", fan_out(1_000), group=MORE),
    on_storages("2,000 rules", rules, group=MORE),
    on_storages("large backlog", backlog, (SQLITE,), LARGE),
    on_storages("large schedule", scheduled, (SQLITE,), LARGE),
    on_storages("large window", duplicates, (SQLITE,), LARGE),
)
