"""What can happen to a message besides being received: deferral, schedules, expiry, duplicates."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageNotFoundError, OperationTimeoutError, ServiceBusError

from tests.sdk.conftest import Live
from tests.sdk.support import bodies, nothing, receive, send
from tests.support.server import BrokerProcess


def broker_now(live: Live) -> datetime:
    """The broker's time, which tests have moved."""
    return datetime.fromtimestamp(live.now_ms() / 1000, UTC)


# --- deferral ----------------------------------------------------------------------------------


def test_deferred_message_is_fetched_by_number_only(live: Live) -> None:
    """Receives skip it; its sequence number finds it; completing removes it."""
    queue = live.queue()
    send(live, queue, "later", "now")
    with live.client(retry_total=0) as client, client.get_queue_receiver(queue) as receiver:
        later = receive(receiver, 1)[0]
        receiver.defer_message(later)
        (now,) = receive(receiver, 1)
        assert "now" == str(now)
        receiver.complete_message(now)
        assert nothing(receiver)
        (peeked,) = receiver.peek_messages(5, sequence_number=1)
        assert ServiceBusMessageState.DEFERRED == peeked.state
        (fetched,) = receiver.receive_deferred_messages(later.sequence_number)
        assert ("later", 1) == (str(fetched), fetched.delivery_count)
        receiver.complete_message(fetched)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(later.sequence_number)


def test_deferred_message_can_be_deferred_and_dead_lettered_again(live: Live) -> None:
    """A fetched message is locked and settled like any other."""
    queue = live.queue()
    send(live, queue, "again")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            number = message.sequence_number
            receiver.defer_message(message)
            (fetched,) = receiver.receive_deferred_messages(number)
            receiver.abandon_message(fetched)
            (fetched,) = receiver.receive_deferred_messages(number)
            receiver.dead_letter_message(fetched, reason="tired of it")
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            assert "tired of it" == receive(receiver, 1)[0].dead_letter_reason


def test_deferred_message_stays_locked_when_its_receiver_closes(live: Live) -> None:
    """As a received one does: the next receiver can fetch it once the lock has expired."""
    queue = live.queue()
    send(live, queue, "later")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            receiver.defer_message(message)
            receiver.receive_deferred_messages(message.sequence_number)
        live.advance(seconds=31)
        with client.get_queue_receiver(queue) as receiver:
            (again,) = receiver.receive_deferred_messages(message.sequence_number)
            assert ("later", 2) == (str(again), again.delivery_count)


def test_deferred_message_received_and_deleted(live: Live) -> None:
    """Deferred messages can be received in receive-and-delete."""
    queue = live.queue()
    send(live, queue, "later")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            receiver.defer_message(message)
        with client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            fetched = receiver.receive_deferred_messages([message.sequence_number])
            assert ["later"] == bodies(fetched)
            assert [] == receiver.peek_messages(1)


# --- schedules ---------------------------------------------------------------------------------


def test_scheduled_message_becomes_active_on_time(live: Live) -> None:
    """Until its time it can only be peeked; then its enqueued time is that time."""
    queue = live.queue()
    due = broker_now(live) + timedelta(minutes=10)
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            (number,) = sender.schedule_messages(ServiceBusMessage("later"), due)
            assert number > 0
        with client.get_queue_receiver(queue) as receiver:
            assert nothing(receiver)
            (peeked,) = receiver.peek_messages(1)
            assert ServiceBusMessageState.SCHEDULED == peeked.state
            assert number == peeked.sequence_number
            live.advance(seconds=601)
            (message,) = receive(receiver, 1)
            assert "later" == str(message)
            assert abs(message.enqueued_time_utc - due) < timedelta(seconds=5)
            receiver.complete_message(message)


def test_scheduling_by_property_in_a_batch(live: Live) -> None:
    """A message that carries its own time waits; others in the batch do not."""
    queue = live.queue()
    later = ServiceBusMessage("later")
    later.scheduled_enqueue_time_utc = broker_now(live) + timedelta(minutes=1)
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([later, ServiceBusMessage("now")])
        with client.get_queue_receiver(queue) as receiver:
            (now,) = receive(receiver, 1)
            assert "now" == str(now)
            receiver.complete_message(now)
            live.advance(seconds=61)
            assert ["later"] == bodies(receive(receiver, 1))


