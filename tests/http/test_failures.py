"""A bug of the broker is answered with 500, and its log lines are bounded."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from protocol.http import error_responses
from protocol.repeated_events import repeated_events
from tests.support.protocol_sources import system_sources


@pytest.fixture
def clock_s():
    now_s = [0.0]
    repeated_events.configure(lambda: now_s[0])
    yield now_s
    repeated_events.configure()


def fail(path: str, error: Exception) -> web.StreamResponse:
    async def handler(request: web.Request) -> web.StreamResponse:
        del request
        raise error

    async def answer() -> web.StreamResponse:
        middleware = error_responses.middleware(system_sources())
        return await middleware(make_mocked_request("GET", path), handler)

    return asyncio.run(answer())


def test_the_same_failure_is_logged_once_in_a_while(clock_s):
    """Clients can repeat the request. The first line has the traceback, the summary has none."""
    with capture_logs() as lines:
        answers = [fail(f"/{number}", KeyError("a")) for number in range(50)]
        assert [("http.failed", True)] == [(line["event"], line["exc_info"]) for line in lines]
        clock_s[0] += 60
        repeated_events.write_summaries()
    assert {500} == {answer.status for answer in answers}
    assert ["http.failed", "http.failed.repeated"] == [line["event"] for line in lines]
    assert (49, "/49", False) == tuple(lines[1][name] for name in ("count", "path", "exc_info"))
    assert isinstance(answers[0], web.Response)
    assert f"TrackingId:{lines[0]['tracking_id']}" in str(answers[0].text)


def test_another_failure_is_logged_at_once(clock_s):
    with capture_logs() as lines:
        for error in (KeyError("a"), ValueError("b"), KeyError("c")):
            fail("/orders", error)
    assert ["KeyError", "ValueError"] == [line["error"] for line in lines]


def test_clients_that_disconnect_are_counted(clock_s):
    with capture_logs() as lines:
        for number in range(50):
            fail(f"/{number}", ConnectionResetError())
    assert ["http.client_gone"] == [line["event"] for line in lines]
