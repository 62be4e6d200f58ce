"""An HTTP client that begins a request has to go on with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from broker.app.patience import Patience
from protocol.http import bodies, errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_S = 0.25


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Where an application listens that answers with what it was sent, in its own time."""
    monkeypatch.setattr(bodies, "SILENCE_MAX_S", PATIENCE_S)

    async def answer(request: web.Request) -> web.Response:
        body = await bodies.read(request, 100)
        if body == b"slow":
            await asyncio.sleep(2 * PATIENCE_S)
        return web.Response(body=body)

    application = web.Application(middlewares=[errors.middleware])
    application.router.add_route("*", "/", answer)
    patience = Patience(PATIENCE_S)
    patience.watch(application)
    runner = web.AppRunner(application)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(
        patience.over(runner.server), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    await runner.cleanup()


async def say(port: int, *pieces: bytes) -> bytes:
    """All that is answered until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(2 * PATIENCE_S)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\nHost: a"])
async def test_a_head_that_stands_still_ends_the_connection(port: int, data: bytes) -> None:
    """There is nothing to answer yet."""
    assert b"" == await say(port, data)


async def test_a_body_that_stands_still_is_refused(port: int) -> None:
    """With the reason."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"abc")
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_request_may_take_its_time_to_be_answered(port: int) -> None:
    """And so may the next one to come."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
    answers = await say(port, head + b"\r\nslow", head + b"Connection: close\r\n\r\nmore")
    assert answers.endswith(b"more")
    assert 2 == answers.count(b"HTTP/1.1 200 ")
