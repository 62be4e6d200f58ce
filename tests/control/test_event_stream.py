"""Streams of server-sent events: what is written, what is dropped, and when a stream ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from protocol.http.control import event_stream
from protocol.http.control.control_errors import ControlError
from protocol.http.control.event_stream import Event, EventQueue, encode

ENDED: web.AppKey[asyncio.Event] = web.AppKey("ended", asyncio.Event)


def application(queue: EventQueue) -> web.Application:
    """An application whose only answer is the stream of a queue."""
    built = web.Application()
    event_stream.prepare(built)
    ended = built[ENDED] = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        call: Any = SimpleNamespace(request=request)
        try:
            return await event_stream.respond(call, queue)
        except ControlError as error:
            return error.response()
        finally:
            ended.set()

    built.router.add_get("/", handle)
    return built


def client_of(queue: EventQueue) -> TestClient[web.Request, web.Application]:
    server = TestServer(application(queue), handler_cancellation=True)
    return TestClient(server)


def application_of(client: TestClient[web.Request, web.Application]) -> web.Application:
    server = client.server
    assert isinstance(server, TestServer)
    return server.app


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event({"a": 1}), 'data: {"a": 1}\n\n'),
        (Event({"a": "ä\n"}, "sent", 7), 'id: 7\nevent: sent\ndata: {"a": "ä\\n"}\n\n'),
    ],
)
def test_an_event_is_one_line_of_json(event, text):
    assert text.encode() == encode(event)


async def test_events_arrive_when_they_are_put():
    queue = EventQueue()
    async with client_of(queue) as client:
        response = await client.get("/")
        assert "text/event-stream" == response.headers["Content-Type"]
        assert b": the stream is open\n" == await response.content.readline()
        await response.content.readline()
        queue.put(Event({"number": 1}))
        assert b'data: {"number": 1}\n' == await response.content.readline()


async def test_a_slow_client_is_told_how_many_events_it_missed():
    queue = EventQueue(events_max=2)
    for number in range(5):
        queue.put(Event({"number": number}))
    taken = await queue.take()
    assert [Event({"count": 3}, "dropped"), Event({"number": 3}), Event({"number": 4})] == taken


async def test_a_stream_ends_after_the_events_that_wait():
    queue = EventQueue()
    queue.put(Event({"number": 1}))
    queue.end()
    async with client_of(queue) as client:
        response = await client.get("/")
        text = await response.text()
    assert text.endswith('data: {"number": 1}\n\n')


async def test_open_streams_end_when_the_application_stops():
    queue = EventQueue()
    async with client_of(queue) as client:
        response = await client.get("/")
        await response.content.readline()
        await application_of(client).shutdown()
        assert b"\n" == await response.read()


async def test_a_stream_whose_client_goes_is_forgotten():
    queue = EventQueue()
    async with client_of(queue) as client:
        response = await client.get("/")
        await response.content.readline()
        built = application_of(client)
        assert {queue} == built[event_stream.OPEN_STREAMS]
        response.close()
        async with asyncio.timeout(5):
            await built[ENDED].wait()
        assert set() == built[event_stream.OPEN_STREAMS]


async def test_the_number_of_streams_is_limited(monkeypatch):
    monkeypatch.setattr(event_stream, "STREAMS_MAX", 0)
    async with client_of(EventQueue()) as client:
        response = await client.get("/")
        assert 429 == response.status


async def test_an_idle_stream_is_kept_alive(monkeypatch):
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.01)
    async with client_of(EventQueue()) as client:
        response = await client.get("/")
        for _ in range(2):
            await response.content.readline()
        assert b": keep-alive\n" == await response.content.readline()


class SlowQueue(EventQueue):
    """Takes its events first and needs time afterwards, as streams do that pause while they write many events."""

    async def take(self) -> list[Event]:
        taken = await super().take()
        await asyncio.sleep(0.1)
        return taken


async def test_a_keep_alive_loses_no_events(monkeypatch):
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.01)
    queue = SlowQueue()
    queue.put(Event({"number": 1}))
    queue.end()
    async with asyncio.timeout(5), client_of(queue) as client:
        text = await (await client.get("/")).text()
    assert ": keep-alive" in text
    assert 'data: {"number": 1}\n' in text


async def test_nothing_is_taken_after_the_client_has_gone():
    queue = EventQueue()
    async with client_of(queue) as client:
        response = await client.get("/")
        await response.content.readline()
        response.close()
        async with asyncio.timeout(5):
            await application_of(client)[ENDED].wait()
        await asyncio.sleep(0)
        names = [getattr(one.get_coro(), "__qualname__", "") for one in asyncio.all_tasks()]
        assert "EventQueue.take" not in names
