"""The live overview of a namespace: counts and rates of each entity, the oldest message, and alerts.

The stream begins with all entities, in events of at most five hundred, and then has those that have changed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract.errors import BrokerError
from protocol.http.control import event_stream
from protocol.http.control.clock_resource import ClockAnswer, write_clock
from protocol.http.control.entities_resource import Kind
from protocol.http.control.event_stream import Event, EventQueue
from protocol.http.control.overview_alerts import AlertAnswer
from protocol.http.control.overview_sampling import Overview
from protocol.http.control.request_models import AnswerModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from aiohttp import web

    from protocol.http.control.overview_sampling import Sample
    from protocol.http.control.routes import Answer, Call

EVENT_ENTITIES_MAX = 500
RATES_MAX = 5_000
"""How many rates of entities the first event has, at most."""


class OverviewCounts(AnswerModel):
    """How many messages are in each state."""

    active: int
    locked: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int


class OverviewEntity(AnswerModel):
    """What the overview has of an entity."""

    path: str
    kind: Kind
    counts: OverviewCounts
    incoming_per_s: float = Field(description="messages that arrive, for each second")
    outgoing_per_s: float = Field(description="messages that are delivered, for each second")
    is_busy: bool = Field(description="whether messages arrive or are delivered")
    oldest_enqueued: str | None = Field(description="when the oldest message was enqueued")
    receivers: int
    senders: int
    size_bytes: int
    held_sessions: int | None = Field(description="null if the entity does not require sessions")


class OverviewAnswer(AnswerModel):
    """A namespace at one moment."""

    time: str | None = Field(description="of the clock of the namespace")
    namespace: str
    interval_s: float = Field(description="how often a stream looks")
    connections: int = Field(description="AMQP connections")
    clock: ClockAnswer
    entities: list[OverviewEntity]
    alerts: list[AlertAnswer]


async def get_overview(call: Call) -> Answer:
    """Returns the overview."""
    overview = _overview(call)
    await overview.refresh(call)
    return {**_head(call, overview), "entities": list(overview.rows.values())}


async def stream_overview(call: Call) -> web.StreamResponse:
    """Streams the overview."""
    queue = EventQueue()
    producer = asyncio.get_running_loop().create_task(_produce(call, queue))
    try:
        return await event_stream.respond(call, queue)
    finally:
        producer.cancel()
        with suppress(asyncio.CancelledError):
            await producer


def _overview(call: Call) -> Overview:
    overviews: dict[str, Overview] = call.services.overviews
    known = set(call.services.namespaces())
    for deleted in [name for name in overviews if name not in known]:
        del overviews[deleted]
    return overviews.setdefault(call.namespace, Overview())


async def _produce(call: Call, queue: EventQueue) -> None:
    try:
        overview = _overview(call)
        stopwatch_s = call.services.sources.stopwatch_s
        await overview.refresh(call)
        number = _put_all(call, overview, queue)
        while True:
            await asyncio.sleep(max(overview.due_in_s(stopwatch_s()), 0.05))
            await overview.refresh(call)
            samples = overview.changes_since(number)
            if samples is None:
                number = _put_all(call, overview, queue)
            elif samples:
                number = samples[-1].number
                queue.put(Event(_change(call, overview, samples)))
    except BrokerError:
        queue.end()  # the namespace is deleted


def _put_all(call: Call, overview: Overview, queue: EventQueue) -> int:
    """Puts events with all entities. Returns the number of the sample."""
    rows = list(overview.rows.values())
    first = {
        **_head(call, overview),
        "is_first": True,
        "entities": rows[:EVENT_ENTITIES_MAX],
        "removed": [],
        "rates": _kept_rates(overview),
    }
    queue.put(Event(first))
    for start in range(EVENT_ENTITIES_MAX, len(rows), EVENT_ENTITIES_MAX):
        part = rows[start : start + EVENT_ENTITIES_MAX]
        more = {"is_first": False, "entities": part, "removed": [], "rates": []}
        queue.put(Event({**_head(call, overview), **more}))
    return overview.number


def _change(call: Call, overview: Overview, samples: list[Sample]) -> dict[str, Any]:
    changed = {path: row for one in samples for path, row in one.changed.items()}
    removed = [path for one in samples for path in one.removed if path not in overview.rows]
    return {
        **_head(call, overview),
        "is_first": False,
        "entities": [row for path, row in changed.items() if path in overview.rows],
        "removed": removed,
        "rates": [_rates(one) for one in samples],
    }


def _kept_rates(overview: Overview) -> list[dict[str, Any]]:
    """Returns the rates of the newest samples, oldest first."""
    chosen: list[dict[str, Any]] = []
    count = 0
    for sample in reversed(overview.samples):
        count += len(sample.rates)
        if count > RATES_MAX:
            break
        chosen.append(_rates(sample))
    return chosen[::-1]


def _rates(sample: Sample) -> dict[str, Any]:
    return {"at_ms": sample.real_ms, "entities": sample.rates}


def _head(call: Call, overview: Overview) -> dict[str, Any]:
    clock = call.services.namespace_control.clock(call.namespace)
    return {
        "time": overview.samples[-1].time,
        "namespace": call.namespace,
        "interval_s": overview.interval_s,
        "connections": overview.connections,
        "clock": write_clock(clock),
        "alerts": overview.alerts,
    }


ROUTES = (
    Route(
        "GET",
        "/overview",
        "getOverview",
        "Get the counts and rates of all entities, and alerts",
        get_overview,
        OverviewAnswer,
    ),
    Route(
        "GET",
        "/overview/stream",
        "streamOverview",
        "The overview as server-sent events: first all entities, then those that have changed",
        stream_overview,
        None,
        is_stream=True,
    ),
)