def test_cancelled_message_never_arrives(live: Live) -> None:
    """Cancelling removes it; cancelling again finds nothing."""
    queue = live.queue()
    with live.client(retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            numbers = sender.schedule_messages(
                [ServiceBusMessage("a"), ServiceBusMessage("b")],
                broker_now(live) + timedelta(minutes=1),
            )
            sender.cancel_scheduled_messages(numbers[0])
            with pytest.raises(ServiceBusError):
                sender.cancel_scheduled_messages(numbers[0])
        live.advance(seconds=61)
        with client.get_queue_receiver(queue) as receiver:
            assert ["b"] == bodies(receive(receiver, 1))


# --- time to live ------------------------------------------------------------------------------


def test_expired_message_is_dropped(live: Live) -> None:
    """A message that is not received in time is deleted."""
    queue = live.queue()
    send(live, queue, "stale", time_to_live=timedelta(seconds=60))
    send(live, queue, "fresh")
    live.advance(seconds=61)
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        assert ["fresh"] == bodies(receive(receiver, 1))
        assert nothing(receiver)


def test_expired_message_is_dead_lettered_where_asked(live: Live) -> None:
    """The dead letter says why it died. The entity's own limit counts when it is smaller."""
    queue = live.queue(DefaultMessageTimeToLive="PT1M", DeadLetteringOnMessageExpiration=True)
    send(live, queue, "stale", time_to_live=timedelta(days=1))
    live.advance(seconds=61)
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            assert nothing(receiver)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (dead,) = receive(receiver, 1)
            assert "TTLExpiredException" == dead.dead_letter_reason


def test_time_to_live_shows_when_a_message_expires(live: Live) -> None:
    """Receivers see the time to live and the moment it ends."""
    queue = live.queue()
    send(live, queue, "x", time_to_live=timedelta(seconds=90))
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        assert timedelta(seconds=90) == message.time_to_live
        assert message.enqueued_time_utc + timedelta(seconds=90) == message.expires_at_utc


# --- duplicates --------------------------------------------------------------------------------


def test_duplicates_inside_the_window_are_dropped(live: Live) -> None:
    """A repeated message id is accepted and stored once, until the window has passed."""
    queue = live.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M")
    send(live, queue, "first", message_id="order-1")
    send(live, queue, "second", message_id="order-1")
    send(live, queue, "other", message_id="order-2")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, 2)
        assert ["first", "other"] == bodies(messages)
        for message in messages:
            receiver.complete_message(message)
        send(live, queue, "still", message_id="order-1")
        assert nothing(receiver)
        live.advance(seconds=61)
        send(live, queue, "again", message_id="order-1")
        assert ["again"] == bodies(receive(receiver, 1))


# --- peek and delete -----------------------------------------------------------------------------


def test_peek_shows_everything_and_changes_nothing(live: Live) -> None:
    """Locked, waiting and deferred messages are all there, from any number on."""
    queue = live.queue()
    send(live, queue, *(f"m{number}" for number in range(5)))
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        receive(receiver, 2)
        assert [f"m{number}" for number in range(5)] == bodies(
            receiver.peek_messages(10, sequence_number=1)
        )
        assert ["m3", "m4"] == bodies(receiver.peek_messages(10, sequence_number=4))
        assert {0} == {
            message.delivery_count for message in receiver.peek_messages(10, sequence_number=1)
        }


