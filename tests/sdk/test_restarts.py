"""The broker ends in the middle of each story, stopped or killed, and the story goes on.

A story is told up to its `yield` before the end, and from there on after it. All of them are begun
before the same end, so that a restart is paid for once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityDisabledError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import (
    EntityStatus,
    SqlRuleAction,
    SqlRuleFilter,
)

from tests.sdk.conftest import Live, sqlite_url
from tests.sdk.support import bodies, nothing, receive, send
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

Story = Callable[[Live], Iterator[None]]

HOUR = timedelta(hours=1)
DEAD_LETTERS = ServiceBusSubQueue.DEAD_LETTER


def take(client: ServiceBusClient, queue: str, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive and complete."""
    with client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, count)
        for message in messages:
            receiver.complete_message(message)
    return messages


# --- the stories -------------------------------------------------------------------------------


def what_waits_is_what_was_sent(live: Live) -> Iterator[None]:
    """Waiting messages keep body, properties and sequence numbers. Completed and deleted messages
    stay deleted."""
    queue = live.queue()
    properties = {
        "int": 7,
        "text": "ä",
        "yes": True,
        "half": 0.5,
        "when": datetime(2024, 2, 29, tzinfo=UTC),
    }
    with live.client() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage("done"), ServiceBusMessage("taken")])
            whole = ServiceBusMessage(
                b"\x00\xff" * 500_000,
                application_properties=dict(properties),
                subject="s",
                content_type="c",
                correlation_id="co",
                message_id="m",
                partition_key="p",
                reply_to="r",
                reply_to_session_id="rs",
                to="t",
            )
            sender.send_messages(whole)
        take(client, queue)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
            receive(receiver, 1)
        with client.get_queue_receiver(queue) as receiver:
            (before,) = receiver.peek_messages(5)
    yield
    with live.client() as client:
        (after,) = take(client, queue)
        assert b"\x00\xff" * 500_000 == b"".join(after.body)
        for name in ("subject", "content_type", "correlation_id", "message_id", "partition_key"):
            assert getattr(before, name) == getattr(after, name)
        for name in ("reply_to", "reply_to_session_id", "to", "sequence_number"):
            assert getattr(before, name) == getattr(after, name)
        assert before.enqueued_time_utc == after.enqueued_time_utc
        assert before.application_properties == after.application_properties
        send(live, queue, "next")
        assert 4 == take(client, queue)[0].sequence_number


def a_locked_message_comes_again(live: Live) -> Iterator[None]:
    """Its lock ends with the broker; failed deliveries that were counted stay counted."""
    queue = live.queue(LockDuration="PT5M")
    send(live, queue, "a", "b")
    client = live.client()
    receiver = client.get_queue_receiver(queue)
    for _ in range(2):
        for message in receive(receiver, 2):
            receiver.abandon_message(message)
    held = receive(receiver, 2)
    assert ["a", "b"] == bodies(held)
    yield
    with live.client() as other:
        again = take(other, queue, 2)
        assert ["a", "b"] == bodies(again)
        assert [one.sequence_number for one in held] == [one.sequence_number for one in again]
        assert min(one.delivery_count or 0 for one in again) >= 2
    receiver.close()
    client.close()


def a_dead_letter_says_why(live: Live) -> Iterator[None]:
    """Reason and description, and that it was dead before."""
    queue = live.queue(MaxDeliveryCount=2)
    send(live, queue, "a", "b")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        receiver.dead_letter_message(message, reason="why", error_description="what for")
        for _ in range(2):
            receiver.abandon_message(receive(receiver, 1)[0])
    yield
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            assert nothing(receiver)
        with client.get_queue_receiver(queue, sub_queue=DEAD_LETTERS) as receiver:
            first, second = receive(receiver, 2)
            assert ("a", "why", "what for") == (
                str(first),
                first.dead_letter_reason,
                first.dead_letter_error_description,
            )
            assert ("b", "MaxDeliveryCountExceeded") == (str(second), second.dead_letter_reason)


def a_deferred_message_is_kept_under_its_number(live: Live) -> Iterator[None]:
    """Receives pass it by, its number finds it, and once."""
    queue = live.queue()
    send(live, queue, "later", "now")
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        (later,) = receive(receiver, 1)
        receiver.defer_message(later)
    yield
    number = later.sequence_number
    with live.client(retry_total=0) as client, client.get_queue_receiver(queue) as receiver:
        states = [message.state for message in receiver.peek_messages(5)]
        assert [ServiceBusMessageState.DEFERRED, ServiceBusMessageState.ACTIVE] == states
        assert ["now"] == bodies(receive(receiver, 1))
        (fetched,) = receiver.receive_deferred_messages(number)
        assert "later" == str(fetched)
        receiver.complete_message(fetched)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(number)


