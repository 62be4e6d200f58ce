"""Requests are taken only as fast as their answers leave, whatever a client leaves unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.core.contract.commands import Peek, RenewLocks
from protocol.amqp.nodes.request_intake import ANSWERS_MAX_BYTES
from protocol.amqp.nodes.request_response import REQUEST_CREDIT
from protocol.codec import Described, Int, Long, ULong, encode
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient

if TYPE_CHECKING:
    from tests.support.amqp_frames import Frame

NODE = "orders/$management"
LARGE_BYTES = 800_000
IN_PARTS_BYTES = 60_000


class CountingBroker(MemoryBroker):
    """Counts the commands that reach it."""

    def __init__(self, declared: str) -> None:
        super().__init__(declared)
        self.commands: list[object] = []

    def enter(self, name: str) -> object:
        enter = super().enter(name)

        def count(command: object) -> None:
            self.commands.append(command)
            enter(command)

        return count

    def count(self, kind: type) -> int:
        return sum(isinstance(command, kind) for command in self.commands)


@pytest.fixture
def broker() -> CountingBroker:
    return CountingBroker("queues: {orders: }")


def request(message_id: str, operation: str, body: dict[str, object]) -> bytes:
    return b"".join(
        encode(Described(ULong(code), value))
        for code, value in (
            (0x73, [message_id]),
            (0x74, {"operation": f"com.microsoft:{operation}"}),
            (0x77, body),
        )
    )


def peek(message_id: str) -> bytes:
    body: dict[str, object] = {"from-sequence-number": Long(0), "message-count": Int(1)}
    return request(message_id, "peek-message", body)


def send_large_message(client: MemoryClient) -> None:
    assert client.attach_sender("orders") is None
    body = encode(Described(ULong(0x75), b"x" * LARGE_BYTES))
    send(client, client.last_handle, body)


def send(client: MemoryClient, handle: int, message: bytes) -> list[Frame]:
    number = client.next_delivery()
    starts = range(0, len(message), IN_PARTS_BYTES)
    return client.say(
        *(
            amqp_frames.transfer(
                number,
                message[start : start + IN_PARTS_BYTES],
                handle=handle,
                more=start + IN_PARTS_BYTES < len(message),
            )
            for start in starts
        )
    )


def say_and_listen(client: MemoryClient, *data: bytes) -> list[Frame]:
    """All that is answered: what leaves lets requests begin that waited."""
    heard = client.say(*data)
    while more := client.say():
        heard += more
    return heard


def answers(frames: list[Frame]) -> list[bytes]:
    """The correlation ids of answers, by their first frames."""
    heads = [frame.payload[:200] for frame in frames if frame.name == "transfer"]
    return [head.partition(b"id-")[2][:3] for head in heads if b"id-" in head]


def test_peeks_without_credit_for_answers_wait(broker: CountingBroker):
    """2,500 of them took 2.1 GB: now a few are worked on, the rest are held, and no more may come
    than the link has credit for. With credit for answers all are answered, in order."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    response_handle = handle - 1
    heard = []
    for number in range(REQUEST_CREDIT):
        heard += send(client, handle, peek(f"id-{number:03}"))
    assert broker.count(Peek) <= ANSWERS_MAX_BYTES // LARGE_BYTES + 1
    assert [] == [frame for frame in heard if frame.name in ("transfer", "flow")]
    # The Python SDK, for one, counts an outcome as the beginning of work.
    assert broker.count(Peek) == sum(frame.name == "disposition" for frame in heard)

    frames = say_and_listen(client, amqp_frames.flow(10, handle=response_handle))
    assert [b"%03d" % number for number in range(10)] == answers(frames)
    frames = say_and_listen(client, amqp_frames.flow(1000, handle=response_handle))
    assert [b"%03d" % number for number in range(10, REQUEST_CREDIT)] == answers(frames)
    assert any(frame.name == "flow" and frame[4] == handle for frame in frames)


def test_small_requests_do_not_wait_for_each_other(broker: CountingBroker):
    """Only what a client leaves unread counts, and a renewed lock is a few bytes."""
    client = broker.connect()
    handle = client.reach(NODE, credit=0)
    for number in range(REQUEST_CREDIT):
        body: dict[str, object] = {"lock-tokens": ["00000000-0000-0000-0000-000000000001"]}
        send(client, handle, request(f"id-{number:03}", "renew-lock", body))
    assert REQUEST_CREDIT == broker.count(RenewLocks)


def test_answers_that_nobody_can_take_make_room(broker: CountingBroker):
    """A client that ends the link for answers may attach another, and goes on."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    for number in range(50):
        send(client, handle, peek(f"id-{number:03}"))
    client.say(amqp_frames.detach(handle - 1))
    assert 50 == broker.count(Peek)


def test_requests_that_wait_are_not_done_when_their_link_ends(broker: CountingBroker):
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    for number in range(50):
        send(client, handle, peek(f"id-{number:03}"))
    begun = broker.count(Peek)
    client.say(amqp_frames.detach(handle))
    client.say(amqp_frames.flow(1000, handle=handle - 1))
    assert begun == broker.count(Peek)


def test_large_requests_that_wait_end_their_link(broker: CountingBroker):
    """They may hold no more than so many bytes."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    for number in range(10):
        send(client, handle, peek(f"id-{number:03}"))
    entry = {"message": b"x" * 6_000_000}
    large = request("id-999", "schedule-message", {"messages": [entry]})
    heard = [frame for _ in range(3) for frame in send(client, handle, large)]
    assert ["detach"] == [frame.name for frame in heard]


def test_a_socket_that_takes_no_more_holds_answers_back(broker: CountingBroker):
    """However much credit there is."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE)
    client.connection.pause()
    for number in range(50):
        assert [] == answers(send(client, handle, peek(f"id-{number:03}")))
    assert broker.count(Peek) <= ANSWERS_MAX_BYTES // LARGE_BYTES + 1
    client.connection.resume()
    heard = say_and_listen(client)
    assert [b"%03d" % number for number in range(50)] == answers(heard)
