"""Spans of messages whose sender is traced: through the stock client, to a collector."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.support.otlp_collector import OtlpCollector
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.otlp_collector import CollectedSpan

CONFIG: dict[str, Any] = {
    "queues": {"orders": {"forward_to": "work"}, "work": {"max_delivery_count": 1}}
}
SERVER, INTERNAL = 2, 1
"""Kinds of spans."""


@pytest.fixture(scope="module")
def tracer() -> trace.Tracer:
    """The traces of the application."""
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    return provider.get_tracer("application")


@pytest.fixture
def traced_sdk() -> Iterator[None]:
    """The stock client writes trace ids into the messages that it sends."""
    settings.tracing_implementation = "opentelemetry"
    yield
    settings.tracing_implementation.unset_value()


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as running:
        yield running


@pytest.fixture(params=["memory", "sqlite"])
def broker(
    request: pytest.FixtureRequest, tmp_path: Path, collector: OtlpCollector
) -> Iterator[BrokerProcess]:
    storage = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    environment = {
        "PEEKLOCK_TRACING": "on",
        "PEEKLOCK_LOG_FORMAT": "json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with BrokerProcess(config=CONFIG, storage=storage, environment=environment) as running:
        yield running


def named(spans: list[CollectedSpan]) -> list[str]:
    return [span.name for span in sorted(spans, key=lambda span: span.end_ns)]


def test_spans_follow_the_trace_of_the_sender(broker, collector, tracer, traced_sdk):
    """Send, forward, deliver, settle and dead-letter are in the trace that the SDK wrote into the message, at real
    times. The log names the trace."""
    began_ns = time.time_ns()
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            with tracer.start_as_current_span("order") as order:
                sender.send_messages(ServiceBusMessage("x", message_id="a"))
            settings.tracing_implementation = None
            sender.send_messages(ServiceBusMessage("x", message_id="untraced"))
        with client.get_queue_receiver("work") as receiver:
            (one,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.dead_letter_message(one, reason="Bad", error_description="because")
            (untraced,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(untraced)
        dead = client.get_queue_receiver("work", sub_queue="deadletter")
        with dead:
            (one,) = dead.receive_messages(1, max_wait_time=5)
            dead.complete_message(one)
    spans = collector.wait(lambda found: len(found) >= 6)
    assert [
        "send orders",
        "forward orders",
        "deliver work",
        "dead_letter work",
        "deliver work",
        "settle work",
    ] == named(spans)
    trace_id = f"{order.get_span_context().trace_id:032x}"
    assert {trace_id} == {span.trace_id for span in spans}
    (written,) = {span.parent_id for span in spans}  # the span of the message, which the SDK made
    assert re.search(f"00-{trace_id}-{written}-0[13]", str(one.application_properties))
    assert {"peeklock"} == {span.service for span in spans}
    assert all(began_ns - 10**6 <= span.start_ns <= span.end_ns <= time.time_ns() for span in spans)
    by_name = {span.name: span for span in spans}
    assert [SERVER, INTERNAL, SERVER] == [
        by_name[name].kind for name in ("send orders", "forward orders", "dead_letter work")
    ]
    send, moved, letter = (
        by_name[n].attributes for n in ("send orders", "forward orders", "dead_letter work")
    )
    assert ("servicebus", "orders", "a", 1) == tuple(
        send[name]
        for name in (
            "messaging.system",
            "messaging.destination.name",
            "messaging.message.id",
            "peeklock.sequence_number",
        )
    )
    assert "work" == moved["peeklock.to"]
    assert ("Bad", "because", "work/$DeadLetterQueue") == tuple(
        letter[f"peeklock.{name}"] for name in ("reason", "description", "to")
    )
    assert "dead_letter" == letter["messaging.servicebus.disposition_status"]
    lines = [json.loads(line) for line in broker.log_text().splitlines() if line.startswith("{")]
    (logged,) = [line for line in lines if line["event"] == "dead_lettered"]
    assert ("a", trace_id) == (logged["message_id"], logged["trace_id"])


def test_a_collector_that_is_gone_delays_nobody(tracer, traced_sdk):
    """The broker serves its clients, and stops in time."""
    environment = {
        "PEEKLOCK_TRACING": "on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
    }
    with BrokerProcess(config=CONFIG, environment=environment) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            with client.get_queue_sender("work") as sender:
                with tracer.start_as_current_span("order"):
                    sender.send_messages([ServiceBusMessage("x") for _ in range(10)])
            with client.get_queue_receiver("work") as receiver:
                assert 10 == len(receiver.receive_messages(10, max_wait_time=5))
        stopping_s = time.monotonic()
        assert 0 == broker.stop(signal.SIGTERM)
        assert 8 > time.monotonic() - stopping_s


def test_a_protocol_whose_package_is_missing_is_told_at_start():
    environment = {"PEEKLOCK_TRACING": "on", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(
        Exception, match=r"tracing needs opentelemetry.*pip install 'peeklock\[otel\]'"
    ):
        with BrokerProcess(environment=environment):
            pass
