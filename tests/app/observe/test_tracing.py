"""Spans of transitions: their times, and what happens if nobody takes them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker.app.observe import tracing as tracing_module
from broker.app.observe.tracing import Tracing
from broker.app.runtime.clock import Clock
from broker.core.contract.transitions import HistoryPlace, TransitionKind, Transitions
from broker.core.namespace_clock import NamespaceClock
from protocol.codec import APPLICATION_PROPERTIES, encode, section_start

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_MS = 3_600_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """Tracing with an exporter in memory, and a namespace whose clock is ahead."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.clock = Clock()
        self.exporter = InMemorySpanExporter()
        self.offset_ms = offset_ms
        self.namespace_clock = NamespaceClock()
        self.namespace_clock.advance(offset_ms)
        namespaces: Any = {"ns": SimpleNamespace(clock=self.namespace_clock)}
        self.tracing = Tracing(self.clock, namespaces, self.exporter)

    def batch(self, ago_ms: int = 0, **properties: str) -> Transitions:
        """A message that was sent so long ago by the clock of the namespace."""
        head = section_start(APPLICATION_PROPERTIES) + encode({"traceparent": PARENT, **properties})
        place = HistoryPlace("ns", "orders", 0)
        place.add_heads((1,), (head,))
        time_ms = self.clock.now_ms() + self.offset_ms - ago_ms
        return Transitions(TransitionKind.SENT, time_ms, place, (1,), 0, None, None, None)

    async def spans(self) -> list[Any]:
        await self.tracing.stop()
        return list(self.exporter.get_finished_spans())


@pytest.mark.parametrize("offset_ms", [0, HOUR_MS])
async def test_spans_are_in_real_time(offset_ms):
    """Whatever the clock of a namespace shows. A span lasts until the message is durable."""
    traced = Traced(offset_ms)
    traced.clock.advance_ms(HOUR_MS)
    before_ms = traced.clock.real_ms()
    traced.tracing.observe([traced.batch(5)])
    (span,) = await traced.spans()
    assert before_ms * 1_000_000 <= span.end_time <= traced.clock.real_ms() * 1_000_000
    assert 0 <= span.end_time - span.start_time - 5_000_000 <= 10_000_000_000


async def test_what_a_moved_clock_has_caused_has_no_duration():
    """A lock that expired an hour ago by the moved clock expired now."""
    traced = Traced()
    traced.tracing.observe([traced.batch(HOUR_MS)])
    (span,) = await traced.spans()
    assert span.end_time == span.start_time


async def test_a_frozen_clock_tells_no_duration():
    traced = Traced()
    traced.namespace_clock.freeze(traced.clock.now_ms())
    traced.tracing.observe([traced.batch(5)])
    (span,) = await traced.spans()
    assert span.end_time == span.start_time


async def test_the_state_of_the_trace_is_passed_on():
    traced = Traced()
    traced.tracing.observe([traced.batch(tracestate="vendor=x")])
    (span,) = await traced.spans()
    assert "x" == span.context.trace_state["vendor"]
    assert int(PARENT[3:35], 16) == span.context.trace_id
    assert int(PARENT[36:52], 16) == span.parent.span_id


async def test_transitions_that_nobody_takes_are_dropped(monkeypatch):
    """They take memory, and clients must not wait for the thread."""
    monkeypatch.setattr(tracing_module, "WAITING_MAX", 5)
    traced = Traced()
    may_go, reached = threading.Event(), threading.Event()
    export: Callable[..., None] = traced.tracing._export

    def slow_export(*arguments: Any) -> None:
        reached.set()
        assert may_go.wait(20)
        export(*arguments)

    monkeypatch.setattr(traced.tracing, "_export", slow_export)
    traced.tracing.observe([traced.batch()])
    assert reached.wait(20)
    for _ in range(10):
        traced.tracing.observe([traced.batch()])
    may_go.set()
    assert 5 == len(await traced.spans())


async def test_a_span_that_cannot_be_made_harms_no_other(monkeypatch):
    traced = Traced()
    broken = traced.batch()
    broken.numbers = (1, 2)
    broken.delivery_counts = (0,)
    traced.tracing.observe([broken, traced.batch()])
    assert 1 <= len(await traced.spans())
