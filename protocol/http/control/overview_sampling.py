"""Samples the entities of one namespace: counts, and rates from two samples of the same totals.

Nothing is sampled unless somebody looks. All who look share the samples, and get the changes since the sample that
they know. With many entities samples are taken less often, so that they take few percent of the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core.contract import control_operations as control
from protocol.http.control.overview_alerts import Alerts
from protocol.http.control.pacing import Pace
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.control_operations import EntityActivity
    from protocol.http.control.routes import Call

INTERVAL_S = 1.0
SHARE_OF_TIME = 0.03
"""How much of the time samples may take."""
PART_ENTITIES = 300
"""How many entities one turn reads: about a millisecond of work."""
KEPT_SAMPLES = 300
"""How many samples are kept: their rates for charts, their changes for those who look."""
KEPT_RATES_MAX = 20_000
"""How many rates of entities all kept samples may have together."""
CLIENT_ERROR_MS = 300_000
"""How long the error of a client is an alert."""


class Sample(NamedTuple):
    """What has changed with one sample."""

    number: int
    time: str | None
    real_ms: int
    changed: dict[str, dict[str, Any]]
    """The entities that have changed, by path."""
    removed: list[str]
    rates: dict[str, tuple[float, float]]
    """Messages in and out for each second, of entities that had any."""


class Overview:
    """The samples of one namespace."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        """What is shown of each entity, by path."""
        self.alerts: list[dict[str, object]] = []
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.connections = 0
        self.interval_s = INTERVAL_S
        self._activity: dict[str, EntityActivity] = {}
        self._alerts = Alerts()
        self._lock = asyncio.Lock()
        self._sampled_s: float | None = None

    @property
    def number(self) -> int:
        """The number of the last sample."""
        return self.samples[-1].number if self.samples else 0

    def due_in_s(self, now_s: float) -> float:
        """Returns how long the last sample stays the newest."""
        return 0.0 if self._sampled_s is None else self._sampled_s + self.interval_s - now_s

    async def refresh(self, call: Call) -> None:
        """Takes a sample, unless the last one is new enough. Those who come meanwhile wait for the same sample."""
        stopwatch_s = call.services.sources.stopwatch_s
        async with self._lock:
            if self.due_in_s(stopwatch_s()) > 0:
                return
            began_s = stopwatch_s()
            await self._sample(call, began_s)
            worked_s = stopwatch_s() - began_s
            self.interval_s = max(INTERVAL_S, worked_s / SHARE_OF_TIME)
            self._sampled_s = began_s

    def changes_since(self, number: int) -> list[Sample] | None:
        """Returns the samples after one. None if they are not all kept, so that all has to be shown."""
        newer = [one for one in self.samples if one.number > number]
        return newer if not newer or newer[0].number == number + 1 else None

    async def _sample(self, call: Call, now_s: float) -> None:
        pace = Pace(call)
        # Copies: a viewer who leaves ends the sample, and the next one must find the same changes.
        before, rows = self._activity, dict(self.rows)
        elapsed_s = None if self._sampled_s is None else now_s - self._sampled_s
        activity: dict[str, EntityActivity] = {}
        changed: dict[str, dict[str, Any]] = {}
        rates: dict[str, tuple[float, float]] = {}
        compared: list[tuple[EntityActivity, EntityActivity]] = []
        paths: list[str] = await call.ask(control.ListPaths())
        for start in range(0, len(paths), PART_ENTITIES):
            part: list[EntityActivity] = await call.ask(
                control.ReadActivity(paths[start : start + PART_ENTITIES])
            )
            for one in part:
                activity[one.path] = one
                earlier = before.get(one.path)
                if earlier == one and not rows[one.path]["is_busy"]:
                    continue
                rate = _rates(earlier, one, elapsed_s)
                if rate != (0.0, 0.0):
                    rates[one.path] = rate
                if earlier is not None:
                    compared.append((earlier, one))
                row = _row(one, rate)
                if row != rows.get(one.path):
                    changed[one.path] = rows[one.path] = row
            await pace.pause()
        removed = [path for path in rows if path not in activity]
        for path in removed:
            del rows[path]
        for earlier, one in compared:
            self._alerts.compare(earlier, one, now_s)
        self._activity, self.rows = activity, rows
        services = call.services
        now_ms = services.sources.real_ms()
        clients = services.client_errors(call.namespace)
        self.connections = clients.connections
        recent = [one for one in clients.errors if one.at_ms > now_ms - CLIENT_ERROR_MS]
        expiring = [one for one in activity.values() if one.expiring_locks]
        self.alerts = self._alerts.list(expiring, activity, recent, now_s)
        time = write_time(services.namespace_control.clock(call.namespace).now_ms)
        self._keep(Sample(self.number + 1, time, now_ms, changed, removed, rates))

    def _keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        kept = sum(len(one.changed) + len(one.rates) for one in self.samples)
        while kept > KEPT_RATES_MAX and len(self.samples) > 1:
            oldest = self.samples.popleft()
            kept -= len(oldest.changed) + len(oldest.rates)


def _rates(
    before: EntityActivity | None, after: EntityActivity, elapsed_s: float | None
) -> tuple[float, float]:
    """Returns the messages in and out for each second. Totals that fall belong to a new entity of the same name."""
    if before is None or not elapsed_s:
        return 0.0, 0.0
    arrived = max(0, after.arrived_total - before.arrived_total)
    delivered = max(0, after.delivered_total - before.delivered_total)
    return round(arrived / elapsed_s, 1), round(delivered / elapsed_s, 1)


def _row(one: EntityActivity, rate: tuple[float, float]) -> dict[str, Any]:
    counts: Mapping[str, int] = one.main._asdict()
    return {
        "path": one.path,
        "kind": one.kind,
        "counts": {
            **counts,
            "dead_lettered": one.dead_letters,
            "transfer_dead_lettered": one.transfer_dead_letters,
        },
        "incoming_per_s": rate[0],
        "outgoing_per_s": rate[1],
        "is_busy": rate != (0.0, 0.0),
        "oldest_enqueued": write_time(one.oldest_enqueued_ms),
        "receivers": one.receivers,
        "senders": one.senders,
        "size_bytes": one.size_bytes,
        "held_sessions": one.held_sessions,
    }
