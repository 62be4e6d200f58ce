"""Hostile and broken clients: an error or a closed connection for them, nothing for the others."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.support.amqp_frames import attach_receiver, begin_frame, flow, frames, open_frame
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "queue.1"
TIMEOUT_S = 10
AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
OPEN = b"\x00\x53\x10\xc0\x04\x01\xa1\x01c"
BEGIN = b"\x00\x53\x11\xc0\x0d\x04\x40\x43\x70\x7f\xff\xff\xff\x70\x7f\xff\xff\xff"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker that has to survive everything in this file."""
    with BrokerProcess() as process:
        yield process


@pytest.fixture(autouse=True)
def _others_are_served(broker: BrokerProcess) -> Iterator[None]:
    """After each test, another client can use the broker."""
    yield
    assert broker.is_healthy()
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=TIMEOUT_S)
    connection.create_sender(QUEUE).send(Message(body="still here"))
    receiver = connection.create_receiver(QUEUE, credit=1)
    assert "still here" == receiver.receive(timeout=TIMEOUT_S).body
    receiver.accept()
    connection.close()


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.amqp_port), TIMEOUT_S)


def frame(body: bytes, channel: int = 0, size: int | None = None) -> bytes:
    return struct.pack(">IBBH", size or len(body) + 8, 2, 0, channel) + body


def is_closed(client: socket.socket) -> bool:
    """Read until the broker ends the connection."""
    with suppress(ConnectionResetError):
        while client.recv(65536):
            pass
    return True


def memory_kib(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.process_id}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"A" + random.Random(1).randbytes(5000), id="garbage"),
        pytest.param(b"AMQP\x00\x09\x09\x09", id="unknown version"),
        pytest.param(b"AMQP\x02\x01\x00\x00", id="TLS inside AMQP"),
        pytest.param(SASL + b"\xff" * 6000, id="endless SASL frame"),
        pytest.param(SASL + frame(b"\x00\x53\x41\xc0\x03\x01\xa3\x05WRONG"), id="broken SASL"),
        pytest.param(AMQP + frame(b"", size=7), id="frame smaller than its header"),
        pytest.param(AMQP + frame(OPEN, size=0x7FFFFFFF) + b"x" * 100_000, id="absurd frame"),
        pytest.param(AMQP + frame(b"\x00\x53\x10\xd0\xff\xff\xff\xff"), id="list beyond its frame"),
        pytest.param(AMQP + frame(b"\x00\x53\x99\x45"), id="unknown performative"),
        pytest.param(AMQP + frame(b"\x00\x53\x14\xc0\x02\x01\x43"), id="transfer before open"),
        pytest.param(
            AMQP + frame(OPEN) + frame(b"\x00\x53\x12\x45", 7), id="attach without a session"
        ),
    ],
)
def test_broken_bytes_end_the_connection(broker: BrokerProcess, data: bytes) -> None:
    """A client that does not send AMQP gets an error, or its connection is closed."""
    with connect(broker) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        assert is_closed(client)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(frame(b"", size=7), id="frame smaller than its header"),
        pytest.param(frame(b"\x00\x53\x99\x45"), id="unknown performative"),
        pytest.param(attach_receiver(channel=9), id="attach without a session"),
        pytest.param(frame(b"x" * 70_000), id="frame over the limit"),
    ],
)
def test_the_reason_reaches_a_client_that_still_sends(
    broker: BrokerProcess, mistake: bytes
) -> None:
    """Closing a socket with unread bytes would reset it, and what was written would be lost."""
    with connect(broker) as client:
        client.sendall(AMQP + open_frame() + begin_frame() + attach_receiver(address=QUEUE))
        received = client.recv(65536)
        junk = Thread(target=send_all, args=(client, mistake + b"x" * 3_000_000))
        junk.start()
        junk.join()
        while data := client.recv(65536):
            received += data
    *_, close = frames(received)
    assert "close" == close.name
    broker.wait_for_log(str(close[0].value[1]))
    lines = [line for line in broker.log_text().splitlines() if "connection.failed" in line]
    assert "warning" in lines[-1]


