"""What a client waits for: the answer to one durable send, and to each of a thousand a second.

The floor below both is an append to a file with fdatasync, at the same rate. It is measured in turns with the sends, on
the same disk, because disks change their speed within minutes. A disk that writes what earlier cases have left in
memory answers a sync a hundred milliseconds later, so everything is written before a measurement begins.
"""

from __future__ import annotations

import os
import statistics
import time
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.cases.setting import IN_FLIGHT
from tests.bench.load import new_run
from tests.bench.roles import Load, percentiles_us
from tests.bench.rows import Row
from tests.bench.systems import DISK, SQLITE, Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.cases.setting import Setting

BARE_APPEND = "append of 1 KiB with fdatasync"
ONE_IN_FLIGHT = "one 1 KiB send in flight"
STEADY = "1,000 x 1 KiB a second, through"
STEADY_APPEND = "1,000 appends of 1 KiB a second with fdatasync"
BODY_BYTES = 1024
ROUNDS = 5
SENDS = 800
"""Per round."""
APPENDS = 400
RATE_PER_S = 1000
STEADY_S = 8
STEADY_ROUNDS = 3


def one_at_a_time(setting: Setting, target: Target) -> Iterator[Row]:
    """One message in flight, in rounds. The figures are the medians of the rounds."""
    load = Load(
        port=target.port,
        host=target.host,
        address=target.address,
        count=setting.count(SENDS),
        body_bytes=BODY_BYTES,
        window=1,
        run=new_run(),
    )
    os.sync()
    target.run("warm-up", "both", load)
    appends: list[Row] = []
    rows: list[Row] = []
    for number in range(ROUNDS):
        if target.system == SQLITE:
            appends.append(bare_append(setting.folder / "appended", setting.count(APPENDS)))
        part = replace(load, run=new_run())
        rows.append(target.run(f"{ONE_IN_FLIGHT}, round {number + 1}", "send", part))
        drained = target.run(f"{ONE_IN_FLIGHT}, emptied", "receive", part)
        if not drained.is_clean:
            yield drained
    if appends:
        yield median_of(BARE_APPEND, appends)
    yield median_of(ONE_IN_FLIGHT, rows)


def steady(setting: Setting, target: Target) -> Iterator[Row]:
    """A rate that every broker keeps up with. Latencies begin when a message was to be sent. The figures are the medians
    of the rounds."""
    load = Load(
        port=target.port,
        host=target.host,
        address=target.address,
        count=setting.count(STEADY_S * RATE_PER_S),
        run=new_run(),
        body_bytes=BODY_BYTES,
        window=IN_FLIGHT,
        rate_per_s=RATE_PER_S,
    )
    os.sync()
    appends: list[Row] = []
    rows: list[Row] = []
    for number in range(STEADY_ROUNDS):
        if target.system == SQLITE:
            path = setting.folder / "appended"
            count = setting.count(STEADY_S * RATE_PER_S) // 2
            appends.append(bare_append(path, count, case=STEADY_APPEND, rate_per_s=RATE_PER_S))
        part = replace(load, run=new_run())
        rows.append(target.run(f"{STEADY}, round {number + 1}", "both", part))
    if appends:
        yield median_of(STEADY_APPEND, appends)
    yield median_of(STEADY, rows)


def bare_append(
    path: Path,
    count: int,
    size: int = BODY_BYTES,
    case: str = BARE_APPEND,
    rate_per_s: float = 0.0,
) -> Row:
    """Append a message to a file and sync it, again and again: at a rate, or as fast as it goes. At a rate, a time begins
    when the message was to be appended."""
    block = bytes(size)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    took_ns = array("q")
    cpu_before_s = time.process_time()
    begin_ns = time.perf_counter_ns()
    try:
        for number in range(count):
            before_ns = time.perf_counter_ns()
            if rate_per_s:
                due_ns = begin_ns + int(number * 1e9 / rate_per_s)
                time.sleep(max(0, due_ns - before_ns) / 1e9)
                before_ns = due_ns
            written = 0
            while written < size:
                written += os.write(descriptor, block[written:] if written else block)
            os.fdatasync(descriptor)
            took_ns.append(time.perf_counter_ns() - before_ns)
    finally:
        os.close(descriptor)
    used_us = (time.process_time() - cpu_before_s) * 1e6 / count
    figures = {f"ack_{name}_us": value for name, value in percentiles_us(took_ns).items()}
    return Row(case, figures | {"broker_cpu_us": used_us}, system=DISK)


def median_of(case: str, rows: list[Row]) -> Row:
    """The median of each figure over rounds: one disturbed round must not decide."""
    names = set.intersection(*(set(row.figures) for row in rows))
    figures = {name: statistics.median(row.figures[name] for row in rows) for name in names}
    problems = [row.problem for row in rows if not row.is_clean]
    return Row(case, figures, not problems, "; ".join(problems), rows[0].system)
