"""HTTP connections before the application is loaded: health is answered, everything else waits for it."""

from __future__ import annotations

import asyncio

import pytest

from broker.app.network.early_http import (
    KEPT_MAX_BYTES,
    EarlyHttpConnection,
    EarlyHttpConnections,
)
from tests.support.virtual_time import on_virtual_time

TIMEOUT_S = 30.0
HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
OTHER = b"PUT /orders HTTP/1.1\r\nHost: here\r\n\r\n"


class Transport(asyncio.Transport):
    """Remembers what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.protocol: asyncio.BaseProtocol | None = None
        self.ended = ""
        self.is_paused = False

    def write(self, data: object) -> None:
        self.written += bytes(data)  # type: ignore[call-overload]

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class Application(asyncio.Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


class Early:
    """Connections of which at most two are allowed."""

    def __init__(self) -> None:
        self.loads = 0
        self.is_ready = True
        self.connections = EarlyHttpConnections(
            TIMEOUT_S,
            lambda: None if self.is_ready else ("standby", "Another owns it."),
            lambda count: count > 2,
            self._load,
        )

    def _load(self) -> None:
        self.loads += 1

    def connect(self) -> tuple[EarlyHttpConnection, Transport]:
        connection, transport = EarlyHttpConnection(self.connections), Transport()
        connection.connection_made(transport)
        return connection, transport


@pytest.fixture
async def early() -> Early:
    return Early()


async def test_health_is_answered_without_the_application(early: Early):
    """Also when it comes byte by byte."""
    connection, transport = early.connect()
    for index in range(len(HEALTH)):
        assert not transport.written
        connection.data_received(HEALTH[index : index + 1])
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert ("closed", 0) == (transport.ended, early.loads)


async def test_health_is_503_while_the_broker_is_not_ready(early: Early):
    """The broker can be unready again, after a failure of its store."""
    early.is_ready = False
    connection, transport = early.connect()
    connection.data_received(HEALTH)
    assert transport.written.startswith(b"HTTP/1.1 503 ")
    assert b'"reason":"standby"' in transport.written


@pytest.mark.parametrize("data", [OTHER, HEALTH + OTHER, b"GET /$metrics"])
async def test_any_other_request_gets_all_its_bytes_in_the_application(early: Early, data: bytes):
    """Nothing is answered before, and nothing is lost."""
    connection, transport = early.connect()
    connection.data_received(data)
    connection.data_received(b"the rest")
    assert (1, b"") == (early.loads, transport.written)
    application = Application()
    early.connections.hand_over(lambda: application)
    assert (application, transport) == (transport.protocol, application.transport)
    assert data + b"the rest" == application.received
    assert 0 == early.connections.count


async def test_a_large_body_waits_in_the_socket(early: Early):
    """A client that sends much before the application is there is not read on."""
    connection, transport = early.connect()
    connection.data_received(OTHER)
    connection.data_received(bytes(KEPT_MAX_BYTES))
    assert transport.is_paused
    early.connections.hand_over(Application)
    assert not transport.is_paused


async def test_a_head_of_health_that_does_not_end_goes_to_the_application(early: Early):
    """It refuses heads that are too large."""
    connection, _ = early.connect()
    connection.data_received(HEALTH[:-2] + b"X: " + b"x" * KEPT_MAX_BYTES)
    assert 1 == early.loads


@on_virtual_time
async def test_a_head_must_arrive_in_time():
    """As in the application."""
    early = Early()
    connection, transport = early.connect()
    connection.data_received(HEALTH[:10])
    await asyncio.sleep(0.9 * TIMEOUT_S)
    assert ("", 1) == (transport.ended, early.connections.count)
    await asyncio.sleep(0.2 * TIMEOUT_S)
    assert ("aborted", 0) == (transport.ended, early.connections.count)


async def test_too_many_connections_are_ended(early: Early):
    """They count with those of AMQP."""
    transports = [early.connect()[1] for _ in range(3)]
    assert ["", "", "aborted"] == [one.ended for one in transports]


async def test_a_client_that_has_gone_is_forgotten(early: Early):
    """The application does not get it."""
    connection, _ = early.connect()
    connection.data_received(OTHER)
    connection.connection_lost(None)
    early.connections.hand_over(Application)
    assert 0 == early.connections.count
