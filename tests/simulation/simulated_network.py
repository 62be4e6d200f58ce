"""Connections in memory: bytes arrive late, in pieces, several at once, or not at all.

Has delays, splitting, back-pressure and broken connections. Each connection has its own source of
randomness, so that it does not depend on the number of others.
"""

from __future__ import annotations

from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.virtual_loop import Socket

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextvars import Context

    from tests.simulation.trace import Trace
    from tests.simulation.virtual_loop import VirtualLoop

DELAYS_S = (0.000_1, 0.000_3, 0.001, 0.001, 0.003, 0.02)
NOTICED_WITHIN_S = 0.03
"""How long a broken connection may take to be noticed, at each end."""
HIGH_WATER_BYTES, LOW_WATER_BYTES = 16_384, 4_096
FIRST_DESCRIPTOR = 1_000


class Stream:
    """One direction of a connection."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: Random,
        arrived: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._arrived = arrived
        self._ended = ended
        self.context: Context = copy_context()
        """Of the process at the far end."""
        self._buffer = bytearray()
        self._under_way = False
        self._ends = False
        self._cut = False
        self._held = False

    @property
    def size(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        if not self._cut and not self._ends:
            self._buffer += data
            self._peek_next()

    def end(self) -> None:
        """The other side sees the end after everything that was written."""
        self._ends = True
        self._peek_next()

    def cut(self) -> None:
        """Bytes in flight are lost, and the other side sees the end a little later."""
        if not self._cut:
            self._cut = True
            self._buffer.clear()
            delay_s = self._chance.uniform(0, NOTICED_WITHIN_S)
            self._loop.call_later(delay_s, self._ended, context=self.context)

    def hold(self) -> None:
        """The far end does not read."""
        self._held = True

    def resume_reading(self) -> None:
        self._held = False
        self._peek_next()

    def _peek_next(self) -> None:
        if self._under_way or self._held or self._cut or not (self._buffer or self._ends):
            return
        self._under_way = True
        delay_s = self._chance.choice(DELAYS_S) * self._chance.random()
        self._loop.call_later(delay_s, self._deliver, context=self.context)

    def _deliver(self) -> None:
        self._under_way = False
        if self._cut or self._held:
            return
        if self._buffer:
            size = len(self._buffer)
            if size > 1 and self._chance.random() < 0.3:
                size = self._chance.randrange(1, size)
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._arrived(piece)
        elif self._ends:
            self._cut = True
            self._ended()
        self._peek_next()


class ClientSocket(Socket):
    """The client's end: a socket that does not block."""

    def __init__(self, connection: Connection, descriptor: int) -> None:
        self._connection = connection
        self._descriptor = descriptor
        self._inbox = bytearray()
        self._ended = False
        self._is_closed = False

    def fileno(self) -> int:
        return self._descriptor

    def recv_into(self, buffer: bytearray, /) -> int:
        if not self._inbox:
            if self._ended:
                return 0
            raise BlockingIOError
        size = min(len(buffer), len(self._inbox))
        buffer[:size] = self._inbox[:size]
        del self._inbox[:size]
        return size

    def send(self, data: bytes, /) -> int:
        return self._connection.client_sends(data)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.client_closes()

    def wants_reader(self) -> None:
        if self._inbox or self._ended:
            self._connection.soon(self._readable)

    def wants_writer(self) -> None:
        self._connection.soon(self._writable)

    def arrived(self, data: bytes) -> None:
        self._inbox += data
        self._readable()

    def ended(self) -> None:
        self._ended = True
        self._readable()

    def _readable(self) -> None:
        if self.reader is not None and (self._inbox or self._ended):
            self.reader()

    def _writable(self) -> None:
        if self.writer is not None:
            self.writer()


