"""Time limits of HTTP connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from broker.app.network.http_connections import HttpConnections
from protocol.http import error_responses, request_bodies
from tests.support.protocol_sources import system_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIMEOUT_S = 0.25
KEEP_ALIVE_S = 1.5
CONNECTIONS_MAX = 3


class Host:
    """An application that answers with what it was sent; what says `slow` waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request_bodies.read(request, 100)
        if body == b"slow":
            await self.go_on.wait()
        return web.Response(body=body)


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(request_bodies, "SILENCE_MAX_S", TIMEOUT_S)
    host = Host()
    application = web.Application(middlewares=[error_responses.middleware(system_sources())])
    application.router.add_route("*", "/", host.answer)
    connections = HttpConnections(
        TIMEOUT_S, lambda count: count > CONNECTIONS_MAX, keep_alive_timeout_s=KEEP_ALIVE_S
    )
    connections.watch(application)
    runner = web.AppRunner(application)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(
        connections.wrap(runner.server), "127.0.0.1", 0
    )
    host.port = server.sockets[0].getsockname()[1]
    yield host
    server.close()
    await runner.cleanup()


async def answer_to(host: Host, data: bytes) -> bytes:
    """All that is answered until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("data", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a"])
async def test_a_head_that_is_not_completed_ends_the_connection(host: Host, data: bytes) -> None:
    """There is nothing to answer yet."""
    assert b"" == await answer_to(host, data)


async def test_a_body_that_is_not_completed_is_refused(host: Host) -> None:
    """With the reason."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head + b"abc")
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_request_may_take_its_time_to_be_answered(host: Host) -> None:
    """The next request may as well. A connection that came later and sent nothing is closed by
    then."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head + b"\r\nslow")
    assert b"" == await answer_to(host, b"")
    host.go_on.set()
    assert (await asyncio.wait_for(reader.readuntil(b"slow"), 10)).startswith(b"HTTP/1.1 200 ")
    assert b"" == await answer_to(host, b"")
    writer.write(head + b"Connection: close\r\n\r\nmore")
    assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"more")
    writer.close()


ANSWERED = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_later_head_that_is_not_completed_ends_the_connection(host: Host) -> None:
    """One complete request does not allow a client to keep its connection forever."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(ANSWERED)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    began_s = asyncio.get_running_loop().time()
    writer.write(b"GET / HT")
    with suppress(ConnectionResetError):
        assert b"" == await asyncio.wait_for(reader.read(), 10)
    assert asyncio.get_running_loop().time() - began_s < KEEP_ALIVE_S
    writer.close()


async def test_a_connection_without_requests_is_closed(host: Host) -> None:
    """Keep-alive has an end."""
    with suppress(ConnectionResetError):
        assert (await answer_to(host, ANSWERED)).startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_arrives_too_slowly_is_refused(host: Host) -> None:
    """A byte now and then is as good as nothing."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head)

    async def send_slowly() -> None:
        for _ in range(100):
            writer.write(b"x")
            await asyncio.sleep(TIMEOUT_S / 5)

    sending = asyncio.get_running_loop().create_task(send_slowly())
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408 ")
    assert not sending.done()
    sending.cancel()
    writer.close()


async def test_there_are_only_so_many_connections(host: Host) -> None:
    """One more is closed at once; when a client has gone, another can connect."""
    held = [await asyncio.open_connection("127.0.0.1", host.port) for _ in range(CONNECTIONS_MAX)]
    for reader, writer in held:
        writer.write(ANSWERED)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert b"" == await answer_to(host, ANSWERED)
    for _, writer in held:
        writer.close()
        await writer.wait_closed()
    with suppress(ConnectionResetError):
        assert (await answer_to(host, ANSWERED)).startswith(b"HTTP/1.1 200 ")