def send_all(client: socket.socket, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(data)


def test_segments_fit_into_small_receive_buffers(broker: BrokerProcess) -> None:
    """The older .NET SDK has a receive buffer of 8 KiB, set after it has connected: with loopback's
    own segments it would get 16 KiB every 200 ms."""
    with connect(broker) as client:
        assert 8192 >= client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


def test_protons_warnings_are_in_our_log(broker: BrokerProcess) -> None:
    """And nothing of it where no line is expected."""
    with connect(broker) as client:
        client.sendall(AMQP + frame(b"\x00\x53\x10\xc0\x07\x03\xa1\x01c\x40\x52\x64"))
        assert client.recv(65536)
        broker.wait_for_log("bad max-frame")
    (line,) = [line for line in broker.log_text().splitlines() if "bad max-frame" in line]
    assert "proton.warning" in line


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", id="unknown version of HTTP"),
        pytest.param(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", id="endless line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nKey secret\r\n\r\n", id="broken header"),
        pytest.param(
            b"PUT /secret HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            id="broken chunk",
        ),
    ],
)
def test_broken_http_is_the_clients_mistake(broker: BrokerProcess, data: bytes) -> None:
    """Answered with 400; the log has a line about it, with nothing of what was sent."""
    seen = len(broker.log_text())
    with connect(broker) as client:
        client.sendall(data)
        assert b" 400 " in client.recv(65536)
        assert is_closed(client)
    (line,) = broker.log_text()[seen:].splitlines()
    assert "http.unreadable" in line
    assert "secret" not in line


def test_a_body_that_is_not_compressed_as_it_says_is_the_clients_mistake(
    broker: BrokerProcess,
) -> None:
    """Whether the body is needed or not; many of them do not fill the log."""
    head = (
        "Host: a\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabcde"
    )
    seen = len(broker.log_text())
    for request, status in {"PUT /secret": b" 400 ", "POST /secret": b" 405 "}.items():
        for _ in range(3):
            with connect(broker) as client:
                client.sendall(f"{request} HTTP/1.1\r\n{head}".encode())
                assert status in client.recv(65536)
                assert is_closed(client)
    lines = broker.log_text()[seen:].splitlines()
    assert 1 == sum("http.unreadable" in line for line in lines), lines
    assert 2 == sum(" refused " in line for line in lines), lines
    assert 3 == len(lines), lines


def test_random_streams_never_disturb_the_broker(broker: BrokerProcess) -> None:
    """Valid beginnings with random ends, many times."""
    source = random.Random(7)
    valid = AMQP + frame(OPEN) + frame(BEGIN)
    for _ in range(200):
        cut = source.randrange(len(valid))
        with connect(broker) as client, suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(valid[:cut] + source.randbytes(source.randrange(400)))


def test_silent_and_slow_clients_cost_little(broker: BrokerProcess) -> None:
    """Hundreds of connections that say nothing, or one byte, leave room for others."""
    before = memory_kib(broker)
    with ExitStack() as clients:
        for number in range(500):
            client = clients.enter_context(connect(broker))
            if number % 2:
                client.sendall(b"A")
        assert broker.is_healthy()
        assert memory_kib(broker) - before < 100_000


def test_unfinished_large_message_is_bounded(broker: BrokerProcess) -> None:
    """A client that never ends a message cannot make the broker keep all of it."""
    before = memory_kib(broker)
    attach = (
        b"\x00\x53\x12\xc0\x28\x0a\xa1\x01l\x43\x42\x40\x40"
        b"\x00\x53\x28\xc0\x04\x01\xa1\x01s\x00\x53\x29\xc0\x0a\x01\xa1\x07queue.1\x40\x40\x43"
    )
    transfer = b"\x00\x53\x14\xc0\x0b\x06\x43\x43\xa0\x01t\x43\x42\x41" + b"x" * 60_000
    with connect(broker) as client:
        client.sendall(AMQP + frame(OPEN) + frame(BEGIN) + frame(attach))
        client.settimeout(5)
        with suppress(OSError):
            for _ in range(6_000):
                client.sendall(frame(transfer))
        assert memory_kib(broker) - before < 500_000


def test_thousands_of_links_are_given_back(broker: BrokerProcess) -> None:
    """Links cost what they cost while they live, and nothing afterwards."""
    for _ in range(2):
        connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=60)
        for number in range(1_000):
            connection.create_receiver(QUEUE, credit=0, name=f"link-{number}")
        connection.close()
    _, content = broker.request("GET", "/metrics")
    assert "peeklock_links 0.0" in content.decode()


def test_draining_without_reading_costs_no_more_than_a_burst(broker: BrokerProcess) -> None:
    """A client that wants all there is gets it as fast as it reads, and in the end its answer."""
    count, size_bytes = 40, 1_000_000
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=TIMEOUT_S)
    sender = connection.create_sender(QUEUE)
    for _ in range(count):
        sender.send(Message(body=b"x" * size_bytes))
    connection.close()
    before = memory_kib(broker)
    with connect(broker) as client:
        client.sendall(
            AMQP
            + open_frame()
            + begin_frame()
            + attach_receiver(address=QUEUE, snd_settle_mode=1)
            + flow(10_000, drain=True)
        )
        assert broker.is_healthy()
        assert memory_kib(broker) - before < 25_000
        received = client.recv(len(AMQP))
        while not (heard := frames(received[len(AMQP) :])) or heard[-1].name != "flow":
            received += client.recv(1 << 20)
        assert count == sum(one.name == "transfer" and one[1] is not None for one in heard)
