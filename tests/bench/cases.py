"""The cases that are measured. A new one is a function that yields rows, and a line in CASES.

Each case gets a fresh broker per storage it names. What the figures mean is said by their names;
whether the messages came through whole is decided by the generator.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.bench import observe
from tests.bench.load import measure, new_run, through
from tests.bench.roles import Load
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUEUES = ("measured", "backlog")
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": name, "Properties": {"LockDuration": "PT5M"}} for name in QUEUES
                ],
                "Topics": [],
            }
        ],
        "Logging": {"Type": "Console"},
    }
}

IN_FLIGHT = 1000
"""Unsettled sends, and link credit, over all connections of a role."""
WARM_UP_MESSAGES = 5_000
MODERATE_RATE_PER_S = 1000
BACKLOG_MESSAGES = 100_000
LARGE_BACKLOG_MESSAGES = 1_000_000
LARGE_TOLERANCE = 0.15
"""How much slower a queue may be for having a million messages in it."""
LARGE_ROUNDS = 3


@dataclass(slots=True)
class Row:
    """One line of the result."""

    case: str
    figures: dict[str, Any]
    is_clean: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a case is run with."""

    storage: str
    folder: Path
    divisor: int = 1
    """Counts are divided by this: 1 for figures to keep, more for a quick look."""
    environment: dict[str, str] = field(default_factory=dict)

    def count(self, full: int) -> int:
        return max(full // self.divisor, 1)

    def broker(self, file_name: str) -> BrokerProcess:
        url = "memory:"
        if self.storage == "sqlite":
            url = f"sqlite:///{self.folder / file_name}"
        return BrokerProcess(
            config=CONFIG, storage=url, testing_api=False, environment=self.environment
        )


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[Setting, str], Iterator[Row]]
    storages: tuple[str, ...] = ("memory", "sqlite")
    is_large: bool = False


def row_of(case: str, broker_cpu_s: float, results: list[dict[str, Any]]) -> Row:
    """Put the roles' results and the broker's share together."""
    figures: dict[str, Any] = {}
    problems = [result["error"] for result in results if result["error"]]
    finished = {result["role"]: result for result in results if "role" in result}
    if finished:
        first = finished.get("send") or finished["receive"]
        last = finished.get("receive") or finished["send"]
        elapsed_s = max(last["end_ns"] - first["begin_ns"], 1) / 1e9
        figures["messages_per_s"] = last["count"] / elapsed_s
        figures["broker_cpu_us"] = broker_cpu_s * 1e6 / max(last["count"], 1)
    for role, result in finished.items():
        figures[f"{role}_client_cpu_us"] = result["client_cpu_us_per_message"]
        verdict = result.get("verdict") or {"not_accepted": result["not_accepted"]}
        problems += [f"{count} {name}" for name, count in verdict.items() if count]
    if "send" in finished:
        # Without a sender beside it, a receiver's end to end is how long the messages lay there.
        for role, prefix in (("send", "ack"), ("receive", "end_to_end")):
            latency_us = finished.get(role, {}).get("latency_us", {})
            figures |= {f"{prefix}_{name}_us": value for name, value in latency_us.items()}
    return Row(case, figures, all(result["is_clean"] for result in results), "; ".join(problems))


def observed(broker: BrokerProcess, case: str, load: Load, *kinds: str) -> Row:
    """Run roles against the broker and charge it for what it used meanwhile."""
    before_s = observe.cpu_s(broker.process_id)
    results = through(load) if kinds == ("through",) else measure(*[(kind, load) for kind in kinds])
    return row_of(case, observe.cpu_s(broker.process_id) - before_s, results)


# ---- the cases --------------------------------------------------------------------------------


def speed(body_bytes: int, connections: int) -> Callable[[Setting, str], Iterator[Row]]:
    """Send into an empty queue, empty it, then both at once."""

    def run(setting: Setting, name: str) -> Iterator[Row]:
        count = setting.count(100_000)
        with setting.broker(f"speed-{body_bytes}-{connections}.db") as broker:
            load = Load(
                port=broker.amqp_port,
                address="measured",
                count=count,
                run=new_run(),
                body_bytes=body_bytes,
                connections=connections,
                senders=connections,
                window=IN_FLIGHT // connections,
                credit=IN_FLIGHT // connections,
            )
            warm_up = replace(load, count=WARM_UP_MESSAGES, run=new_run())
            row = observed(broker, f"{name} warm-up", warm_up, "through")
            if not row.is_clean:
                yield row
            for kind in ("send", "receive", "through"):
                yield observed(broker, f"{name} {kind}", load, kind)

    return run


