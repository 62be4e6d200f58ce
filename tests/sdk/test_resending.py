"""Received messages that are sent again, and values that are returned as they were sent.

The Python SDK writes text ids and annotations of a received message as binary; the broker treats
them as the text that they contain.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from tests.sdk.support import nothing, receive, send

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

    from tests.sdk.conftest import Live

DELETING = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def as_received(message: ServiceBusReceivedMessage) -> Any:
    return message


def as_raw(message: ServiceBusReceivedMessage) -> Any:
    return message.raw_amqp_message


@pytest.fixture(params=[as_received, as_raw], ids=["received", "raw"])
def again(request: pytest.FixtureRequest) -> Any:
    """How a received message is given to a sender."""
    return request.param


def test_a_message_of_a_session_is_sent_again_with_its_partition_key(
    live: Live, again: Any
) -> None:
    """The SDK sends the key as binary, and it still equals the session id."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "hello", session_id="säx", partition_key="säx")
    with live.client() as client, client.get_queue_sender(queue) as sender:
        for _ in range(3):
            with client.get_queue_receiver(queue, session_id="säx") as receiver:
                (message,) = receive(receiver, 1)
                assert "säx" == message.session_id == message.partition_key
                sender.send_messages(again(message))
                receiver.complete_message(message)


def test_a_partition_key_beside_an_empty_session_id_is_taken(live: Live) -> None:
    """An empty session id counts as none when the two are compared."""
    queue = live.queue(RequiresSession=True)
    message = AmqpAnnotatedMessage(
        data_body=b"hello",
        properties=AmqpMessageProperties(group_id=""),
        annotations={b"x-opt-partition-key": "key"},
    )
    with live.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(message)
    assert 1 == live.count(queue)


def test_a_message_sent_again_is_a_duplicate(live: Live, again: Any) -> None:
    """Its id comes as binary and is the same id."""
    queue = live.queue(RequiresDuplicateDetection=True)
    other = live.queue(RequiresDuplicateDetection=True)
    with live.client() as client:
        with client.get_queue_sender(other) as sender:
            sender.send_messages(ServiceBusMessage("hello", message_id="an id"))
        send(live, queue, "hello", message_id="an id")
        with (
            client.get_queue_receiver(queue, receive_mode=DELETING) as receiver,
            client.get_queue_sender(queue) as sender,
            client.get_queue_sender(other) as other_sender,
        ):
            (message,) = receive(receiver, 1)
            sender.send_messages(again(message))
            other_sender.send_messages(again(message))
            assert nothing(receiver)
    assert 1 == live.count(other)


def test_rules_select_a_message_sent_again_as_they_did_before(live: Live, again: Any) -> None:
    """By correlation id and message id, in correlation filters and in SQL."""
    topic = live.topic()
    instance = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type='
    rules = {
        "by-correlation": f'<Filter {instance}"CorrelationFilter">'
        "<CorrelationId>c</CorrelationId><MessageId>m</MessageId></Filter>",
        "by-sql": f'<Filter {instance}"SqlFilter"><SqlExpression>'
        "sys.CorrelationId = 'c' AND sys.MessageId LIKE 'm%' AND sys.PartitionKey = 'k' "
        "AND price &gt; 1.2 AND colour = 'red'"
        "</SqlExpression></Filter>",
    }
    for name, rule in rules.items():
        live.subscription(topic, name, rule=rule)
    queue = live.queue()
    send(
        live,
        queue,
        "hello",
        message_id="m",
        correlation_id="c",
        partition_key="k",
        application_properties={"price": Decimal("1.25"), "colour": "red"},
    )
    with live.client() as client:
        with client.get_queue_receiver(queue, receive_mode=DELETING) as receiver:
            (message,) = receive(receiver, 1)
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(again(message))
        for name in rules:
            with client.get_subscription_receiver(topic, name) as receiver:
                (copy,) = receive(receiver, 1)
                assert "m" == copy.message_id
                expected = {b"price": Decimal("1.25"), b"colour": b"red"}
                assert expected == copy.application_properties