def a_scheduled_message_comes_when_it_is_due(live: Live) -> Iterator[None]:
    """Sent for later or scheduled; one is cancelled by the number it got before the end."""
    queue = live.queue()
    due = datetime.fromtimestamp(live.now_ms() / 1000, UTC) + HOUR
    with live.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("sent", scheduled_enqueue_time_utc=due))
        numbers = sender.schedule_messages(
            [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], due
        )
    yield
    with live.client() as client:
        with client.get_queue_receiver(queue) as receiver:
            assert nothing(receiver)
            waiting = receiver.peek_messages(5)
            assert ["sent", "kept", "cancelled"] == bodies(waiting)
            assert {ServiceBusMessageState.SCHEDULED} == {one.state for one in waiting}
        with client.get_queue_sender(queue) as sender:
            sender.cancel_scheduled_messages(numbers[1])
        live.advance(seconds=HOUR.total_seconds())
        messages = take(client, queue, 2)
        assert ["sent", "kept"] == bodies(messages)
        for message in messages:
            assert message.enqueued_time_utc is not None
            assert message.enqueued_time_utc >= due - timedelta(milliseconds=1)


def a_time_to_live_goes_on(live: Live) -> Iterator[None]:
    """It counts from when the message was sent."""
    queue = live.queue(DeadLetteringOnMessageExpiration=True)
    send(live, queue, "short", time_to_live=3 * HOUR)
    send(live, queue, "long", time_to_live=100 * HOUR)
    yield
    live.advance(seconds=3 * HOUR.total_seconds())
    with live.client() as client:
        assert ["long"] == bodies(take(client, queue))
        with client.get_queue_receiver(queue, sub_queue=DEAD_LETTERS) as receiver:
            (expired,) = receive(receiver, 1)
            assert ("short", "TTLExpiredException") == (str(expired), expired.dead_letter_reason)


def a_duplicate_is_still_one(live: Live) -> Iterator[None]:
    """The window outlives the message, and the broker."""
    queue = live.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="P1D")
    send(live, queue, "first", message_id="same")
    with live.client() as client:
        take(client, queue)
    yield
    send(live, queue, "again", message_id="same")
    send(live, queue, "other", message_id="other")
    with live.client() as client:
        assert ["other"] == bodies(take(client, queue))


def a_session_goes_on_with_its_state(live: Live) -> Iterator[None]:
    """Free for anybody, its messages in order, its state as it was set."""
    queue = live.queue(RequiresSession=True, LockDuration="PT5M")
    send(live, queue, "1", "2", "3", session_id="one")
    send(live, queue, "x", session_id="two")
    client = live.client()
    holder = client.get_queue_receiver(queue, session_id="one")
    (first,) = receive(holder, 1)
    holder.complete_message(first)
    holder.session.set_state(b"after 1")
    with live.client(retry_total=0) as other, pytest.raises(SessionCannotBeLockedError):
        other.get_queue_receiver(queue, session_id="one").__enter__()
    yield
    with live.client() as other:
        with other.get_queue_receiver(queue, session_id="one") as receiver:
            assert b"after 1" == receiver.session.get_state()
            rest = receive(receiver, 2)
            assert ["2", "3"] == bodies(rest)
            for message in rest:
                receiver.complete_message(message)
        with other.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
            assert "two" == receiver.session.session_id
            assert receiver.session.get_state() is None
    holder.close()
    client.close()


def what_was_forwarded_is_where_it_went(live: Live) -> Iterator[None]:
    """And what is sent afterwards goes the same way."""
    end = live.queue()
    middle = live.queue(ForwardTo=end)
    start = live.queue(ForwardTo=middle, ForwardDeadLetteredMessagesTo=end)
    send(live, start, "before")
    yield
    send(live, start, "after")
    with live.client() as client:
        messages = take(client, end, 2)
        assert ["before", "after"] == bodies(messages)
        assert [1, 2] == [message.enqueued_sequence_number for message in messages]


def what_went_in_a_circle_is_there_once(live: Live) -> Iterator[None]:
    """A subscription that forwards to its own topic gives every other one a copy for each round."""
    topic = live.topic()
    live.subscription(topic, "all")
    live.subscription(topic, "round", ForwardTo=topic)
    with live.client() as client, client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("before"))
    yield
    with live.client() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(ServiceBusMessage("after"))
        with client.get_subscription_receiver(topic, "all") as receiver:
            assert ["before"] * 5 + ["after"] * 5 == bodies(receive(receiver, 10))
        dead = client.get_subscription_receiver(topic, "round", sub_queue=DEAD_LETTERS)
        with dead as receiver:
            assert ["before", "after"] == bodies(receive(receiver, 2))


