"""How many messages a broker takes, gives and passes on: one connection for each role, a thousand in flight.

The figures are the medians of three rounds; each round is checked for lost, doubled, damaged and moved messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.cases.setting import FULL_COUNT, IN_FLIGHT
from tests.bench.cases.single import median_of
from tests.bench.load import new_run
from tests.bench.roles import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting
    from tests.bench.rows import Row
    from tests.bench.systems import Target

ROUNDS = 3
KINDS = {"send": "send", "receive": "receive and complete", "both": "through"}
"""The roles of the generator, and the words for what they do."""


def size_text(body_bytes: int) -> str:
    return f"{body_bytes} B" if body_bytes < 1024 else f"{body_bytes // 1024} KiB"


def case_name(kind: str, body_bytes: int, connections: int = 1) -> str:
    size = size_text(body_bytes)
    links = "" if connections == 1 else f", {connections} connections"
    return f"{KINDS[kind]} {size}{links}"


def throughput(body_bytes: int, connections: int = 1) -> Callable[[Setting, Target], Iterator[Row]]:
    """Send into an empty queue, empty it, then both at once."""

    def run(setting: Setting, target: Target) -> Iterator[Row]:
        load = Load(
            port=target.port,
            host=target.host,
            address=target.address,
            count=setting.count(FULL_COUNT),
            body_bytes=body_bytes,
            connections=connections,
            window=IN_FLIGHT // connections,
            credit=IN_FLIGHT // connections,
        )
        # Some brokers compile themselves while they run, so the warm-up is as long as a round.
        target.run("warm-up", "both", replace(load, run=new_run()))
        rounds: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            load = replace(load, run=new_run())
            for kind, rows in rounds.items():
                rows.append(target.run(kind, kind, load))
        for kind, rows in rounds.items():
            yield median_of(case_name(kind, body_bytes, connections), rows)

    return run
