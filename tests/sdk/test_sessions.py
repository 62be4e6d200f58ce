"""Sessions through the stock SDK: exclusive, ordered, with a lock and a state of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.sdk.support import bodies, nothing, receive, send

if TYPE_CHECKING:
    from tests.sdk.conftest import Live


def test_session_delivers_only_its_own_messages_in_order(live: Live) -> None:
    """The holder of a session gets that session's stream and no other."""
    queue = live.queue(RequiresSession=True)
    for number in range(3):
        send(live, queue, f"a{number}", session_id="a")
        send(live, queue, f"b{number}", session_id="b")
    with live.client() as client:
        with client.get_queue_receiver(queue, session_id="b") as receiver:
            messages = receive(receiver, 3)
            assert ["b0", "b1", "b2"] == bodies(messages)
            assert {"b"} == {message.session_id for message in messages}
            assert nothing(receiver)
            for message in messages:
                receiver.complete_message(message)
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert ["a0", "a1", "a2"] == bodies(receive(receiver, 3))


def test_next_available_session_is_one_with_messages(live: Live) -> None:
    """A receiver that requests any session gets a session that has messages and no holder."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "one", session_id="first")
    send(live, queue, "two", session_id="second")
    with live.client() as client:
        with (
            client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as one,
            client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as two,
        ):
            assert {"first", "second"} == {one.session.session_id, two.session.session_id}
            assert one.session.locked_until_utc > datetime.now(UTC)


def test_no_session_available_times_out(live: Live) -> None:
    """With nothing to accept, accepting ends with the SDK's time-out."""
    queue = live.queue(RequiresSession=True)
    with live.client(retry_total=0) as client:
        receiver = client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
        )
        with pytest.raises(OperationTimeoutError), receiver:
            receiver.receive_messages(1)


def test_held_session_cannot_be_accepted_twice(live: Live) -> None:
    """A session has one holder at a time, and is free once it is closed."""
    queue = live.queue(RequiresSession=True)
    with live.client(retry_total=0) as client:
        with client.get_queue_receiver(queue, session_id="mine"):
            with (
                pytest.raises(SessionCannotBeLockedError),
                client.get_queue_receiver(queue, session_id="mine"),
            ):
                pass
        with client.get_queue_receiver(queue, session_id="mine") as again:
            assert "mine" == again.session.session_id


def test_messages_and_receivers_must_name_a_session(live: Live) -> None:
    """On a session queue nothing goes without a session id; on another none is possible."""
    queue = live.queue(RequiresSession=True)
    plain = live.queue()
    with live.client(retry_total=0) as client:
        with (
            client.get_queue_sender(queue) as sender,
            pytest.raises(ServiceBusError, match="SessionId was not set"),
        ):
            sender.send_messages(ServiceBusMessage("lost"))
        with (
            pytest.raises(ServiceBusError, match="requires sessions"),
            client.get_queue_receiver(queue) as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=1)
        with (
            pytest.raises(ServiceBusError, match="does not require sessions"),
            client.get_queue_receiver(plain, session_id="x") as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=1)