class BrokerWire:
    """The broker's end: what an asyncio transport is to its protocol."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_closing = False
        self._is_paused = False
        self.protocol: asyncio.Protocol | None = None

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else None

    def fileno(self) -> int:
        """Of the socket that this is as well. It has no descriptor."""
        return -1

    def write(self, data: bytes) -> None:
        down = self._connection.down
        down.write(data)
        if down.size > HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def drained(self) -> None:
        if self._is_paused and self._connection.down.size <= LOW_WATER_BYTES:
            self._is_paused = False
            if self.protocol is not None:
                self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self._connection.down.size

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.broker_closes()

    def abort(self) -> None:
        self._is_closing = True
        self._connection.broker_aborts()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._connection.down.end()

    def pause_reading(self) -> None:
        self._connection.up.hold()

    def resume_reading(self) -> None:
        self._connection.up.resume_reading()

    def arrived(self, data: bytes) -> None:
        if self.protocol is not None and not self._is_closing:
            self.protocol.data_received(data)

    def lost(self) -> None:
        self._is_closing = True
        if self.protocol is not None:
            protocol, self.protocol = self.protocol, None
            protocol.connection_lost(None)


class Connection:
    """One connection between a client and the broker."""

    def __init__(self, network: Network, number: int) -> None:
        self.number = number
        self._network = network
        self._loop = network.loop
        self._chance = Random(f"{network.seed} connection {number}")
        self.client = ClientSocket(self, FIRST_DESCRIPTOR + number)
        self.wire = BrokerWire(self)
        self.up = Stream(self._loop, self._chance, self._up_arrived, self._up_ended)
        self.down = Stream(self._loop, self._chance, self._down_arrived, self.client.ended)
        self.is_over = False

    def soon(self, callback: Callable[[], None]) -> None:
        delay_s = self._chance.choice(DELAYS_S)
        self._loop.call_later(delay_s, callback, context=self._network.context)

    def client_sends(self, data: bytes) -> int:
        if self.is_over:
            raise ConnectionResetError
        if self._chance.random() < 0.02:
            raise BlockingIOError
        size = len(data)
        if size > 1 and self._chance.random() < 0.1:
            size = self._chance.randrange(1, size)
        self.up.write(data[:size])
        return size

    def client_closes(self) -> None:
        """Some sockets end after their last bytes, others take them along."""
        if self._chance.random() < 0.5:
            self.break_off()
        else:
            self.up.end()

    def broker_aborts(self) -> None:
        self._network.ended_by_broker(self)
        self.break_off()

    def broker_closes(self) -> None:
        self._network.ended_by_broker(self)
        self.down.end()
        self.up.cut()
        self._over()

    def break_off(self) -> None:
        """Both sides see the end, each after its own delay."""
        self.up.cut()
        self.down.cut()
        self._over()

    def stall(self, seconds: float) -> None:
        """The client reads nothing for so long."""
        self.down.hold()
        self._loop.call_later(seconds, self.down.resume_reading, context=self._network.context)

    def _over(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._network.over(self)

    def _up_arrived(self, data: bytes) -> None:
        self._network.trace.note(f"connection {self.number} to broker", data)
        self.wire.arrived(data)

    def _up_ended(self) -> None:
        self._network.trace.note(f"connection {self.number} ends at the broker")
        self.down.cut()
        self._over()
        self.wire.lost()

    def _down_arrived(self, data: bytes) -> None:
        self._network.trace.note(f"connection {self.number} to client", data)
        context = self.up.context
        self._loop.call_soon(self.wire.drained, context=context)
        self.client.arrived(data)


class Network:
    """All connections; `dial` is how a client makes one."""

    def __init__(
        self, loop: VirtualLoop, seed: int, trace: Trace, on_ended_by_broker: Callable[[int], None]
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.trace = trace
        self._on_ended_by_broker = on_ended_by_broker
        """Hears the number of a connection that the broker ends and its client does not."""
        self.context = copy_context()
        self._number = 0
        self._accept: Callable[[BrokerWire], Any] | None = None
        self._broker_context: Context | None = None
        self.open: dict[Connection, None] = {}

    def listen(self, accept: Callable[[BrokerWire], Any], context: Context) -> None:
        """From now on clients get through; what comes for them runs in this context."""
        self._accept, self._broker_context = accept, context

    def refuse(self) -> None:
        """No listener accepts connections any more."""
        self._accept = None

    def dial(self) -> ClientSocket:
        if self._accept is None or self._broker_context is None:
            raise ConnectionRefusedError
        self._number += 1
        connection = Connection(self, self._number)
        self.loop.sockets[connection.client.fileno()] = connection.client
        connection.up.context = self._broker_context
        connection.down.context = self.context
        self.open[connection] = None
        self.loop.call_soon(self._accept, connection.wire, context=self._broker_context)
        return connection.client

    def ended_by_broker(self, connection: Connection) -> None:
        if not connection.is_over:
            self._on_ended_by_broker(connection.number)

    def over(self, connection: Connection) -> None:
        self.open.pop(connection, None)

    def drop_all(self) -> None:
        """The broker's process is gone, and its sockets with it."""
        self.refuse()
        for connection in list(self.open):
            connection.wire.protocol = None
            connection.break_off()
