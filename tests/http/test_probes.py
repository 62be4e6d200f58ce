"""Health, metrics and the testing API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.http.client import request
from tests.http.harness import HttpHarness

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def without_testing_api() -> Iterator[HttpHarness]:
    with HttpHarness(testing_api=False) as harness:
        yield harness


def test_health_answers_as_the_official_emulator_does(harness):
    """Byte for byte, since scripts compare."""
    answer = request(harness.port, "GET", "/health")
    assert 200 == answer.status
    assert b'{"status":"healthy","message":"Service is healthy."}' == answer.body
    assert "application/json; charset=utf-8" == answer.headers["Content-Type"]


def test_health_is_503_while_the_broker_is_not_ready(harness):
    """The official emulator's words for it, and the reason. Nothing but probes is served meanwhile."""
    harness.ready = False
    try:
        answer = request(harness.port, "GET", "/health")
        assert 200 == request(harness.port, "GET", "/metrics").status
        refused = request(harness.port, "GET", "/$Resources/queues")
        control = request(harness.port, "GET", "/$peeklock/v1/entities")
    finally:
        harness.ready = True
    assert 503 == refused.status
    assert b"The broker is stopping." in refused.body
    error = {"code": "server_busy", "message": "The broker is stopping.", "field": None}
    assert (503, {"error": error}) == (control.status, json.loads(control.body))
    assert 503 == answer.status
    assert {
        "status": "unhealthy",
        "message": "Service not available. Please try after some time.",
        "reason": "stopping",
        "detail": "The broker is stopping.",
    } == json.loads(answer.body)


def test_metrics_are_passed_through(harness):
    """Body and content type are the collector's."""
    answer = request(harness.port, "GET", "/metrics")
    assert (200, b"peeklock_up 1\n") == (answer.status, answer.body)
    assert "text/plain; version=0.0.4" == answer.headers["Content-Type"]


def test_probes_ask_for_no_token(harness):
    """An orchestrator has none."""
    harness.refuse_token = True
    try:
        assert 200 == request(harness.port, "GET", "/health").status
        assert 200 == request(harness.port, "GET", "/metrics").status
    finally:
        harness.refuse_token = False


def test_the_clock_moves_ahead(harness):
    """The answer is the new time; GET reads it."""
    before_ms = json.loads(request(harness.port, "GET", "/$peeklock/clock").body)["now_ms"]
    answer = request(harness.port, "POST", "/$peeklock/clock", '{"advance_ms": 60000}')
    assert 200 == answer.status
    assert json.loads(answer.body)["now_ms"] >= before_ms + 60_000
    assert harness.clock.now_ms() >= before_ms + 60_000


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        '{"advance_ms": "60"}',
        '{"advance_ms": -1}',
        '{"advance_ms": 1.5}',
        '{"advance_ms": true}',
        '{"advance_ms": 99999999999999999}',
        "[" * 4000,
        b"\xff",
    ],
)
def test_an_invalid_request_does_not_move_the_clock(harness, body):
    """400 with a sentence that shows what is expected."""
    answer = request(harness.port, "POST", "/$peeklock/clock", body)
    assert 400 == answer.status
    assert "advance_ms" in json.loads(answer.body)["error"]


def test_the_clock_does_not_move_to_a_time_that_cannot_be_written():
    """The year 9900 is far enough for the ends of locks and of messages."""
    body = json.dumps({"advance_ms": 100 * 365 * 86_400_000})
    with HttpHarness() as own:
        statuses = [request(own.port, "POST", "/$peeklock/clock", body).status for _ in range(80)]
        assert [200] * 78 + [400] * 2 == statuses
        assert 200 == request(own.port, "GET", "/$Resources/queues?api-version=2021-05").status


def test_the_clock_is_not_there_unless_switched_on(without_testing_api):
    """404, with the way to switch it on."""
    answer = request(without_testing_api.port, "POST", "/$peeklock/clock", '{"advance_ms": 1}')
    assert 404 == answer.status
    assert "PEEKLOCK_TESTING_API" in json.loads(answer.body)["error"]
