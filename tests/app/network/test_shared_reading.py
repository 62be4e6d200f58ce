"""Clients that have sent much share the time that their bytes may take."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.app.network import amqp_transport, shared_reading
from broker.app.network.amqp_transport import AmqpTransport
from broker.app.network.shared_reading import CLIENT_S, PASS_S, PAUSE_FACTOR, SharedReading

if TYPE_CHECKING:
    from broker.app.network.amqp_transport import ByteStream, TransportOwner
    from protocol.amqp.connection import Connection

S_PER_BYTE = 0.000_001
MUCH = b"x" * 30_000


class Stopwatch:
    """Time that passes only while bytes are taken."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Client:
    """Replaces server, socket and connection of one client. Its bytes take time to process."""

    def __init__(self, stopwatch: Stopwatch, sharing: SharedReading) -> None:
        self._stopwatch = stopwatch
        self.taken = 0
        self.breaks = False
        self.opened = True
        self.finished = False
        self.events: list[str] = []
        self.transport = AmqpTransport(
            cast("TransportOwner", self), lambda *_: cast("Connection", self), 60.0, sharing
        )
        self.transport.begin(cast("ByteStream", self), "client")

    def receive_data(self, data: bytes) -> None:
        if self.breaks:
            raise ValueError
        self.taken += len(data)
        self._stopwatch.now_s += len(data) * S_PER_BYTE
        self.events.append("data")

    def note_bytes_read(self, *_: object) -> bool:
        return False

    def lost(self) -> None:
        self.events.append("lost")

    def transport_closed(self, _transport: object) -> None:
        self.events.append("left")

    def tick(self, _now_ms: int) -> int:
        return 0

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    made = Stopwatch()
    for module in (amqp_transport, shared_reading):
        monkeypatch.setattr(module, "perf_counter", made)
    monkeypatch.setattr(shared_reading, "thread_time", made)
    return made


async def test_however_many_clients_wait_one_pass_of_the_loop_is_short(stopwatch: Stopwatch):
    sharing = SharedReading()
    clients = [Client(stopwatch, sharing) for _ in range(50)]
    for client in clients:
        client.transport.data_received(MUCH)
    while any(client.taken < len(MUCH) for client in clients):
        before_s = stopwatch.now_s
        await asyncio.sleep(0)
        assert 0 < stopwatch.now_s - before_s < PASS_S + CLIENT_S
    assert all(client.taken == len(MUCH) for client in clients)


async def test_those_that_wait_take_turns(stopwatch: Stopwatch):
    sharing = SharedReading()
    clients = [Client(stopwatch, sharing) for _ in range(5)]
    for client in clients:
        client.transport.data_received(MUCH)
    for _ in range(5):
        await asyncio.sleep(0)
    taken = [client.taken for client in clients]
    assert max(taken) < len(MUCH)
    assert max(taken) - min(taken) <= 2 * CLIENT_S / S_PER_BYTE + PASS_S / S_PER_BYTE


async def test_a_client_that_has_sent_little_does_not_wait(stopwatch: Stopwatch):
    sharing = SharedReading()
    for _ in range(50):
        Client(stopwatch, sharing).transport.data_received(MUCH)
    small = Client(stopwatch, sharing)
    small.transport.data_received(b"x" * 100)
    assert 100 == small.taken


async def test_bytes_of_a_client_that_disconnected_are_processed_in_turns_too(stopwatch: Stopwatch):
    client = Client(stopwatch, SharedReading())
    client.transport.data_received(MUCH)
    taken = client.taken
    client.transport.connection_lost(None)
    assert taken == client.taken < len(MUCH)
    while "left" not in client.events:
        before_s = stopwatch.now_s
        await asyncio.sleep(0)
        assert stopwatch.now_s - before_s < PASS_S + CLIENT_S
    assert len(MUCH) == client.taken
    assert ["lost", "left"] == client.events[-2:]


async def test_bytes_that_break_a_connection_that_is_lost_end_it(stopwatch: Stopwatch):
    client = Client(stopwatch, SharedReading())
    client.transport.data_received(MUCH)
    client.breaks = True
    client.transport.connection_lost(None)
    await asyncio.sleep(0)
    assert ["lost", "left"] == client.events[-2:]


async def test_those_that_have_sent_much_wait_while_too_many_answers_do(stopwatch: Stopwatch):
    held_up = True
    sharing = SharedReading(lambda: held_up)
    busy, small = Client(stopwatch, sharing), Client(stopwatch, sharing)
    busy.transport.data_received(MUCH)
    taken = busy.taken
    small.transport.data_received(b"x")
    for _ in range(10):
        await asyncio.sleep(0)
    assert (taken, 1) == (busy.taken, small.taken)
    held_up = False
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(MUCH) == busy.taken


async def test_after_work_that_cannot_be_divided_the_waiting_clients_pause(stopwatch: Stopwatch):
    """Others get most of the time, even if many clients demand such work at once."""
    took_s = 0.02
    done: list[float] = []
    all_done = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Undivided:
        def process_more(self, _ends_s: float) -> bool:
            stopwatch.now_s += took_s
            done.append(loop.time())
            if len(done) == 3:
                all_done.set()
            return False

    sharing = SharedReading()
    for _ in range(3):
        sharing.add(Undivided())
    await asyncio.wait_for(all_done.wait(), 10)
    waited_s = [after - before for before, after in pairwise(done)]
    assert min(waited_s) >= 0.9 * PAUSE_FACTOR * took_s


async def test_a_client_whose_processing_fails_does_not_stop_the_others():
    """The exception is a bug of the broker. The event loop reports it."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    served: list[str] = []

    class Failing:
        def process_more(self, ends_s: float) -> bool:
            raise ValueError

    class Served:
        def process_more(self, ends_s: float) -> bool:
            served.append("more")
            return False

    sharing = SharedReading()
    sharing.add(Failing())
    sharing.add(Served())
    for _ in range(5):
        await asyncio.sleep(0)
    assert (1, ["more"]) == (len(reported), served)
