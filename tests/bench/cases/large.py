"""A million: messages waiting, messages for later, ids in a window.

Each is loaded once, counted in memory and on disk, and met again after a restart; then the same
broker serves beside it and from it as fast as a queue that holds nothing.
"""

from __future__ import annotations

import re
import time
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench import observe
from tests.bench.cases.setting import LOCK, Comparison, in_turns
from tests.bench.load import new_run
from tests.bench.roles import SETTLED, Load
from tests.bench.rows import Row, observed, resident_megabytes, started
from tests.support.server import HOST

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
PATIENCE_S = 120.0
POLL_INTERVAL_S = 0.2
LATER_MS = 24 * 3_600_000
ONCE = LOCK | {
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": "P1D",
    "max_size_in_megabytes": 5120,
}
QUEUES = {
    "measured": LOCK,
    "backlog": LOCK | {"max_size_in_megabytes": 5120},
    "once": ONCE,
    "once-more": ONCE,
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
        yield _all_activated(broker, f"{name} all due at once", waiting)
        yield from _beside_an_empty_one(broker, name, replace(load, scheduled_ms=0))


def duplicates(setting: Setting, name: str) -> Iterator[Row]:
    """In a window: ids whose messages are gone; then more of them, beside a queue that has few."""
    count = setting.count(MILLION)
    with setting.broker({"queues": QUEUES}) as broker:
        load = replace(_load(broker, "once", count, body_bytes=256), with_ids=True)
        yield _sized(observed(broker, f"{name} {count:,} ids sent", ("send", load)), broker)
        row = observed(broker, f"{name} emptied", ("receive", replace(load, settle=SETTLED)))
        yield _sized(row, broker)
        broker.restart()
        yield _sized(started(broker, f"{name} restarted on these"), broker)
        comparison = Comparison()
        for number, order in in_turns(ROUNDS, ("once", "once-more")):
            rows = {}
            for queue in order:
                part = replace(load, address=queue, count=PART_MESSAGES, run=new_run())
                case = f"{name} {queue}, round {number + 1}"
                rows[queue] = observed(broker, case, ("receive", part), ("send", part))
                yield rows[queue]
            comparison.pairs.append((rows["once"], rows["once-more"]))
        yield comparison.row(f"{name} full against small", min_speed=MIN_SPEED)


def _all_activated(broker: BrokerProcess, case: str, count: int) -> Row:
    """Move the clock, and see how long it takes until all of them can be received."""
    before_s, cpu_before_s = time.monotonic(), observe.cpu_s(broker.process_id)
    broker.advance_clock(LATER_MS)
    while (scheduled := _scheduled(broker)) and time.monotonic() < before_s + PATIENCE_S:
        time.sleep(POLL_INTERVAL_S)
    elapsed_s = time.monotonic() - before_s
    used_s = observe.cpu_s(broker.process_id) - cpu_before_s
    figures = {"messages_per_s": count / elapsed_s, "broker_cpu_us": used_s * 1e6 / count}
    return Row(case, figures, not scheduled, f"{scheduled} are still waiting" if scheduled else "")


def _scheduled(broker: BrokerProcess) -> int:
    url = f"http://{HOST}:{broker.http_port}/backlog?api-version=2021-05"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        found = re.search(rb"ScheduledMessageCount[^>]*>(\d+)<", answer.read())
    assert found is not None
    return int(found[1])


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
