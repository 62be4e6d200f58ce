"""What a socket is told while a client speaks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, cast

from broker.app.transport import AmqpTransport

if TYPE_CHECKING:
    import asyncio

    from broker.app.transport import Doorkeeper
    from protocol.amqp.connection import Connection


class Silent:
    """A connection that has nothing to say until it is told to."""

    opened = finished = False

    def __init__(self) -> None:
        self.output = b""

    def receive_data(self, data: bytes) -> None:
        del data

    def take_output(self) -> bytes:
        output, self.output = self.output, b""
        return output

    def lost(self) -> None: ...


class Wire:
    """A transport and its socket, keeping what happens to them."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.options: list[tuple[int, ...]] = []

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


class Porter:
    """Flushes at once."""

    def touch(self, transport: AmqpTransport) -> None:
        transport.flush()

    def took_in(self, transport: AmqpTransport, size_bytes: int) -> bool:
        del transport, size_bytes
        return False

    def left(self, transport: AmqpTransport) -> None: ...


async def test_what_is_read_is_acknowledged_even_without_an_answer():
    """A client that waits for the acknowledgement before it writes more does not wait long."""
    connection, wire = Silent(), Wire()
    porter = cast("Doorkeeper", Porter())
    transport = AmqpTransport(porter, lambda *_: cast("Connection", connection), 60.0)
    transport.connection_made(cast("asyncio.BaseTransport", wire))
    try:
        connection.output = b"an answer"
        transport.data_received(b"a question")
        assert [b"an answer"] == wire.written
        assert [] == wire.options
        transport.data_received(b"a remark")
        assert [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)] == wire.options
    finally:
        transport.connection_lost(None)
