"""The cases that are measured. A new one is a function that yields rows, and a line in CASES.

Each case gets a fresh broker per storage it names. What the figures mean is said by their names;
whether the messages came through whole is decided by the generator.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.bench.load import new_run
from tests.bench.roles import Load
from tests.bench.rows import Row, observed, resident_megabytes, started, through
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SUBSCRIPTIONS = ("one", "two", "three")
LOCK = {"lock_duration": "PT5M"}
"""So that no lock runs out on a slow machine, which would look like a duplicate."""
CONFIG: dict[str, Any] = {
    "queues": {
        "measured": LOCK,
        "backlog": LOCK | {"max_size_in_megabytes": 5120},
        "sessions": LOCK | {"requires_session": True},
    },
    "topics": {"fan-out": {"subscriptions": dict.fromkeys(SUBSCRIPTIONS, LOCK)}},
}

IN_FLIGHT = 1000
"""Unsettled sends, and link credit, over all connections of a role."""
FULL_COUNT = 100_000
WARM_UP_MESSAGES = 5_000
MODERATE_RATE_PER_S = 1000
LARGE_BACKLOG_MESSAGES = 1_000_000
LARGE_TOLERANCE = 0.15
"""How much slower a queue may be for having a million messages in it."""
LARGE_ROUNDS = 9
LARGE_PART_MESSAGES = 20_000
"""Messages a round sends and receives: under a second's worth would measure the scheduler."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a case is run with."""

    storage: str
    folder: Path
    divisor: int = 1
    """Counts are divided by this: 1 for figures to keep, more for a quick look."""

    def count(self, full: int) -> int:
        return max(full // self.divisor, 1)

    def broker(self) -> BrokerProcess:
        """A broker on a store that is empty; the folder is this case's own."""
        url = "memory:" if self.storage == "memory" else f"sqlite:///{self.folder / 'bench.db'}"
        return BrokerProcess(config=CONFIG, storage=url, testing_api=False)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[Setting, str], Iterator[Row]]
    storages: tuple[str, ...] = ("memory", "sqlite")
    is_large: bool = False


def speed(body_bytes: int, connections: int) -> Callable[[Setting, str], Iterator[Row]]:
    """Send into an empty queue, empty it, then both at once."""

    def run(setting: Setting, name: str) -> Iterator[Row]:
        with setting.broker() as broker:
            load = Load(
                port=broker.amqp_port,
                address="measured",
                count=setting.count(FULL_COUNT),
                run=new_run(),
                body_bytes=body_bytes,
                connections=connections,
                senders=connections,
                window=IN_FLIGHT // connections,
                credit=IN_FLIGHT // connections,
            )
            warm_up = replace(load, count=WARM_UP_MESSAGES, run=new_run())
            row = observed(broker, f"{name} warm-up", *through(warm_up))
            if not row.is_clean:
                yield row
                return
            yield observed(broker, f"{name} send", ("send", load))
            yield observed(broker, f"{name} receive", ("receive", load))
            yield observed(broker, f"{name} through", *through(load))

    return run


def latency(setting: Setting, name: str) -> Iterator[Row]:
    """One message in flight; then a steady rate the broker is far from minding."""
    with setting.broker() as broker:
        load = Load(
            port=broker.amqp_port,
            address="measured",
            count=setting.count(3_000),
            run=new_run(),
            body_bytes=1024,
            window=1,
        )
        yield observed(broker, f"{name} one in flight", *through(load))
        steady = replace(
            load,
            count=setting.count(5 * MODERATE_RATE_PER_S),
            window=IN_FLIGHT,
            rate_per_s=MODERATE_RATE_PER_S,
        )
        yield observed(broker, f"{name} at {MODERATE_RATE_PER_S}/s", *through(steady))


