"""The socket side of a connection: when it reads, and when it looks again at what a client may do."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from broker.app.network.amqp_transport import (
    LINKS_FEW,
    READ_PER_TURN_BYTES,
    UNREAD_MAX_BYTES,
    AmqpTransport,
)
from broker.app.network.shared_reading import PASS_S, SharedReading
from broker.core.contract.errors import ServerBusy

if TYPE_CHECKING:
    from broker.app.network.amqp_transport import ByteStream, TransportOwner
    from protocol.amqp.connection import Connection


class Watched:
    """Replaces server, socket and connection, and records when the idle timeout is checked."""

    def __init__(self) -> None:
        self.checks: asyncio.Queue[float] = asyncio.Queue()
        self.opened = True
        self.link_count = 0

    def check_authorization(self) -> None:
        self.checks.put_nowait(asyncio.get_running_loop().time())

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


def transport(watched: Watched | Tap, sharing: SharedReading | None = None) -> AmqpTransport:
    made = AmqpTransport(
        cast("TransportOwner", watched),
        lambda _transport, _peer: cast("Connection", watched),
        60.0,
        sharing or SharedReading(),
    )
    made.begin(cast("ByteStream", watched), "client")
    return made


async def test_it_looks_when_the_time_has_come():
    """Once, and after the last wish."""
    watched = Watched()
    one = transport(watched)
    began_s = asyncio.get_running_loop().time()
    one.check_authorization_in(60_000)
    one.check_authorization_in(20)
    looked_s = await asyncio.wait_for(watched.checks.get(), 5)
    assert 0.015 <= looked_s - began_s < 5
    assert watched.checks.empty()
    one.connection_lost(None)


async def test_what_is_due_already_is_looked_at_on_the_next_occasion():
    """The clock may have been moved past it."""
    watched = Watched()
    one = transport(watched)
    one.check_authorization_in(-1000)
    await asyncio.wait_for(watched.checks.get(), 5)
    one.connection_lost(None)


async def test_a_lost_connection_is_not_looked_at():
    """Its timers are gone with it."""
    one = transport(Watched())
    one.check_authorization_in(60_000)
    timer = one._authorization_timer
    one.connection_lost(None)
    assert timer is not None
    assert timer.cancelled()


class Broken(Watched):
    """Also a connection of which everything fails, and a socket that records how it is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = ""

    def fails(self, *_: object) -> Any:
        raise ValueError("an injected bug")

    tick = close = fail = resume = check_authorization = fails

    def abort(self) -> None:
        self.ended = "aborted"


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.check_authorization(),
        lambda one: one.end(ServerBusy("busy")),
        lambda one: one.fail(ServerBusy("busy")),
        lambda one: one.resume_writing(),
        lambda one: one._tick_idle_timeout(),
    ],
    ids=["check_authorization", "end", "fail", "resume_writing", "idle timeout"],
)
async def test_a_bug_with_one_connection_ends_that_connection_and_stops_nobody_else(call):
    """Callers go on with the next connection, and timers do not leave a client without an answer."""
    broken = Broken()
    one = transport(broken)
    with capture_logs() as logs:
        call(one)
    assert "aborted" == broken.ended
    assert ["connection.broken"] == [line["event"] for line in logs]


class Tap:
    """Replaces server, socket and connection, and records whether the client is read from."""

    def __init__(self, *, held_up: bool = False, unread_bytes: int = 0) -> None:
        self._reading = True
        self.held_up = held_up
        self.unread_bytes = unread_bytes
        self.opened = True
        self.link_count = 0
        self.finished = False

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def note_bytes_read(self, _transport: object, _size_bytes: int) -> bool:
        return self.held_up

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return False

    def take_output(self) -> bytes:
        return b""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


async def test_a_client_that_had_its_share_of_a_turn_waits_for_the_next():
    """However much it sends, others come in between."""
    tap = Tap()
    one = transport(tap)
    one.data_received(b"x" * (READ_PER_TURN_BYTES - 1))
    assert tap.is_reading()
    one.data_received(b"x")
    assert not tap.is_reading()
    one.flush()
    assert tap.is_reading()
    one.connection_lost(None)


async def test_a_new_turn_does_not_hurry_the_store():
    """A client that waits for a commit continues after the commit, not before."""
    tap = Tap(held_up=True)
    one = transport(tap)
    one.data_received(b"x" * READ_PER_TURN_BYTES)
    one.flush()
    assert not tap.is_reading()
    one.resume_after_commit()
    assert tap.is_reading()
    one.connection_lost(None)


async def test_a_client_that_reads_no_answers_is_not_listened_to():
    """What the broker has to say to it must not grow without end."""
    tap = Tap(unread_bytes=UNREAD_MAX_BYTES + 1)
    one = transport(tap)
    one.pause_writing()
    one.data_received(b"x")
    one.flush()
    assert not tap.is_reading()
    one.resume_writing()
    assert tap.is_reading()
    one.connection_lost(None)


async def test_a_client_that_is_merely_slow_is_listened_to():
    """It may have to settle before it takes more."""
    tap = Tap(unread_bytes=UNREAD_MAX_BYTES)
    one = transport(tap)
    one.pause_writing()
    one.data_received(b"x")
    assert tap.is_reading()
    one.connection_lost(None)


