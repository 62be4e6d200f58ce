"""AMQP over WebSocket: a stream of bytes in binary messages, both ways, with pauses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import ClientConnectionResetError, WSMsgType, web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from protocol.http import error_responses
from protocol.http.websocket import HIGH_WATER_BYTES
from tests.http.client import request
from tests.support.protocol_sources import system_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.harness import Echo, HttpHarness

PATH = "/$servicebus/websocket"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


def url(harness: HttpHarness, path: str = PATH) -> str:
    return f"ws://127.0.0.1:{harness.port}{path}"


async def lost(echo: Echo) -> bool:
    return await asyncio.get_running_loop().run_in_executor(None, echo.lost.wait, 10)


@pytest.mark.parametrize("path", [PATH, PATH + "/", "/%24servicebus/websocket"])
async def test_bytes_go_both_ways_under_the_subprotocol(harness, session, path):
    """The subprotocol is echoed; what is written comes as binary messages, in order."""
    async with session.ws_connect(url(harness, path), protocols=("AMQPWSB10",)) as socket:
        assert "AMQPWSB10" == socket.protocol
        for data in (b"AMQP\x03\x01\x00\x00", b"x", b"y" * 200_000):
            await socket.send_bytes(data)
        received = b""
        while len(received) < 200_009:
            received += await socket.receive_bytes()
        assert b"AMQP\x03\x01\x00\x00x" + b"y" * 200_000 == received
    assert await lost(harness.echoes[-1])


async def test_the_broker_can_close_after_its_last_words(harness, session):
    """What was written before `close` arrives, then the WebSocket closes properly."""
    async with session.ws_connect(url(harness), protocols=("AMQPWSB10",)) as socket:
        await socket.send_bytes(b"close")
        assert b"bye" == await socket.receive_bytes()
        assert WSMsgType.CLOSE == (await socket.receive()).type
        assert 1000 == socket.close_code
    assert await lost(harness.echoes[-1])


async def test_the_broker_can_hang_up(harness, session):
    """After `abort` nothing more is sent, and `connection_lost` is called."""
    async with session.ws_connect(url(harness), protocols=("AMQPWSB10",)) as socket:
        await socket.send_bytes(b"abort")
        assert (await socket.receive()).type in {WSMsgType.CLOSED, WSMsgType.ERROR}
    assert await lost(harness.echoes[-1])


async def test_a_client_that_vanishes_is_noticed(harness, session):
    """Without a closing handshake, `connection_lost` is called as well."""
    socket = await session.ws_connect(url(harness), protocols=("AMQPWSB10",))
    await socket.send_bytes(b"hello")
    assert b"hello" == await socket.receive_bytes()
    socket._response.connection.transport.abort()
    assert await lost(harness.echoes[-1])


async def test_a_slow_client_pauses_the_broker(harness, session):
    """While the client does not read, `pause_writing` is called; after that, `resume_writing`."""
    socket = await session.ws_connect(url(harness), protocols=("AMQPWSB10",), max_msg_size=0)
    await socket.send_bytes(b"hello")
    await socket.receive_bytes()
    echo = harness.echoes[-1]
    chunk = b"z" * HIGH_WATER_BYTES
    total = 0

    def flood() -> int:
        written = 0
        for _ in range(200):
            echo.wire.write(chunk)
            written += len(chunk)
        return written

    async def flood_there() -> int:
        return flood()

    total = await asyncio.get_running_loop().run_in_executor(None, harness.run, flood_there())
    assert 1 == echo.pauses
    received = 0
    while received < total:
        received += len(await socket.receive_bytes())
    await socket.send_bytes(b"end")
    assert b"end" == await socket.receive_bytes()
    assert 1 == echo.resumes
    await socket.close()


async def test_reading_can_be_paused(harness, session):
    """What the client sends meanwhile is not fed, and not lost."""
    async with session.ws_connect(url(harness), protocols=("AMQPWSB10",)) as socket:
        await socket.send_bytes(b"1")
        assert b"1" == await socket.receive_bytes()
        echo = harness.echoes[-1]
        harness.loop.call_soon_threadsafe(echo.wire.pause_reading)
        await socket.send_bytes(b"2")  # the reader was waiting for this one already
        await socket.send_bytes(b"3")
        await asyncio.get_running_loop().run_in_executor(None, harness.run, asyncio.sleep(0))
        assert b"3" not in echo.heard
        harness.loop.call_soon_threadsafe(echo.wire.resume_reading)
        assert b"2" == await socket.receive_bytes()
        assert b"3" == await socket.receive_bytes()


async def test_text_is_not_amqp(harness, session):
    """Closed with the code for unacceptable data."""
    async with session.ws_connect(url(harness), protocols=("AMQPWSB10",)) as socket:
        await socket.send_str("AMQP")
        assert WSMsgType.CLOSE == (await socket.receive()).type
        assert 1003 == socket.close_code
    assert await lost(harness.echoes[-1])


async def test_the_standard_name_of_the_subprotocol_serves_as_well(harness, session):
    """The Go SDK's documentation recommends this name."""
    async with session.ws_connect(url(harness), protocols=("amqp",)) as socket:
        assert "amqp" == socket.protocol
        await socket.send_bytes(b"x")
        assert b"x" == await socket.receive_bytes()


async def test_another_subprotocol_is_refused(harness, session, caplog):
    """Nothing is fed to AMQP, and aiohttp logs no line for each of them."""
    before = len(harness.echoes)
    async with session.ws_connect(url(harness), protocols=("mqtt",)) as socket:
        assert WSMsgType.CLOSE == (await socket.receive()).type
        assert 1002 == socket.close_code
    assert before == len(harness.echoes)
    assert [] == [record.name for record in caplog.records if record.name.startswith("aiohttp")]


def test_a_plain_request_gets_an_explanation(harness):
    """Not an entity, and not a failure."""
    assert 426 == request(harness.port, "GET", PATH).status


async def test_a_client_that_goes_before_the_upgrade_is_answered_is_no_error_of_ours():
    """There is nothing to mend, so no traceback is logged."""

    async def upgrade(_: web.Request) -> web.StreamResponse:
        raise ClientConnectionResetError("Cannot write to closing transport")

    with capture_logs() as logged:
        await error_responses.middleware(system_sources())(
            make_mocked_request("GET", PATH), upgrade
        )
    assert ["info"] == [line["log_level"] for line in logged]