def test_annotations_of_an_earlier_queue_do_not_stay(live: Live, again: Any) -> None:
    """A message sent again has the numbers and times of where it is now."""
    queue, other = live.queue(), live.queue()
    send(live, other, "first", "second", "third")
    send(live, queue, "hello")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            with client.get_queue_sender(other) as sender:
                sender.send_messages(again(message))
            receiver.complete_message(message)
        with client.get_queue_receiver(other) as receiver:
            *_, moved = receive(receiver, 4)
            assert 4 == moved.sequence_number
            assert moved.lock_token != message.lock_token
            receiver.complete_message(moved)


VALUES: dict[str | bytes, Any] = {
    "decimal": Decimal("1.2345"),
    "negative decimal": Decimal("-0.01"),
    "whole decimal": Decimal(7),
    "zero decimal": Decimal("0.00"),
    "text": "ä ✓",
    "long": 2**31 - 1,
    "double": -1.5e300,
    "true": True,
    "false": False,
    "uuid": UUID(int=2**127),
    "nothing": None,
}


def test_application_properties_come_back_as_they_were_sent(live: Live) -> None:
    """Through the SDK itself; decimals too, which it cannot read as it writes them."""
    queue = live.queue()
    send(live, queue, "hello", application_properties=VALUES)
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        expected = {
            name.encode(): value.encode() if isinstance(value, str) else value
            for name, value in VALUES.items()
            if isinstance(name, str)
        }
        assert expected == message.application_properties
        receiver.complete_message(message)


def test_every_section_comes_back_as_it_was_sent(live: Live) -> None:
    """Header flags, delivery annotations, footer and the sender's times among them."""
    queue = live.queue(DefaultMessageTimeToLive="PT1H")
    sent = AmqpAnnotatedMessage(
        data_body=b"hello",
        header=AmqpMessageHeader(durable=False, first_acquirer=False, priority=20),
        footer={"foot": "note"},
        delivery_annotations={"delivery": "annotation"},
        annotations={"message": "annotation"},
        properties=AmqpMessageProperties(
            message_id="m", creation_time=1_000_000_000_000, absolute_expiry_time=1_000_000_100_000
        ),
    )
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(sent)
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            raw = message.raw_amqp_message
            assert raw.header is not None
            assert (False, False, 20) == (
                raw.header.durable,
                raw.header.first_acquirer,
                raw.header.priority,
            )
            assert {b"foot": b"note"} == raw.footer
            assert raw.delivery_annotations is not None
            assert b"annotation" == raw.delivery_annotations[b"delivery"]
            assert message.lock_token == raw.delivery_annotations[b"x-opt-lock-token"]
            assert {
                b"message",
                b"x-opt-enqueued-time",
                b"x-opt-sequence-number",
                b"x-opt-locked-until",
            } == set(raw.annotations or {})
            assert raw.properties is not None
            assert 1_000_000_000_000 == raw.properties.creation_time
            assert 1_000_000_100_000 == raw.properties.absolute_expiry_time
            assert timedelta(seconds=100) == message.time_to_live
            assert message.enqueued_time_utc is not None
            assert message.enqueued_time_utc + timedelta(seconds=100) == message.expires_at_utc
            receiver.complete_message(message)


def test_an_entity_s_time_to_live_shows_in_the_header_alone(live: Live) -> None:
    """The SDK computes the expiry from it; the sender's properties stay as they are."""
    queue = live.queue(DefaultMessageTimeToLive="PT1H")
    send(live, queue, "hello")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        assert timedelta(hours=1) == message.time_to_live
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc + timedelta(hours=1) == message.expires_at_utc
        properties = message.raw_amqp_message.properties
        assert properties is not None
        assert properties.creation_time is None
        assert properties.absolute_expiry_time is None
        receiver.complete_message(message)


def test_the_number_of_the_topic_shows_on_a_subscription(live: Live) -> None:
    """Received and peeked; on a queue there is none to show."""
    topic = live.topic()
    live.subscription(topic, "all")
    queue = live.queue()
    with live.client() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        send(live, queue, "one")
        with client.get_subscription_receiver(topic, "all") as receiver:
            shown = [receiver.peek_messages(2), receive(receiver, 2)]
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
    for messages in shown:
        assert [1, 2] == [message.enqueued_sequence_number for message in messages]
    assert message.enqueued_sequence_number is None