def test_abandoned_message_comes_next_in_its_session(live: Live) -> None:
    """Order inside a session survives an abandon."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "one", "two", session_id="s")
    with live.client() as client, client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        receiver.abandon_message(message)
        again, following = receive(receiver, 2)
        assert [("one", 1), ("two", 0)] == [
            (str(again), again.delivery_count),
            (str(following), following.delivery_count),
        ]


def test_state_is_null_until_set_and_outlives_messages(live: Live) -> None:
    """State belongs to the session, not to its messages or its holder."""
    queue = live.queue(RequiresSession=True)
    with live.client() as client:
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            assert receiver.session.get_state() is None
            receiver.session.set_state(b"step 1")
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            assert b"step 1" == receiver.session.get_state()
            receiver.session.set_state(None)
            assert receiver.session.get_state() is None


def test_an_empty_state_is_no_state(live: Live) -> None:
    """A client that cannot say null clears the state so."""
    queue = live.queue(RequiresSession=True)
    with live.client() as client, client.get_queue_receiver(queue, session_id="x") as receiver:
        receiver.session.set_state(b"step 1")
        receiver.session.set_state(b"")
        assert receiver.session.get_state() is None


def test_sessions_are_listed_page_by_page_or_by_when_their_state_changed(live: Live) -> None:
    """All of them, or those whose state was set after a time."""
    queue = live.queue(RequiresSession=True)
    names = [f"{number:03}" for number in range(130)]
    with live.client() as client, client.get_queue_sender(queue) as sender:
        assert [] == list(client.list_queue_sessions(queue))
        sender.send_messages([ServiceBusMessage("hello", session_id=name) for name in names])
        for name in ("early", "late"):
            with client.get_queue_receiver(queue, session_id=name) as receiver:
                receiver.session.set_state(name)
            live.advance(seconds=60)
        assert [*names, "early", "late"] == list(client.list_queue_sessions(queue))
        since = datetime.fromtimestamp(live.now_ms() / 1000 - 90, UTC)
        late = client.list_queue_sessions(queue, state_updated_after=since)
        assert ["late"] == list(late)


def test_session_lock_is_renewed(live: Live) -> None:
    """Renewing keeps the session, and with it the locks of its messages."""
    queue = live.queue(RequiresSession=True, LockDuration="PT30S")
    send(live, queue, "long", session_id="s")
    with live.client() as client, client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        before = receiver.session.locked_until_utc
        for _ in range(3):
            live.advance(seconds=20)
            receiver.session.renew_lock()
        assert receiver.session.locked_until_utc > before
        receiver.complete_message(message)


def test_expired_session_lock_counts_and_frees_the_session(live: Live) -> None:
    """A holder that is too slow loses the session; its messages go to the next, counted."""
    queue = live.queue(RequiresSession=True, LockDuration="PT30S")
    send(live, queue, "slow", session_id="s")
    with live.client(retry_total=0) as client:
        with client.get_queue_receiver(queue, session_id="s") as slow:
            (message,) = receive(slow, 1)
            live.advance(seconds=31)
            with pytest.raises(SessionLockLostError):
                slow.complete_message(message)
        with client.get_queue_receiver(queue, session_id="s") as other:
            (again,) = receive(other, 1)
            assert ("slow", 1) == (str(again), again.delivery_count)


def test_the_earlier_holder_cannot_change_the_state_of_a_session(live: Live) -> None:
    """A holder that is too slow learns that its lock is lost, although another receiver holds the session now."""
    queue = live.queue(RequiresSession=True, LockDuration="PT30S")
    with live.client(retry_total=0) as client:
        slow = client.get_queue_receiver(queue, session_id="s")
        other = client.get_queue_receiver(queue, session_id="s")
        with slow:
            slow.session.set_state("slow")
            live.advance(seconds=32)
            with other:
                other.session.set_state("other")
                with pytest.raises(SessionLockLostError):
                    slow.session.set_state("late")
                assert b"other" == other.session.get_state()


def test_closing_a_session_leaves_counts_alone(live: Live) -> None:
    """A session closed with messages unsettled gives them back as they were."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "one", session_id="s")
    with live.client() as client:
        for _ in range(2):
            with client.get_queue_receiver(queue, session_id="s") as receiver:
                (message,) = receive(receiver, 1)
                assert 0 == message.delivery_count


def test_dead_letters_of_a_session_queue_are_read_without_sessions(live: Live) -> None:
    """The dead-letter queue has no sessions, but its messages keep their ids."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "bad", session_id="s")
    with live.client() as client:
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            receiver.dead_letter_message(receive(receiver, 1)[0], reason="no")
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (dead,) = receive(receiver, 1)
            assert ("bad", "s", "no") == (str(dead), dead.session_id, dead.dead_letter_reason)


def test_peek_inside_a_session(live: Live) -> None:
    """Peeking in a session shows that session's messages."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "a", session_id="a")
    send(live, queue, "b", session_id="b")
    with live.client() as client, client.get_queue_receiver(queue, session_id="b") as receiver:
        assert ["b"] == bodies(receiver.peek_messages(10))


def test_request_and_reply_over_sessions(live: Live) -> None:
    """The requester waits for its own reply by name, before or after it arrives."""
    requests = live.queue()
    replies = live.queue(RequiresSession=True)
    with live.client() as client:
        with client.get_queue_sender(requests) as sender:
            sender.send_messages(
                ServiceBusMessage("2 + 2", reply_to=replies, reply_to_session_id="requester 1")
            )
        with client.get_queue_receiver(replies, session_id="requester 1") as waiting:
            with client.get_queue_receiver(requests) as server:
                (request,) = receive(server, 1)
                with client.get_queue_sender(request.reply_to) as sender:
                    sender.send_messages(
                        ServiceBusMessage("4", session_id=request.reply_to_session_id)
                    )
                server.complete_message(request)
            assert ["4"] == bodies(receive(waiting, 1))


def test_a_session_lock_outlasts_its_end_by_a_moment(live: Live) -> None:
    """A receiver that waits exactly the lock time still settles and renews."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "a", session_id="s")
    with live.client() as client, client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        live.advance(seconds=30)
        receiver.complete_message(message)
        receiver.session.renew_lock()
        live.advance(seconds=29)
        assert receiver.session.get_state() is None


def test_session_ids_are_compared_without_case(live: Live) -> None:
    """The session goes by the id that named it first; each message keeps its own."""
    queue = live.queue(RequiresSession=True)
    send(live, queue, "1", session_id="Größe")
    send(live, queue, "2", session_id="GRÖßE")
    with live.client() as client:
        with client.get_queue_receiver(queue, session_id="größe") as receiver:
            assert "Größe" == receiver.session.session_id
            receiver.session.set_state(b"state")
            messages = receive(receiver, 2)
            assert ["1", "2"] == bodies(messages)
            assert ["Größe", "GRÖßE"] == [message.session_id for message in messages]
            for message in messages:
                receiver.complete_message(message)
        with client.get_queue_receiver(queue, session_id="GRÖßE") as receiver:
            assert b"state" == receiver.session.get_state()