def test_properties_to_modify_are_seen_by_the_next_receiver(live: Live) -> None:
    """The SDK settles a deferred message with properties through the management node."""
    queue = live.queue()
    send(live, queue, "x", application_properties={"attempt": 1})
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        receiver.dead_letter_message(message, reason="r", error_description="d")
    with (
        live.client() as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        (dead,) = receive(receiver, 1)
        assert 1 == dead.application_properties[b"attempt"]
        assert b"r" == dead.application_properties[b"DeadLetterReason"]


# --- forwarding --------------------------------------------------------------------------------


def test_forwarded_message_arrives_at_the_end_of_the_chain(live: Live) -> None:
    """ForwardTo moves messages on, keeping the number they were first given."""
    last = live.queue()
    middle = live.queue(ForwardTo=last)
    first = live.queue(ForwardTo=middle)
    send(live, last, "direct")
    send(live, first, "forwarded")
    with live.client() as client, client.get_queue_receiver(last) as receiver:
        direct, forwarded = receive(receiver, 2)
        assert ["direct", "forwarded"] == bodies([direct, forwarded])
        assert (2, 1) == (forwarded.sequence_number, forwarded.enqueued_sequence_number)


def test_dead_letters_are_forwarded_with_their_source(live: Live) -> None:
    """ForwardDeadLetteredMessagesTo gathers dead letters, and each says where it died."""
    graveyard = live.queue()
    queue = live.queue(ForwardDeadLetteredMessagesTo=graveyard)
    send(live, queue, "bad")
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            receiver.dead_letter_message(receive(receiver, 1)[0], reason="no")
        with client.get_queue_receiver(graveyard) as receiver:
            (dead,) = receive(receiver, 1)
            assert ("no", queue) == (dead.dead_letter_reason, dead.dead_letter_source)


def dead_letters(live: Live, queue: str) -> list[tuple[str, str | None]]:
    """Body and reason of every message in a dead-letter queue."""
    with live.client() as client:
        receiver = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        with receiver:
            found = receiver.peek_messages(100)
            return [(str(one), one.dead_letter_reason) for one in found]


def test_a_message_of_a_queue_that_forwards_to_itself_ends_as_a_dead_letter(live: Live) -> None:
    """At the hop limit there is one dead letter, whether or not dead letters are forwarded back as
    well."""
    for field in ({}, {"ForwardDeadLetteredMessagesTo": "itself-too"}):
        name = "itself-too" if field else "itself"
        live.put(name, "QueueDescription", {"ForwardTo": name, **field})
        send(live, name, "round")
        assert [("round", "MaxTransferHopCountExceeded")] == dead_letters(live, name)


def test_messages_of_sessions_are_forwarded(live: Live) -> None:
    """In the order they were sent, and each is in its session over there."""
    last = live.queue(RequiresSession=True)
    first = live.queue(RequiresSession=True, ForwardTo=last)
    with live.client() as client:
        with client.get_queue_sender(first) as sender:
            for text in ("x1", "y1", "x2"):
                sender.send_messages(ServiceBusMessage(text, session_id=text[0]))
        with client.get_queue_receiver(last, session_id="x") as receiver:
            assert ["x1", "x2"] == bodies(receive(receiver, 2))


def test_automatic_lock_renewal_outlasts_the_lock() -> None:
    """The SDK's renewer keeps a lock while the application works; it goes by real time."""
    with BrokerProcess() as process:
        live = Live(process)
        queue = live.queue(LockDuration="PT5S")
        send(live, queue, "long work")
        with live.client() as client, client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            before = message.locked_until_utc
            with AutoLockRenewer() as renewer:
                renewer.register(receiver, message, max_lock_renewal_duration=30)
                deadline = time.monotonic() + 10
                while message.locked_until_utc == before and time.monotonic() < deadline:
                    time.sleep(0.01)
            assert message.locked_until_utc > before
            receiver.complete_message(message)


# --- the clock ---------------------------------------------------------------------------------


def test_moving_the_clock_does_not_outdate_tokens(live: Live) -> None:
    """SDKs date their tokens by the real time, wherever a test has moved the broker's."""
    queue = live.queue()
    live.advance(seconds=86_400)
    send(live, queue, "tomorrow")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        assert ["tomorrow"] == bodies(receive(receiver, 1))


def test_what_falls_due_soon_after_the_clock_was_moved_is_not_late(live: Live) -> None:
    """A timer that was set for before the jump must not keep others waiting."""
    locked = live.queue(LockDuration="PT5M")
    send(live, locked, "locked")
    sessions = live.queue(RequiresSession=True)
    with live.client(retry_total=0) as client, client.get_queue_receiver(locked) as holder:
        receive(holder, 1)
        live.advance(seconds=3_600)
        started = time.monotonic()
        waiting = client.get_queue_receiver(
            sessions, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
        )
        with pytest.raises(OperationTimeoutError), waiting:
            waiting.receive_messages(1)
        assert time.monotonic() - started < 30
