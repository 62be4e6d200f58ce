"""What the control API shows of the links of a connection."""

from __future__ import annotations

from protocol.amqp.links.link_view import LinkView
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker
from tests.support.message_sections import DATA, section


def test_a_link_shows_credit_deliveries_and_unsettled_messages():
    """The role is that of the client: a link on which the broker receives belongs to a sender."""
    client = MemoryBroker("queues: {orders: }").connect()
    assert client.attach_sender("orders") is None
    message = section(DATA, b"body")
    client.say(*(amqp_frames.transfer(client.next_delivery(), message) for _ in range(3)))
    assert client.attach_receiver("orders") is None
    client.say_and_read_all(amqp_frames.flow(10, handle=client.last_handle))
    sender, receiver = client.connection.link_views()
    assert ("sender", "orders", 3, 0) == (
        sender.role,
        sender.address,
        sender.deliveries,
        sender.unsettled,
    )
    assert LinkView("link-1", "receiver", "orders", None, 7, 3, 3) == receiver


def test_a_detached_link_is_not_shown():
    client = MemoryBroker("queues: {orders: }").connect()
    assert client.attach_sender("orders") is None
    assert 1 == client.connection.link_count
    client.say(amqp_frames.frame("detach", 0, True))
    assert [] == client.connection.link_views()
