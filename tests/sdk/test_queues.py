"""Queues through the stock Python SDK: send, lock, settle, and what is refused."""

from __future__ import annotations

import time

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
)

from tests.sdk.conftest import Live
from tests.sdk.support import bodies, nothing, receive, send
from tests.support.server import BrokerProcess


def test_single_list_and_batch_sends_arrive_in_order(live: Live) -> None:
    """However messages are sent, they come out in the order they went in."""
    queue = live.queue()
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("one"))
            sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("four"))
            batch.add_message(ServiceBusMessage("five"))
            sender.send_messages(batch)
        with client.get_queue_receiver(queue) as receiver:
            messages = receive(receiver, 5)
            assert ["one", "two", "three", "four", "five"] == bodies(messages)
            assert [1, 2, 3, 4, 5] == [message.sequence_number for message in messages]
            assert {0} == {message.delivery_count for message in messages}
            for message in messages:
                receiver.complete_message(message)
            assert nothing(receiver)


@pytest.mark.parametrize("prefetch", [0, 50])
def test_receiving_many_with_and_without_prefetch(live: Live, prefetch: int) -> None:
    """Prefetch changes when messages travel, not which ones arrive."""
    queue = live.queue()
    texts = [f"message {number}" for number in range(100)]
    send(live, queue, *texts)
    with live.client() as client:
        with client.get_queue_receiver(queue, prefetch_count=prefetch) as receiver:
            messages = receive(receiver, 100)
            assert texts == bodies(messages)
            for message in messages:
                receiver.complete_message(message)
        with client.get_queue_receiver(queue) as receiver:
            assert [] == receiver.peek_messages(1)


def test_properties_come_back_as_they_were_sent(live: Live) -> None:
    """What a sender says about a message, a receiver reads."""
    queue = live.queue()
    sent = ServiceBusMessage(
        b"body",
        application_properties={"text": "t", "number": 7, "yes": True, "ratio": 0.5},
        message_id="id-1",
        correlation_id="correlation",
        subject="subject",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        content_type="text/plain",
        session_id="any",
    )
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(sent)
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            assert "body" == str(message)
            assert "id-1" == message.message_id
            assert "correlation" == message.correlation_id
            assert "subject" == message.subject
            assert "to" == message.to
            assert "reply" == message.reply_to
            assert "reply session" == message.reply_to_session_id
            assert "text/plain" == message.content_type
            assert "any" == message.session_id
            assert {b"text": b"t", b"number": 7, b"yes": True, b"ratio": 0.5} == (
                message.application_properties
            )
            assert message.enqueued_time_utc is not None
            assert message.locked_until_utc is not None
            receiver.complete_message(message)


def test_abandoned_message_comes_back_first_and_counts(live: Live) -> None:
    """An abandoned message returns before later ones, with its delivery counted."""
    queue = live.queue()
    send(live, queue, "first", "second")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        receiver.abandon_message(message)
        again, other = receive(receiver, 2)
        assert [("first", 1), ("second", 0)] == [
            (str(again), again.delivery_count),
            (str(other), other.delivery_count),
        ]
        receiver.complete_message(again)
        receiver.complete_message(other)


def test_dead_letter_with_reason_is_read_from_the_dead_letter_queue(live: Live) -> None:
    """Reason and description travel with the message."""
    queue = live.queue()
    send(live, queue, "bad")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            receiver.dead_letter_message(
                message, reason="no good", error_description="it is broken"
            )
            assert nothing(receiver)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (dead,) = receive(receiver, 1)
            assert "bad" == str(dead)
            assert "no good" == dead.dead_letter_reason
            assert "it is broken" == dead.dead_letter_error_description
            receiver.complete_message(dead)


def test_nothing_counts_in_the_dead_letter_queue(live: Live) -> None:
    """Not abandoning, not deferring, and no lock that expires."""
    queue = live.queue()
    send(live, queue, "dead")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            receiver.abandon_message(receive(receiver, 1)[0])
            receiver.dead_letter_message(receive(receiver, 1)[0])
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            counts = []
            for _ in range(12):
                (message,) = receive(receiver, 1)
                counts.append(message.delivery_count)
                receiver.abandon_message(message)
            (message,) = receive(receiver, 1)
            live.advance(seconds=31)
            (message,) = receive(receiver, 1)
            counts.append(message.delivery_count)
            receiver.defer_message(message)
            (message,) = receiver.receive_deferred_messages(message.sequence_number)
            counts.append(message.delivery_count)
            assert {1} == set(counts)
            receiver.complete_message(message)


def test_ten_abandons_dead_letter_the_message(live: Live) -> None:
    """Reaching the maximum delivery count ends in the dead-letter queue."""
    queue = live.queue()
    send(live, queue, "poison")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            for count in range(10):
                (message,) = receive(receiver, 1)
                assert count == message.delivery_count
                receiver.abandon_message(message)
            assert nothing(receiver)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (dead,) = receive(receiver, 1)
            assert "MaxDeliveryCountExceeded" == dead.dead_letter_reason
            assert "after 10 delivery attempts" in (dead.dead_letter_error_description or "")
            receiver.complete_message(dead)


