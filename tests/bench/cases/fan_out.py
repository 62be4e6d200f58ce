"""Topics: what a copy costs, and what it costs to choose who gets one.

Half of the subscriptions have a correlation filter, half an SQL filter. The first load goes to all
of them, the second to one in as many as there are; a body is stored once whoever takes it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.bench.cases.setting import IN_FLIGHT, LOCK
from tests.bench.load import new_run
from tests.bench.payload import KIND, KIND_PROPERTY, STREAM_PROPERTY
from tests.bench.roles import Load, Mark, Take
from tests.bench.rows import Row, observed
from tests.support.stored_blocks import unpack_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting

COPIES = 100_000
ROUTED_MESSAGES = 50_000
RECEIVER_CONNECTIONS = 10
EVERYBODY, CHOSEN = "everybody", "chosen"
"""Topics whose subscriptions take every message, and each its own."""


def fan_out(subscriptions: int) -> Callable[[Setting, str], Iterator[Row]]:
    """To all subscriptions: what lies there for them, then sent and received at once; to one."""

    def run(setting: Setting, name: str) -> Iterator[Row]:
        config = {"topics": {EVERYBODY: _to_all(subscriptions), CHOSEN: _to_one(subscriptions)}}
        with setting.broker(config) as broker:
            load = Load(
                port=broker.amqp_port,
                address=EVERYBODY,
                count=max(setting.count(COPIES) // subscriptions, 10),
                run=new_run(),
                mark=Mark.PROPERTY,
            )
            receive = replace(
                load,
                address=f"{EVERYBODY}/Subscriptions/{{}}",
                connections=min(RECEIVER_CONNECTIONS, subscriptions),
                links=subscriptions,
                credit=max(IN_FLIGHT // subscriptions, 10),
                take=Take.COPY,
            )
            row = observed(broker, f"{name} send", ("send", load))
            if setting.storage == "sqlite":
                _look_at_bodies(setting, row, load.count)
            yield row
            yield observed(broker, f"{name} receive", ("receive", receive))
            again = new_run()
            parts = ("receive", replace(receive, run=again)), ("send", replace(load, run=again))
            yield observed(broker, f"{name} through", *parts)
            count = setting.count(ROUTED_MESSAGES)
            routed = replace(load, address=CHOSEN, count=count, run=again, streams=subscriptions)
            own = replace(
                receive,
                address=f"{CHOSEN}/Subscriptions/{{}}",
                count=count,
                run=again,
                streams=subscriptions,
                take=Take.OWN,
            )
            yield observed(broker, f"{name} to one of them", ("receive", own), ("send", routed))

    return run


def _look_at_bodies(setting: Setting, row: Row, messages: int) -> None:
    with closing(sqlite3.connect(f"file:{setting.file}?mode=ro", uri=True)) as file:
        unpack_blocks(file)
        (bodies,) = file.execute("SELECT count(*) FROM bodies").fetchone()
    row.figures["bodies"] = bodies
    if bodies != messages:
        row.is_clean, row.problem = False, f"{bodies} bodies stored for {messages} messages"


def _to_all(subscriptions: int) -> dict[str, Any]:
    correlation = {"correlation_filter": {"properties": {KIND_PROPERTY: KIND}}}
    sql = {"sql_filter": f"{KIND_PROPERTY} LIKE '{KIND[:3]}%' AND {STREAM_PROPERTY} >= 0"}
    return _topic([sql if number % 2 else correlation for number in range(subscriptions)])


def _to_one(subscriptions: int) -> dict[str, Any]:
    filters = [
        {"sql_filter": f"{STREAM_PROPERTY} = {number} AND {KIND_PROPERTY} = '{KIND}'"}
        if number % 2
        else {"correlation_filter": {"properties": {STREAM_PROPERTY: number}}}
        for number in range(subscriptions)
    ]
    return _topic(filters)


def _topic(filters: list[dict[str, Any]]) -> dict[str, Any]:
    subscriptions = {
        str(number): {**LOCK, "rules": {"only": one}} for number, one in enumerate(filters)
    }
    return {"subscriptions": subscriptions}
