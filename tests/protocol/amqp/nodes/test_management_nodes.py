"""The management nodes of a connection: how long they are kept."""

from __future__ import annotations

from uuid import UUID

from protocol.codec import Array, ArrayCode, Long, UInt, lock_token
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import DATA, section

NODE = "orders/$management"


def receive(client: MemoryClient) -> list[bytes]:
    """Attach a receiver. Returns the lock tokens of what it gets."""
    assert client.attach_receiver("orders") is None
    frames = client.say(amqp_frames.flow(10, handle=client.last_handle))
    return [lock_token(one[2]) for one in frames if one.name == "transfer"]


def test_a_node_is_forgotten_with_its_last_link():
    """Names are as long as a frame, and each attach may have another."""
    client = MemoryBroker("queues: {orders: }").connect()
    for number in range(20):
        client.say(
            amqp_frames.attach_sender("link", 0, f"{number}/$management"), amqp_frames.detach(0)
        )
    assert [] == client.connection._nodes.requesters
    client.reach(NODE)
    assert ["orders"] == [node.path for node in client.connection._nodes.requesters]


def test_locks_of_deferred_messages_end_with_the_connection_after_the_links():
    """The node has locked them, and its links are detached before."""
    broker = MemoryBroker("queues: {orders: }")
    client = broker.connect()
    client.attach_sender("orders")
    client.say(
        amqp_frames.transfer(
            client.next_delivery(), section(DATA, b"a"), handle=client.last_handle, settled=True
        )
    )
    (token,) = receive(client)
    tokens = Array(ArrayCode.UUID, [UUID(bytes=token)])
    body: dict[str, object] = {"disposition-status": "defered", "lock-tokens": tokens}
    assert (200, None) == client.manage("orders", "com.microsoft:update-disposition", body)
    numbers = Array(ArrayCode.LONG, [Long(1)])
    fetch: dict[str, object] = {"sequence-numbers": numbers, "receiver-settle-mode": UInt(1)}
    assert (200, None) == client.manage("orders", "com.microsoft:receive-by-sequence-number", fetch)

    other = broker.connect()
    operation = "com.microsoft:receive-by-sequence-number"
    handle = client.reach(NODE)
    client.say(amqp_frames.detach(handle), amqp_frames.detach(handle - 1))
    assert 200 != other.manage("orders", operation, fetch)[0]
    client.connection.lost()
    broker.run()
    assert (200, None) == other.manage("orders", operation, fetch)