def test_receive_and_delete_takes_messages_for_good(live: Live) -> None:
    """In receive-and-delete a message is deleted when it is sent to the client, and has no lock."""
    queue = live.queue()
    send(live, queue, "one", "two")
    with live.client() as client:
        with client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            received = receive(receiver, 2)
        assert ["one", "two"] == bodies(received)
        assert [{}, {}] == [each.raw_amqp_message.delivery_annotations for each in received]
        with client.get_queue_receiver(queue) as receiver:
            assert [] == receiver.peek_messages(1)


def test_expired_lock_returns_the_message_and_a_late_complete_is_refused(live: Live) -> None:
    """After the lock duration another receiver can lock the message."""
    queue = live.queue(LockDuration="PT30S")
    send(live, queue, "slow", "next")
    with (
        live.client() as client,
        client.get_queue_receiver(queue) as slow,
        client.get_queue_receiver(queue) as other,
    ):
        (message,) = receive(slow, 1)
        live.advance(seconds=31)
        again, following = receive(other, 2)
        assert [("slow", 1), ("next", 0)] == [
            (str(again), again.delivery_count),
            (str(following), following.delivery_count),
        ]
        with pytest.raises(MessageLockLostError):
            slow.complete_message(message)
        other.complete_message(again)
        other.complete_message(following)


def test_competing_receivers_never_share_a_message(live: Live) -> None:
    """No other receiver gets a locked message."""
    queue = live.queue()
    texts = {f"message {number}" for number in range(40)}
    send(live, queue, *sorted(texts))
    with (
        live.client() as client,
        client.get_queue_receiver(queue) as first,
        client.get_queue_receiver(queue) as second,
    ):
        seen = bodies(receive(first, 20)) + bodies(receive(second, 20))
        assert len(seen) == len(set(seen))
        assert texts == set(seen)


def test_renewing_a_lock_moves_its_end(live: Live) -> None:
    """The holder can renew a lock any number of times."""
    queue = live.queue(LockDuration="PT30S")
    send(live, queue, "long work")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        for _ in range(3):
            live.advance(seconds=20)
            receiver.renew_message_lock(message)
        receiver.complete_message(message)
        assert nothing(receiver)


def test_missing_queue_is_refused_at_once(live: Live) -> None:
    """The SDK says which entity it was, and the log has the tracking id it shows."""
    with live.client() as client:
        started = time.monotonic()
        with pytest.raises(MessagingEntityNotFoundError) as caught:
            with client.get_queue_sender("no-such-queue") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
        assert time.monotonic() - started < 5
    text = str(caught.value)
    assert "could not be found" in text
    tracking_id = text.split("TrackingId:")[1].split("_", maxsplit=1)[0]
    assert tracking_id in live.process.log_tail()


def test_too_large_message_is_refused(live: Live) -> None:
    """A message over the entity's limit raises the SDK's own error and stores nothing."""
    queue = live.queue(MaxMessageSizeInKilobytes=256)
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(ServiceBusMessage(b"x" * 300_000))
            sender.send_messages(ServiceBusMessage("small"))
        with client.get_queue_receiver(queue) as receiver:
            assert ["small"] == bodies(receive(receiver, 1))


def test_wrong_key_is_refused(live: Live) -> None:
    """A signature made with another key is an authentication error."""
    queue = live.queue()
    wrong = live.connection_string.replace("SAS_KEY_VALUE", "not the key")
    with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError) as caught:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("hello"))
    text = str(caught.value.inner_exception)  # the SDK shows the broker's words only there
    assert "InvalidSignature" in text
    assert text.split("TrackingId:")[1].split("_", maxsplit=1)[0] in live.process.log_tail()


def test_queue_is_created_on_first_use_where_switched_on() -> None:
    """With the setting on, naming a queue is enough, even with an address that administration would
    not take; names that cannot be are refused as before."""
    with BrokerProcess(environment={"PEEKLOCK_CREATE_ON_FIRST_USE": "true"}) as process:
        live = Live(process)
        send(live, "made-on-the-way", "hello")
        with live.client(retry_total=0) as client:
            with client.get_queue_receiver("made-on-the-way") as receiver:
                assert ["hello"] == bodies(receive(receiver, 1))
            with client.get_queue_sender("1 roundtrip, small payload") as sender:
                sender.send_messages(ServiceBusMessage("spaced"))
            with client.get_queue_receiver("1 roundtrip, small payload") as receiver:
                assert ["spaced"] == bodies(receive(receiver, 1))
            with (
                pytest.raises(MessagingEntityNotFoundError),
                client.get_queue_sender("not*allowed") as sender,
            ):
                sender.send_messages(ServiceBusMessage("x"))