def subscriptions_keep_their_copies_and_rules(live: Live) -> Iterator[None]:
    """A copy that one has completed is still the other's; rules choose and act as before."""
    topic = live.topic()
    live.subscription(topic, "all")
    live.subscription(topic, "big")
    with live.administration() as admin:
        admin.create_rule(
            topic,
            "big",
            "size",
            filter=SqlRuleFilter("size > @least", parameters={"@least": 10}),
            action=SqlRuleAction("SET found = 'yes'"),
        )
        admin.delete_rule(topic, "big", "$Default")
    with live.client() as client, client.get_topic_sender(topic) as sender:
        for size in (5, 50):
            sender.send_messages(
                ServiceBusMessage(f"{size}", application_properties={"size": size})
            )
        with client.get_subscription_receiver(topic, "all") as receiver:
            for message in receive(receiver, 2):
                receiver.complete_message(message)
    yield
    with live.client() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(ServiceBusMessage("60", application_properties={"size": 60}))
        with client.get_subscription_receiver(topic, "all") as receiver:
            assert ["60"] == bodies(receive(receiver, 1))
        with client.get_subscription_receiver(topic, "big") as receiver:
            found = receive(receiver, 2)
            assert ["50", "60"] == bodies(found)
            assert {b"found": b"yes"}.items() <= (found[0].application_properties or {}).items()
    with live.administration() as admin:
        assert ["size"] == [rule.name for rule in admin.list_rules(topic, "big")]


def entities_are_as_they_were_made(live: Live) -> Iterator[None]:
    """Properties, status, deletion and true counts."""
    with live.administration() as admin:
        made = admin.create_queue(
            "kept",
            lock_duration=timedelta(seconds=45),
            max_delivery_count=3,
            default_message_time_to_live=100 * HOUR,
            user_metadata="mine",
        )
        admin.create_queue("deleted")
        send(live, "kept", "1", "2", "3")
        with live.client() as client, client.get_queue_receiver("kept") as receiver:
            one, two, _ = receive(receiver, 3)
            receiver.defer_message(one)
            receiver.dead_letter_message(two)
        made.status = EntityStatus.SEND_DISABLED
        admin.update_queue(made)
        before = admin.get_queue("kept")
        admin.delete_queue("deleted")
    yield
    with live.administration() as admin:
        after = admin.get_queue("kept")
        assert dict(before.items()) == dict(after.items())
        counts = admin.get_queue_runtime_properties("kept")
        assert (1, 1, 3) == (
            counts.active_message_count,
            counts.dead_letter_message_count,
            counts.total_message_count,
        )
        assert "deleted" not in {queue.name for queue in admin.list_queues()}
    with pytest.raises(MessagingEntityDisabledError):
        send(live, "kept", "refused")


STORIES: tuple[Story, ...] = (
    what_waits_is_what_was_sent,
    a_locked_message_comes_again,
    a_dead_letter_says_why,
    a_deferred_message_is_kept_under_its_number,
    a_scheduled_message_comes_when_it_is_due,
    a_time_to_live_goes_on,
    a_duplicate_is_still_one,
    a_session_goes_on_with_its_state,
    what_was_forwarded_is_where_it_went,
    what_went_in_a_circle_is_there_once,
    subscriptions_keep_their_copies_and_rules,
    entities_are_as_they_were_made,
)


# --- telling them ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["stopped", "killed", "killed, postgresql"])
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Story, Iterator[None]]]:
    """Every story up to the end of the first broker; the second one is running."""
    folder = tmp_path_factory.mktemp("store")
    environment = {"PEEKLOCK_TLS_FOLDER": str(folder)}
    end, _, database = request.param.partition(", ")
    url = request.getfixturevalue("postgres_server").url() if database else sqlite_url(folder)
    with BrokerProcess(storage=url, environment=environment) as process:
        live = Live(process, tls_folder=folder)
        stories = {story: story(live) for story in STORIES}
        with ThreadPoolExecutor(len(stories)) as together:  # the SDK's receivers are slow to close
            list(together.map(next, stories.values()))
        if end == "killed":
            process.kill()
        process.restart()
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_after_a_restart(begun: dict[Story, Iterator[None]], story: Story) -> None:
    """The name of the story says what holds."""
    assert next(begun[story], None) is None
