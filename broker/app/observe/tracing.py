"""Spans of OpenTelemetry for what happens to messages that carry a trace id.

Loaded only if the setting `tracing` is on. The spans are made of the transitions of the history, once they are
durable, in a thread of its own: an exporter that cannot follow loses spans and delays no client.
"""

from __future__ import annotations

import asyncio
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState

from broker import __version__
from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message import Message
from broker.core.contract.transitions import ChangedHead, TransitionKind
from protocol.codec import Reader
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import AttributeValue

    from broker.app.runtime.clock import Clock
    from broker.core.contract.transitions import Transitions, TransitionView
    from broker.core.namespace import Namespace

log = structlog.get_logger("peeklock.tracing")

WAITING_MAX = 100_000
"""How many transitions wait for the thread. More are dropped."""
TURN_MAX_MS = 10_000
"""An operation that began longer ago than this did so by a clock that a test has moved."""
STOP_S = 3.0
"""How long a stop waits for the exporter."""
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Operation(NamedTuple):
    """The span of a kind of transition."""

    name: str
    type: str | None = None
    """`messaging.operation.type` of the semantic conventions, if a client may ask for it."""
    disposition: str | None = None
    """`messaging.servicebus.disposition_status`."""


OPERATIONS = {
    TransitionKind.SENT: Operation("send", "send"),
    TransitionKind.SCHEDULED: Operation("schedule", "send"),
    TransitionKind.LOCKED: Operation("deliver", "receive"),
    TransitionKind.RECEIVED: Operation("deliver", "receive"),
    TransitionKind.COMPLETED: Operation("settle", "settle", "complete"),
    TransitionKind.ABANDONED: Operation("settle", "settle", "abandon"),
    TransitionKind.DEFERRED: Operation("settle", "settle", "defer"),
    TransitionKind.RELEASED: Operation("settle", "settle", "release"),
    TransitionKind.LOCK_EXPIRED: Operation("lock_expired"),
    TransitionKind.FORWARDED: Operation("forward"),
    TransitionKind.RESUBMITTED: Operation("forward"),
    TransitionKind.DEAD_LETTERED: Operation("dead_letter", "settle", "dead_letter"),
    TransitionKind.EXPIRED: Operation("expire"),
}
"""Other transitions have no span: a topic may make thousands of copies."""
_SUFFIXES = ("", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue")


class Tracing:
    """Makes spans of transitions and exports them."""

    def __init__(
        self,
        clock: Clock,
        namespaces: Mapping[str, Namespace],
        exporter: SpanExporter | None = None,
    ) -> None:
        self._clock = clock
        self._namespaces = namespaces
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter()))
        self._tracer = self._provider.get_tracer("peeklock", __version__)
        self._reader = Reader()
        self._queue: SimpleQueue[tuple[Sequence[Transitions], int, int] | None] = SimpleQueue()
        self._put_count = 0
        self._taken_count = 0
        """How many transitions the event loop has put into the queue, and the thread has taken out of it."""
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def observe(self, transitions: Sequence[Transitions]) -> None:
        """Takes transitions that are durable now."""
        count = sum(map(len, transitions))
        if self._put_count - self._taken_count + count > WAITING_MAX:
            repeated_events.note(log.warning, "tracing.dropped", None, transitions=count)
            return
        self._put_count += count
        self._queue.put((transitions, self._clock.real_ms(), self._clock.ahead_ms))

    async def stop(self) -> None:
        """Exports what is left, for a moment."""
        self._queue.put(None)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end() -> None:
            self._thread.join(STOP_S)
            self._provider.shutdown()
            loop.call_soon_threadsafe(ended.set)

        # A daemon, unlike the threads of an executor: the process need not wait for a collector that is gone.
        threading.Thread(target=end, name="tracing-end", daemon=True).start()
        try:
            async with asyncio.timeout(STOP_S):
                await ended.wait()
        except TimeoutError:
            log.warning("tracing.not_exported", reason="the collector did not answer in time")

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            transitions, now_ms, ahead_ms = work
            for batch in transitions:
                try:
                    self._export(batch, now_ms, ahead_ms)
                except Exception:
                    # The broker goes on, and so do the spans of other messages.
                    log.exception("tracing.failed")
            self._taken_count += sum(map(len, transitions))

    def _export(self, batch: Transitions, now_ms: int, ahead_ms: int) -> None:
        operation = OPERATIONS.get(batch.kind)
        if operation is None:
            return
        namespace = self._namespaces.get(batch.place.namespace)
        began_ms = now_ms
        if namespace is not None and namespace.clock.frozen_ms is None:
            began_ms = batch.time_ms - ahead_ms - namespace.clock.offset_ms
        if not now_ms - TURN_MAX_MS <= began_ms <= now_ms:
            began_ms = now_ms
        is_asked_for = operation.type is not None and batch.client is not None
        for view in batch.expand():
            parent = self._parent(view)
            if parent is not None:
                span = self._tracer.start_span(
                    f"{operation.name} {batch.place.entity}",
                    trace.set_span_in_context(NonRecordingSpan(parent)),
                    SpanKind.SERVER if is_asked_for else SpanKind.INTERNAL,
                    self._attributes(operation, view),
                    start_time=began_ms * 1_000_000,
                )
                span.end(now_ms * 1_000_000)

    def _parent(self, view: TransitionView) -> SpanContext | None:
        """Returns the span that sent the message, or None if it names none."""
        head = _sent(view)
        text = None if head is None else self._reader.trace_parent(head)
        if head is None or text is None:
            return None
        _, trace_id, span_id, flags = text.split("-")
        return SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(int(flags, 16)),
            trace_state=self._state(head),
        )

    def _state(self, head: bytes) -> TraceState | None:
        if b"tracestate" not in head:
            return None
        value = self._reader.application_properties(Message(head)).get("tracestate")
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        return TraceState.from_header([text]) if isinstance(text, str) else None

    def _attributes(
        self, operation: Operation, view: TransitionView
    ) -> dict[str, AttributeValue | None]:
        batch = view.batch
        values: dict[str, AttributeValue | None] = {
            "messaging.system": "servicebus",
            "messaging.destination.name": batch.place.entity + _SUFFIXES[batch.place.sub_queue],
            "messaging.operation.name": operation.name,
            "messaging.operation.type": operation.type,
            "messaging.message.id": self._message_id(view),
            "messaging.servicebus.disposition_status": operation.disposition,
            "messaging.servicebus.message.delivery_count": view.delivery_count,
            "peeklock.namespace": batch.place.namespace,
            "peeklock.sequence_number": view.sequence_number,
            "peeklock.reason": batch.reason,
            "peeklock.description": batch.description,
            "peeklock.to": None if view.to is None else _path(view),
        }
        return {name: value for name, value in values.items() if value is not None}

    def _message_id(self, view: TransitionView) -> str | None:
        head = _sent(view)
        try:
            return None if head is None else self._reader.message_id(head)
        except UndecodableMessage:
            return None


def _sent(view: TransitionView) -> bytes | None:
    head = view.head
    return head.sent if isinstance(head, ChangedHead) else head


def _path(view: TransitionView) -> str:
    assert view.to is not None
    return view.to[0].entity + _SUFFIXES[view.to[0].sub_queue]


def _resource() -> Resource:
    attributes = {"service.version": __version__}
    given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not os.environ.get("OTEL_SERVICE_NAME") and f"{SERVICE_NAME}=" not in given:
        attributes[SERVICE_NAME] = "peeklock"
    return Resource.create(dict(attributes))


def _exporter() -> SpanExporter:
    """Returns the exporter of the protocol that the environment names: http/protobuf, or grpc if its package is
    installed."""
    protocol = next(filter(None, map(os.environ.get, PROTOCOL_VARIABLES)), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found]
            OTLPSpanExporter as GrpcExporter,
        )

        exporter: SpanExporter = GrpcExporter()
        return exporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
