"""Queues as most people use them: speed, latency, start-up and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.cases.setting import FULL_COUNT, IN_FLIGHT, WARM_UP_MESSAGES
from tests.bench.load import new_run
from tests.bench.roles import Load
from tests.bench.rows import Row, observed, resident_megabytes, started, through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting

MODERATE_RATE_PER_S = 1000


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
                streams=connections,
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
