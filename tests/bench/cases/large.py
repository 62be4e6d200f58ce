"""A million: messages waiting, messages for later, ids in a window.

Each is loaded once, counted in memory and on disk, and met again after a restart; then the same
broker serves beside it and from it as fast as a queue that holds nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.cases.setting import LOCK, Comparison, in_turns
from tests.bench.load import new_run
from tests.bench.roles import SETTLED, Load
from tests.bench.rows import Row, observed, resident_megabytes, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.cases.setting import Setting
    from tests.support.server import BrokerProcess

MILLION = 1_000_000
ROUNDS = 9
PART_MESSAGES = 20_000
"""Messages a round sends and receives: under a second's worth would measure the scheduler."""
MIN_SPEED = 0.85
"""Of an empty queue's speed: a million messages in the way may cost this much."""
MAX_RESIDENT_MB = 1024
LATER_MS = 24 * 3_600_000
QUEUES = {
    "measured": LOCK,
    "backlog": LOCK | {"max_size_in_megabytes": 5120},
    "once": LOCK
    | {
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": "P1D",
        "max_size_in_megabytes": 5120,
    },
}


def backlog(setting: Setting, name: str) -> Iterator[Row]:
    """Waiting: sent behind and received from in front, beside an empty queue."""
    waiting = setting.count(MILLION)
    with setting.broker({"queues": QUEUES}) as broker:
        load = _load(broker, "backlog", waiting)
        yield _sized(observed(broker, f"{name} {waiting:,} x 1 KiB sent", ("send", load)), broker)
        # A fresh process holds no bodies: every message in front must come from the store.
        broker.restart()
        yield _sized(started(broker, f"{name} restarted on these"), broker)
        yield from _beside_an_empty_one(broker, name, load)


def scheduled(setting: Setting, name: str) -> Iterator[Row]:
    """For later: beside them an empty queue is served; then they are all due at once."""
    waiting = setting.count(MILLION)
    with setting.broker({"queues": QUEUES}, movable_clock=True) as broker:
        later = int(time.time() * 1e3) + LATER_MS
        load = replace(_load(broker, "backlog", waiting), scheduled_ms=later)
        row = observed(broker, f"{name} {waiting:,} x 1 KiB for later", ("send", load))
        yield _sized(row, broker)
        broker.restart()
        yield _sized(started(broker, f"{name} restarted on these"), broker)
        broker.advance_clock(LATER_MS)
        yield from _beside_an_empty_one(broker, name, replace(load, scheduled_ms=0))


def duplicates(setting: Setting, name: str) -> Iterator[Row]:
    """In a window: ids whose messages are gone; then more of them, beside a queue that has none."""
    count = setting.count(MILLION)
    with setting.broker({"queues": QUEUES}) as broker:
        load = replace(_load(broker, "once", count, body_bytes=256), with_ids=True)
        yield _sized(observed(broker, f"{name} {count:,} ids sent", ("send", load)), broker)
        row = observed(broker, f"{name} emptied", ("receive", replace(load, settle=SETTLED)))
        yield _sized(row, broker)
        broker.restart()
        yield _sized(started(broker, f"{name} restarted on these"), broker)
        comparison = Comparison()
        for number, order in in_turns(ROUNDS, ("once", "measured")):
            rows = {}
            for queue in order:
                part = replace(load, address=queue, count=PART_MESSAGES, run=new_run())
                case = f"{name} {queue}, round {number + 1}"
                rows[queue] = observed(broker, case, ("receive", part), ("send", part))
                yield rows[queue]
            comparison.pairs.append((rows["once"], rows["measured"]))
        yield comparison.row(f"{name} in a full window against none")


def _load(broker: BrokerProcess, queue: str, count: int, body_bytes: int = 1024) -> Load:
    return Load(
        port=broker.amqp_port, address=queue, count=count, run=new_run(), body_bytes=body_bytes
    )


def _sized(row: Row, broker: BrokerProcess) -> Row:
    resident_mb = resident_megabytes(broker)
    row.figures["resident_mb"] = resident_mb
    if resident_mb > MAX_RESIDENT_MB:
        row.is_clean, row.problem = False, f"{resident_mb:.0f} MB resident, the bound is 1 GiB"
    return row


def _beside_an_empty_one(broker: BrokerProcess, name: str, load: Load) -> Iterator[Row]:
    comparisons = {"send": Comparison(), "receive": Comparison()}
    for number, order in in_turns(ROUNDS, ("full", "empty")):
        done = number * PART_MESSAGES
        empty = replace(load, address="measured", count=PART_MESSAGES, run=new_run())
        behind = replace(load, count=PART_MESSAGES, first_sequence=load.count + done)
        in_front = replace(load, count=PART_MESSAGES, first_sequence=done)
        for kind, full in (("send", behind), ("receive", in_front)):
            loads, rows = {"full": full, "empty": empty}, {}
            for queue in order:
                case = f"{name} {queue}, {kind}, round {number + 1}"
                rows[queue] = observed(broker, case, (kind, loads[queue]))
                yield rows[queue]
            comparisons[kind].pairs.append((rows["full"], rows["empty"]))
    for kind, comparison in comparisons.items():
        yield comparison.row(f"{name} full against empty, {kind}", min_speed=MIN_SPEED)
