"""How a receiver link passes credit to the core: one command for each flow, and one after a full burst."""

from __future__ import annotations

from broker.core.contract.commands import Credit
from broker.core.queues.receiver import BURST_MAX_MESSAGES
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import DATA, section


def receiving_client(broker: MemoryBroker) -> MemoryClient:
    client = broker.connect()
    assert client.attach_receiver("orders") is None
    return client


def send(broker: MemoryBroker, count: int) -> None:
    client = broker.connect()
    assert client.attach_sender("orders") is None
    message = section(DATA, b"x")
    handle = client.last_handle
    client.say(
        b"".join(
            amqp_frames.transfer(client.next_delivery(), message, handle=handle)
            for _ in range(count)
        )
    )


def transfers(client: MemoryClient) -> int:
    return sum(frame.name == "transfer" for frame in client.say_and_read_all())


def test_a_delivery_causes_no_credit_command():
    """The core counts what it has delivered. A command after each delivery would be a turn of its own."""
    broker = MemoryBroker("queues: {orders: }")
    client = receiving_client(broker)
    client.say(amqp_frames.flow(100, handle=client.last_handle))
    before = broker.commands[Credit]
    for _ in range(3):
        send(broker, 1)
        assert 1 == transfers(client)
    assert before == broker.commands[Credit]


def test_a_client_with_more_credit_than_a_burst_gets_everything():
    """The link grants credit again after each full burst, without another flow of the client."""
    broker = MemoryBroker("queues: {orders: }")
    count = 2 * BURST_MAX_MESSAGES + 10
    send(broker, 1000)
    send(broker, count - 1000)
    client = receiving_client(broker)
    client.say(amqp_frames.flow(2 * count, handle=client.last_handle))
    seen = sum(frame.name == "transfer" for frame in client.heard) + transfers(client)
    assert count == seen
