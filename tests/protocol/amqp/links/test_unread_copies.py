"""Links that look at messages ask for copies no faster than their client reads."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import Peek
from protocol.amqp.links.browsing_link import BROWSERS_AT_ONCE_MAX
from protocol.codec import Symbol, UInt
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import DATA, section

MESSAGES = 250


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker("queues: {orders: }")


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """A client whose queue has messages."""
    client = broker.connect()
    assert client.attach_sender("orders") is None
    message = section(DATA, b"x")
    handle = client.last_handle
    client.say(
        *(
            amqp_frames.transfer(client.next_delivery(), message, handle=handle)
            for _ in range(MESSAGES)
        )
    )
    return client


def attach_browser(name: str, handle: int, address: str) -> bytes:
    copies = amqp_frames.described(0x28, address, None, None, None, None, None, Symbol("copy"))
    return amqp_frames.frame(
        "attach", name, UInt(handle), True, None, None, copies, amqp_frames.target("here")
    )


def copies_seen(client: MemoryClient, *data: bytes) -> int:
    """Returns how many copies the client gets after it has sent these frames."""
    frames = client.say_and_read_all(*data)
    return sum(frame.name == "transfer" for frame in frames)


def test_a_socket_that_takes_no_more_holds_copies_back(broker: MemoryBroker, client: MemoryClient):
    """Regardless of the credit. Three browsing clients that did not read took 2.1 GB."""
    assert client.attach(attach_browser, "orders") is None
    client.connection.pause()
    before = broker.commands[Peek]
    assert 0 == copies_seen(client, amqp_frames.flow(1000, handle=client.last_handle))
    assert before == broker.commands[Peek]
    client.connection.resume()
    assert MESSAGES == copies_seen(client)


def test_browsers_of_a_connection_take_turns(broker: MemoryBroker, client: MemoryClient):
    """All get everything, but only a few wait for their copies at the same time."""
    handles = []
    for _ in range(20):
        assert client.attach(attach_browser, "orders") is None
        handles.append(client.last_handle)
    before = broker.commands[Peek]
    for handle in handles:
        client.connection.receive_data(amqp_frames.flow(1000, handle=handle))
    assert BROWSERS_AT_ONCE_MAX == broker.commands[Peek] - before
    assert 20 * MESSAGES == copies_seen(client)


def test_a_browser_that_leaves_gives_its_turn_to_others(client: MemoryClient):
    handles = []
    for _ in range(3 * BROWSERS_AT_ONCE_MAX):
        assert client.attach(attach_browser, "orders") is None
        handles.append(client.last_handle)
    for handle in handles:
        client.connection.receive_data(amqp_frames.flow(1000, handle=handle))
    for handle in handles[:-1]:
        client.connection.receive_data(amqp_frames.detach(handle))
    assert MESSAGES == copies_seen(client)


def test_a_browser_whose_credit_is_taken_back_before_its_turn(client: MemoryClient):
    """It is shown nothing, its drain is answered, and it can look again."""
    assert client.attach(attach_browser, "orders") is None
    handle = client.last_handle
    client.connection.pause()
    client.say(amqp_frames.flow(10, handle=handle))
    client.say(amqp_frames.flow(0, handle=handle))
    client.connection.resume()
    assert 0 == copies_seen(client)
    assert 7 == copies_seen(client, amqp_frames.flow(7, handle=handle))