class ManyLinks(Watched):
    """A connection that takes long to end."""

    def __init__(self, ended: list[object]) -> None:
        super().__init__()
        self.link_count = LINKS_FEW + 1
        self._ended = ended

    def lost(self) -> None:
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + PASS_S:
            pass
        self._ended.append(self)


async def test_connections_with_many_links_end_one_after_the_other():
    """Others are served between: the end of thousands of links takes long."""
    sharing = SharedReading()
    ended: list[object] = []
    for _ in range(3):
        one = transport(ManyLinks(ended), sharing)
        one.connection_lost(None)
    assert [] == ended
    counts = []
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(len(ended))
    assert [1, 2, 3, 3] == counts


class TcpStream(Watched):
    """A stream over a real TCP socket, whose connection has no output."""

    finished = False

    def __init__(self, accepted: socket.socket, sslcontext: object = None) -> None:
        super().__init__()
        self._extra = {"socket": accepted, "sslcontext": sslcontext}

        self.needs_flush = True
        self.touches = 0

    def take_output(self) -> bytes:
        return b""

    def get_extra_info(self, name: str) -> object:
        return self._extra.get(name)

    def receive_data(self, _data: bytes) -> bool:
        return self.needs_flush

    def touch(self, _transport: object) -> None:
        self.touches += 1


class Answering(TcpStream):
    """A stream whose connection has output."""

    def __init__(self, accepted: socket.socket, sslcontext: object = None) -> None:
        super().__init__(accepted, sslcontext)
        self.output = b"answer"
        self.unread_bytes = 0
        self.written: list[bytes] = []

    def take_output(self) -> bytes:
        return self.output

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: bytes) -> None:
        self.written.append(data)


async def test_prepared_answers_are_written_when_they_may_leave():
    """Together with what has come since, or alone."""
    accepted, client = socket.socketpair()
    client.setblocking(False)
    with accepted, client:
        stream = Answering(accepted)
        one = transport(stream)
        one.connection_made(cast("asyncio.BaseTransport", stream))
        one.prepare()
        with pytest.raises(BlockingIOError):
            client.recv(100)
        one.write_prepared()
        assert b"answer" == client.recv(100)
        one.prepare()
        one.flush()
        assert b"answeranswer" == client.recv(100)


async def test_answers_are_written_at_once():
    """The stream would write them at the end of the pass."""
    accepted, client = socket.socketpair()
    with accepted, client:
        stream = Answering(accepted)
        one = transport(stream)
        one.connection_made(cast("asyncio.BaseTransport", stream))
        one.flush()
        assert b"answer" == client.recv(100)
        assert [] == stream.written


@pytest.mark.parametrize(("sslcontext", "unread_bytes"), [(None, 1), (object(), 0)])
async def test_answers_are_left_to_the_stream(sslcontext, unread_bytes):
    """If it still has something to write before them, or has to encrypt them."""
    accepted, client = socket.socketpair()
    with accepted, client:
        stream = Answering(accepted, sslcontext)
        stream.unread_bytes = unread_bytes
        one = transport(stream)
        one.connection_made(cast("asyncio.BaseTransport", stream))
        one.flush()
        assert [b"answer"] == stream.written


async def test_the_stream_gets_what_the_socket_does_not_take():
    """Nothing is lost or written twice if a client does not read."""
    accepted, client = socket.socketpair()
    accepted.setblocking(False)  # as every event loop does
    with accepted, client:
        stream = Answering(accepted)
        stream.output = bytes(range(256)) * 100_000
        one = transport(stream)
        one.connection_made(cast("asyncio.BaseTransport", stream))
        one.flush()
        (rest,) = stream.written
        taken_bytes = len(stream.output) - len(rest)
        assert taken_bytes
        one.flush()
        assert [rest, stream.output] == stream.written, "now it takes nothing"
        assert stream.output == client.recv(taken_bytes, socket.MSG_WAITALL) + rest


async def test_a_socket_that_the_client_has_closed_takes_nothing():
    """Neither an error nor a signal: the stream finds out by itself."""
    accepted, client = socket.socketpair()
    with accepted:
        client.close()
        stream = Answering(accepted)
        one = transport(stream)
        one.connection_made(cast("asyncio.BaseTransport", stream))
        one.flush()
        assert [b"answer"] == stream.written
        stream.output = b""
        one.data_received(b"transfer")
        one.flush()  # that cannot be acknowledged


@pytest.mark.parametrize("sslcontext", [None, object()])
async def test_what_has_no_answer_is_acknowledged_once(sslcontext):
    """The client may wait for that, and nothing else would send it for 40 ms."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        watched = TcpStream(accepted, sslcontext)
        made = AmqpTransport(
            cast("TransportOwner", watched),
            lambda _transport, _peer: cast("Connection", watched),
            60.0,
            SharedReading(),
        )
        made.connection_made(cast("asyncio.BaseTransport", watched))

        def is_at_once() -> bool:
            return bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        made.flush()
        assert not is_at_once(), "nothing was read"
        made.data_received(b"transfer")
        assert (1, False) == (watched.touches, is_at_once()), "an answer may follow"
        made.flush()
        assert is_at_once()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        made.flush()
        assert not is_at_once(), "that was acknowledged before"
        watched.needs_flush = False
        made.data_received(b"disposition")
        assert (1, True) == (watched.touches, is_at_once()), "no answer follows"
        made.data_received(bytes(READ_PER_TURN_BYTES))
        assert 2 == watched.touches, "reading has to be resumed"
        made.connection_lost(None)