def sessions(setting: Setting, name: str) -> Iterator[Row]:
    """Ten sessions, each with a sender and a receiver of its own."""
    with setting.broker() as broker:
        load = Load(
            port=broker.amqp_port,
            address="sessions",
            count=setting.count(FULL_COUNT // 2),
            run=new_run(),
            connections=10,
            senders=10,
            window=IN_FLIGHT // 10,
            credit=IN_FLIGHT // 10,
            in_sessions=True,
        )
        yield observed(broker, f"{name} through", *through(load))


def fan_out(setting: Setting, name: str) -> Iterator[Row]:
    """One topic, a copy for each of three subscriptions; rates count messages, not copies."""
    with setting.broker() as broker:
        load = Load(
            port=broker.amqp_port,
            address="fan-out",
            count=setting.count(FULL_COUNT // 4),
            run=new_run(),
        )
        receivers = [
            ("receive", replace(load, address=f"fan-out/Subscriptions/{subscription}"))
            for subscription in SUBSCRIPTIONS
        ]
        yield observed(broker, f"{name} through", *receivers, ("send", load))


def footprint(setting: Setting, name: str) -> Iterator[Row]:
    """Start-up and memory, idle and with messages waiting."""
    count = setting.count(FULL_COUNT)
    with setting.broker() as broker:
        yield started(broker, f"{name} empty")
        load = Load(
            port=broker.amqp_port,
            address="backlog",
            count=count,
            run=new_run(),
            body_bytes=1024,
        )
        row = observed(broker, f"{name} {count:,} x 1 KiB sent", ("send", load))
        row.figures["resident_mb"] = resident_megabytes(broker)
        yield row
        if setting.storage == "memory":
            return
        broker.restart()
        yield started(broker, f"{name} restarted on these")
        yield observed(broker, f"{name} emptied after that", ("receive", load))


def large_backlog(setting: Setting, name: str) -> Iterator[Row]:
    """A queue of a million must serve as fast as an empty one, in the same broker."""
    waiting, part = setting.count(LARGE_BACKLOG_MESSAGES), LARGE_PART_MESSAGES
    with setting.broker() as broker:
        backlog = Load(
            port=broker.amqp_port,
            address="backlog",
            count=waiting,
            run=new_run(),
            body_bytes=1024,
        )
        row = observed(broker, f"{name} {waiting:,} x 1 KiB sent", ("send", backlog))
        row.figures["resident_mb"] = resident_megabytes(broker)
        yield row
        # A fresh process holds no bodies: every message in front must come from the store.
        broker.restart()
        yield started(broker, f"{name} restarted on these")
        pairs: dict[str, list[tuple[Row, Row]]] = {"send": [], "receive": []}
        for turn in range(LARGE_ROUNDS):
            empty = replace(backlog, address="measured", count=part, run=new_run())
            behind = replace(backlog, count=part, first_sequence=waiting + turn * part)
            in_front = replace(backlog, count=part, first_sequence=turn * part)
            for kind, full in (("send", behind), ("receive", in_front)):
                loads = {"empty": empty, "full": full}
                rows = {}
                # Each goes first in every other round, so that a drift of the machine cancels out.
                for queue in sorted(loads, reverse=bool(turn % 2)):
                    case = f"{name} {queue}, {kind}, round {turn + 1}"
                    rows[queue] = observed(broker, case, (kind, loads[queue]))
                    yield rows[queue]
                pairs[kind].append((rows["full"], rows["empty"]))
        for kind, compared_rows in pairs.items():
            yield compared(f"{name} full against empty, {kind}", compared_rows)


def compared(case: str, pairs: Sequence[tuple[Row, Row]]) -> Row:
    """The middle one of the rounds' ratios: one disturbed round must not decide."""

    def ratio(name: str) -> float:
        ratios: list[float] = [
            full.figures.get(name, 0.0) / max(empty.figures.get(name, 0.0), 1e-9)
            for full, empty in pairs
        ]
        return statistics.median(ratios)

    speed_ratio = ratio("messages_per_s")
    figures = {"full_to_empty": speed_ratio, "full_to_empty_cpu": ratio("broker_cpu_us")}
    is_fair = speed_ratio >= 1 - LARGE_TOLERANCE
    problem = "" if is_fair else f"{speed_ratio:.2f} of the speed of an empty queue"
    return Row(case, figures, is_fair, problem)


CASES = (
    Case("256 B, 1 connection,", speed(256, 1)),
    Case("1 KiB, 1 connection,", speed(1024, 1)),
    Case("256 B, 10 connections,", speed(256, 10)),
    Case("1 KiB, 10 connections,", speed(1024, 10)),
    Case("latency, 1 KiB,", latency),
    Case("10 sessions, 256 B,", sessions),
    Case("topic to 3, 256 B,", fan_out),
    Case("footprint,", footprint),
    Case("large,", large_backlog, storages=("sqlite",), is_large=True),
)
