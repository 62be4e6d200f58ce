"""Until when a message says it is locked, and what that allows in a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.sdk.support import bodies, receive, send

if TYPE_CHECKING:
    from tests.sdk.conftest import Live

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: what the service says of every message of a session."""


def test_deferred_message_of_a_session_is_settled_after_many_lock_periods(live: Live) -> None:
    """The session is renewed; the message's own lock has no end."""
    queue = live.queue(RequiresSession=True, LockDuration="PT30S")
    send(live, queue, "defer me", "and me", session_id="s")
    with live.client() as client:
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            numbers = []
            for message in receive(receiver, 2):
                assert message.raw_amqp_message.annotations is not None
                assert LAST_MS == message.raw_amqp_message.annotations[b"x-opt-locked-until"]
                assert message.sequence_number is not None
                numbers.append(message.sequence_number)
                receiver.defer_message(message)
            fetched = receiver.receive_deferred_messages(numbers)
            for message in fetched:
                assert message.raw_amqp_message.annotations is not None
                assert LAST_MS == message.raw_amqp_message.annotations[b"x-opt-locked-until"]
            for _ in range(5):
                live.advance(seconds=20)
                until = receiver.session.renew_lock()
                assert until == receiver.session.locked_until_utc
            receiver.complete_message(fetched[0])
            receiver.abandon_message(fetched[1])
            assert [numbers[1]] == [
                m.sequence_number for m in receiver.peek_messages(5, sequence_number=1)
            ]
    assert 1 == live.count(queue)


def test_peeked_message_says_until_when_it_was_last_locked(live: Live) -> None:
    """Once it has had a lock; before that it says nothing."""
    queue = live.queue(LockDuration="PT30S")
    send(live, queue, "one", "two")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        assert [None, None] == [
            m.locked_until_utc for m in receiver.peek_messages(2, sequence_number=1)
        ]
        (message,) = receive(receiver, 1)
        first, second = receiver.peek_messages(2, sequence_number=1)
        assert message.locked_until_utc is not None
        assert message.locked_until_utc == first.locked_until_utc
        assert second.locked_until_utc is None
        live.advance(seconds=10)
        renewed = receiver.renew_message_lock(message)
        assert renewed > datetime.now(UTC) + timedelta(seconds=20)
        assert renewed == receiver.peek_messages(1, sequence_number=1)[0].locked_until_utc
        receiver.abandon_message(message)
        (abandoned,) = receiver.peek_messages(1, sequence_number=1)
        assert renewed == abandoned.locked_until_utc
        assert ServiceBusMessageState.ACTIVE == abandoned.state


def test_peeked_message_of_a_session_has_no_end_either(live: Live) -> None:
    """A plain receiver that looks into the queue can read it too."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "one", session_id="s")
    with live.client() as client, client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        (peeked,) = receiver.peek_messages(1, sequence_number=1)
        assert peeked.raw_amqp_message.annotations is not None
        assert LAST_MS == peeked.raw_amqp_message.annotations[b"x-opt-locked-until"]
        receiver.complete_message(message)


@pytest.mark.parametrize("schedules", [True, False], ids=["schedule-message", "sent"])
@pytest.mark.parametrize("delay_s", [3600, -60], ids=["later", "past"])
def test_message_is_received_as_scheduled_if_it_waited_for_its_time(
    live: Live, delay_s: int, schedules: bool
) -> None:
    """Also in a subscription. A time that has passed already schedules
    nothing. Both are what the live tests of the JavaScript SDK expect."""
    topic = live.topic()
    live.subscription(topic, "sub")
    moment = datetime.fromtimestamp(live.now_ms() / 1000 + delay_s, UTC)
    with live.client() as client, client.get_topic_sender(topic) as sender:
        if schedules:
            sender.schedule_messages(ServiceBusMessage("m"), moment)
        else:
            sender.send_messages(ServiceBusMessage("m", scheduled_enqueue_time_utc=moment))
        live.advance(seconds=3700)
        with client.get_subscription_receiver(topic, "sub") as receiver:
            (message,) = receive(receiver, 1)
            expected = (
                ServiceBusMessageState.SCHEDULED if delay_s > 0 else ServiceBusMessageState.ACTIVE
            )
            assert expected == message.state
            receiver.complete_message(message)


def test_states_are_shown_in_fetched_and_peeked_messages(live: Live) -> None:
    """Deferred and scheduled ones say so. What is received from a link is active, but for a message
    that was scheduled: as in the service it keeps that name, which the JavaScript SDK's tests show."""
    queue = live.queue()
    send(live, queue, "to defer", "to stay")
    moment = datetime.fromtimestamp(live.now_ms() / 1000 + 3600, UTC)
    send(live, queue, "later", scheduled_enqueue_time_utc=moment)
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        deferred, active = receive(receiver, 2)
        assert ServiceBusMessageState.ACTIVE == active.state
        assert deferred.sequence_number is not None
        receiver.defer_message(deferred)
        states = [message.state for message in receiver.peek_messages(3, sequence_number=1)]
        expected = [
            ServiceBusMessageState.DEFERRED,
            ServiceBusMessageState.ACTIVE,
            ServiceBusMessageState.SCHEDULED,
        ]
        assert expected == states
        (fetched,) = receiver.receive_deferred_messages([deferred.sequence_number])
        assert ServiceBusMessageState.DEFERRED == fetched.state
        receiver.complete_message(fetched)
        receiver.complete_message(active)
        live.advance(seconds=3700)
        (due,) = receive(receiver, 1)
        assert ["later"] == bodies([due])
        assert due.scheduled_enqueue_time_utc is not None
        assert abs(due.scheduled_enqueue_time_utc - moment) < timedelta(seconds=1)
        assert ServiceBusMessageState.SCHEDULED == due.state
        (peeked,) = receiver.peek_messages(1, sequence_number=due.sequence_number)
        assert ServiceBusMessageState.ACTIVE == peeked.state
        receiver.complete_message(due)