def latency(setting: Setting, name: str) -> Iterator[Row]:
    """One message in flight; then a steady rate the broker is far from minding."""
    with setting.broker("latency.db") as broker:
        load = Load(
            port=broker.amqp_port,
            address="measured",
            count=setting.count(3_000),
            run=new_run(),
            body_bytes=1024,
            window=1,
        )
        yield observed(broker, f"{name} one in flight", load, "through")
        load = replace(
            load,
            count=setting.count(5 * MODERATE_RATE_PER_S),
            window=IN_FLIGHT,
            rate_per_s=MODERATE_RATE_PER_S,
        )
        yield observed(broker, f"{name} at {MODERATE_RATE_PER_S}/s", load, "through")


def footprint(setting: Setting, name: str) -> Iterator[Row]:
    """Start-up and memory, idle and with messages waiting."""
    count = setting.count(BACKLOG_MESSAGES)
    with setting.broker("footprint.db") as broker:
        figures = {
            "start_s": broker.ready_after_s,
            "resident_mb": observe.resident_megabytes(broker.process_id),
        }
        yield Row(f"{name} empty", figures)
        load = Load(
            port=broker.amqp_port,
            address="backlog",
            count=count,
            run=new_run(),
            body_bytes=1024,
        )
        row = observed(broker, f"{name} {count} x 1 KiB waiting", load, "send")
        row.figures["resident_mb"] = observe.resident_megabytes(broker.process_id)
        yield row
        if setting.storage == "memory":
            return
        broker.restart()
        figures = {
            "start_s": broker.ready_after_s,
            "resident_mb": observe.resident_megabytes(broker.process_id),
        }
        yield Row(f"{name} restarted on {count} x 1 KiB", figures)
        load = replace(load, port=broker.amqp_port)
        yield observed(broker, f"{name} emptied after restart", load, "receive")


def large_backlog(setting: Setting, name: str) -> Iterator[Row]:
    """A queue of a million must serve as fast as an empty one, in the same broker."""
    waiting, part = setting.count(LARGE_BACKLOG_MESSAGES), setting.count(20_000)
    with setting.broker("large.db") as broker:
        backlog = Load(
            port=broker.amqp_port,
            address="backlog",
            count=waiting,
            run=new_run(),
            body_bytes=1024,
        )
        row = observed(broker, f"{name} fill with {waiting} x 1 KiB", backlog, "send")
        row.figures["resident_mb"] = observe.resident_megabytes(broker.process_id)
        yield row
        speeds: dict[tuple[str, str], list[float]] = {}
        for turn in range(LARGE_ROUNDS):
            empty = replace(
                backlog, address="measured", count=part, first_sequence=turn * part, run=new_run()
            )
            full_send = replace(backlog, count=part, first_sequence=waiting + turn * part)
            full_receive = replace(full_send, first_sequence=turn * part)
            for queue, kind, load in (
                ("empty", "send", empty),
                ("full", "send", full_send),
                ("empty", "receive", empty),
                ("full", "receive", full_receive),
            ):
                row = observed(
                    broker, f"{name} {queue} queue, {kind}, round {turn + 1}", load, kind
                )
                speeds.setdefault((kind, queue), []).append(row.figures.get("messages_per_s", 0.0))
                yield row
        for kind in ("send", "receive"):
            yield compared(f"{name} full against empty, {kind}", speeds, kind)
        figures = {"resident_mb": observe.resident_megabytes(broker.process_id)}
        yield Row(f"{name} memory at the end", figures)
        broker.restart()
        figures = {
            "start_s": broker.ready_after_s,
            "resident_mb": observe.resident_megabytes(broker.process_id),
        }
        yield Row(f"{name} restarted", figures)


def compared(case: str, speeds: dict[tuple[str, str], list[float]], kind: str) -> Row:
    """Judge by the medians: one disturbed round must not decide."""
    empty = statistics.median(speeds[kind, "empty"])
    full = statistics.median(speeds[kind, "full"])
    ratio = full / empty if empty else 0.0
    is_fair = ratio >= 1 - LARGE_TOLERANCE
    problem = "" if is_fair else f"{ratio:.2f} of the speed of an empty queue"
    return Row(case, {"full_to_empty": ratio}, is_fair, problem)


CASES = (
    Case("256 B, 1 connection,", speed(256, 1)),
    Case("1 KiB, 1 connection,", speed(1024, 1)),
    Case("256 B, 10 connections,", speed(256, 10)),
    Case("1 KiB, 10 connections,", speed(1024, 10)),
    Case("latency, 1 KiB,", latency),
    Case("footprint,", footprint),
    Case("large,", large_backlog, storages=("sqlite",), is_large=True),
)
