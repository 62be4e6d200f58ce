"""The cases that are measured. A new one is a function that yields rows, and a line in CASES."""

from __future__ import annotations

from tests.bench.cases.fan_out import fan_out
from tests.bench.cases.large import backlog, duplicates, scheduled
from tests.bench.cases.plain import footprint, latency, speed
from tests.bench.cases.rules import rules
from tests.bench.cases.sessions import sessions
from tests.bench.cases.setting import Case

CASES = (
    Case("256 B, 1 connection,", speed(256, 1)),
    Case("1 KiB, 1 connection,", speed(1024, 1)),
    Case("256 B, 10 connections,", speed(256, 10)),
    Case("1 KiB, 10 connections,", speed(1024, 10)),
    Case("latency, 1 KiB,", latency),
    Case("1,000 sessions, 256 B,", sessions),
    Case("topic with 1, 256 B,", fan_out(1)),
    Case("topic with 10, 256 B,", fan_out(10)),
    Case("topic with 1,000, 256 B,", fan_out(1_000)),
    Case("2,000 rules,", rules),
    Case("footprint,", footprint),
    Case("large backlog,", backlog, storages=("sqlite",), is_large=True),
    Case("large schedule,", scheduled, storages=("sqlite",), is_large=True),
    Case("large window,", duplicates, storages=("sqlite",), is_large=True),
)
