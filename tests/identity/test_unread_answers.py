"""Requests are started only as fast as the client reads their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.core.contract.commands import Peek, RenewLocks
from protocol.amqp.nodes.request_intake import ANSWERS_MAX_BYTES
from protocol.amqp.nodes.request_response import REQUEST_CREDIT
from protocol.codec import Int, Long
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, VALUE, section

if TYPE_CHECKING:
    from tests.support.amqp_frames import Frame

NODE = "orders/$management"
LARGE_BYTES = 800_000
IN_PARTS_BYTES = 60_000


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker("queues: {orders: }")


def request(message_id: str, operation: str, body: dict[str, object]) -> bytes:
    properties = {"operation": f"com.microsoft:{operation}"}
    return (
        section(PROPERTIES, [message_id])
        + section(APPLICATION_PROPERTIES, properties)
        + section(VALUE, body)
    )


def peek(message_id: str) -> bytes:
    body: dict[str, object] = {"from-sequence-number": Long(0), "message-count": Int(1)}
    return request(message_id, "peek-message", body)


def send_large_message(client: MemoryClient) -> None:
    assert client.attach_sender("orders") is None
    body = section(DATA, b"x" * LARGE_BYTES)
    send(client, client.last_handle, body)


def send(client: MemoryClient, handle: int, message: bytes) -> list[Frame]:
    number = client.next_delivery()
    parts = amqp_frames.transfers(number, message, part_bytes=IN_PARTS_BYTES, handle=handle)
    return client.say(*parts)


def unread_peeks(broker: MemoryBroker, count: int) -> tuple[MemoryClient, int]:
    """A client that asked for so many large messages and gave no credit for the answers; the handle
    of the link for requests."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    for number in range(count):
        send(client, handle, peek(f"id-{number:03}"))
    return client, handle


def answers(frames: list[Frame]) -> list[bytes]:
    """The correlation ids of answers, by their first frames."""
    heads = [frame.payload[:200] for frame in frames if frame.name == "transfer"]
    return [head.partition(b"id-")[2][:3] for head in heads if b"id-" in head]


def test_peeks_without_credit_for_answers_wait(broker: MemoryBroker):
    """2,500 of them took 2.1 GB. Now a few are executed, the others are held, and their number is
    limited by the credit of the link. With credit for answers all are answered, in order."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE, credit=0)
    response_handle = handle - 1
    heard = []
    for number in range(REQUEST_CREDIT):
        heard += send(client, handle, peek(f"id-{number:03}"))
    assert broker.commands[Peek] <= ANSWERS_MAX_BYTES // LARGE_BYTES + 1
    assert [] == [frame for frame in heard if frame.name in ("transfer", "flow")]
    # The Python SDK, for one, counts an outcome as the beginning of work.
    assert broker.commands[Peek] == sum(frame.name == "disposition" for frame in heard)

    frames = client.say_and_read_all(amqp_frames.flow(10, handle=response_handle))
    assert [b"%03d" % number for number in range(10)] == answers(frames)
    frames = client.say_and_read_all(amqp_frames.flow(1000, handle=response_handle))
    assert [b"%03d" % number for number in range(10, REQUEST_CREDIT)] == answers(frames)
    assert any(frame.name == "flow" and frame[4] == handle for frame in frames)


def test_small_requests_do_not_wait_for_each_other(broker: MemoryBroker):
    """Only what a client leaves unread counts, and a renewed lock is a few bytes."""
    client = broker.connect()
    handle = client.reach(NODE, credit=0)
    for number in range(REQUEST_CREDIT):
        body: dict[str, object] = {"lock-tokens": ["00000000-0000-0000-0000-000000000001"]}
        send(client, handle, request(f"id-{number:03}", "renew-lock", body))
    assert REQUEST_CREDIT == broker.commands[RenewLocks]


def test_answers_without_a_response_link_are_dropped(broker: MemoryBroker):
    """A client that detaches its response link may attach another and continue."""
    client, handle = unread_peeks(broker, 50)
    client.say(amqp_frames.detach(handle - 1))
    assert 50 == broker.commands[Peek]


def test_requests_that_wait_are_not_done_when_their_link_ends(broker: MemoryBroker):
    client, handle = unread_peeks(broker, 50)
    begun = broker.commands[Peek]
    client.say(amqp_frames.detach(handle))
    client.say(amqp_frames.flow(1000, handle=handle - 1))
    assert begun == broker.commands[Peek]


def test_answers_and_requests_of_an_amqp_session_end_with_it(broker: MemoryBroker):
    """The answers that waited are no longer counted, and the requests that waited are not executed. Others of the
    connection, which share the limit, are."""
    client = broker.connect()
    send_large_message(client)
    channel = 1
    client.say(
        amqp_frames.begin_frame(channel),
        amqp_frames.attach_receiver("answers", 0, NODE, channel=channel),
        amqp_frames.attach_sender("requests", 1, NODE, channel=channel),
    )
    requests = [
        amqp_frames.transfer(number, peek(f"id-{number:03}"), handle=1, channel=channel)
        for number in range(50)
    ]
    client.say(*requests)
    begun = broker.commands[Peek]
    assert begun < 50
    client.say(amqp_frames.frame("end", channel=channel))
    assert begun == broker.commands[Peek]
    handle = client.reach(NODE)
    assert [b"100"] == answers(send(client, handle, peek("id-100")))
    assert begun + 1 == broker.commands[Peek]


def test_large_requests_that_wait_end_their_link(broker: MemoryBroker):
    """They may hold no more than so many bytes."""
    client, handle = unread_peeks(broker, 10)
    entry = {"message": b"x" * 6_000_000}
    large = request("id-999", "schedule-message", {"messages": [entry]})
    heard = [frame for _ in range(3) for frame in send(client, handle, large)]
    assert ["detach"] == [frame.name for frame in heard]


def test_a_socket_that_takes_no_more_holds_answers_back(broker: MemoryBroker):
    """However much credit there is."""
    client = broker.connect()
    send_large_message(client)
    handle = client.reach(NODE)
    client.connection.pause()
    for number in range(50):
        assert [] == answers(send(client, handle, peek(f"id-{number:03}")))
    assert broker.commands[Peek] <= ANSWERS_MAX_BYTES // LARGE_BYTES + 1
    client.connection.resume()
    heard = client.say_and_read_all()
    assert [b"%03d" % number for number in range(50)] == answers(heard)
