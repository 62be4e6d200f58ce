"""The client as tests use it: messages, waits, time, snapshots and namespaces, beside the stock SDK."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pytest_peeklock import (
    Peeklock,
    PeeklockError,
    WaitTimedOut,
    condition,
    empty,
    settled,
    unlocked,
)


@pytest.fixture
def sdk(peeklock):
    with ServiceBusClient.from_connection_string(
        peeklock.connection_string, retry_backoff_factor=0.01
    ) as client:
        yield client


def test_messages_that_the_sdk_sent_are_read(peeklock, sdk):
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(
            ServiceBusMessage("one", message_id="a", application_properties={"color": "red"})
        )
    peeklock.send("orders", "two", {"body": {"n": 3}, "message_id": "c"})
    assert ["one", "two", {"n": 3}] == [one["body"] for one in peeklock.messages("orders")]
    (red,) = peeklock.messages("orders", filter="color = 'red'")
    assert "a" == red["message_id"]
    assert 3 == peeklock.counts("orders")["active"]


def test_all_pages_are_read(peeklock):
    for _ in range(3):
        peeklock.send("orders", *(["x"] * 500))
    assert list(range(1, 1501)) == [
        one["sequence_number"] for one in peeklock.messages("orders", body="none")
    ]


def test_dead_letters_are_read(peeklock):
    peeklock.send("orders", {"body": "a", "message_id": "a"}, {"body": "b", "message_id": "b"})
    peeklock.dead_letter_messages("orders", filter="sys.MessageId = 'b'", reason="Bad")
    (found,) = peeklock.dead_letters("orders", filter="reason = 'Bad'")
    assert "b" == found["body"]
    assert 1 == peeklock.resubmit_messages("orders")["count"]
    assert [] == peeklock.dead_letters("orders")


def test_a_wait_ends_when_the_message_comes(peeklock):
    with ServiceBusClient.from_connection_string(peeklock.connection_string) as client:

        def send() -> None:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("late", message_id="late"))

        sending = threading.Timer(0.05, send)
        sending.start()
        (message,) = peeklock.wait_for("orders")
        sending.join()
    assert "late" == message["message_id"]


def test_a_wait_that_times_out_fails_the_test_with_what_was_seen(peeklock):
    peeklock.send("orders", "one")
    with pytest.raises(AssertionError) as caught:
        peeklock.wait_for("orders", at_least=2, timeout_s=0.01)
    assert isinstance(caught.value, WaitTimedOut)
    assert 408 == caught.value.status
    assert "does not hold, 1 seen" in str(caught.value)
    assert ["one"] == [one["body"] for one in caught.value.seen[0]["messages"]]


def test_the_longest_wait_is_set_for_a_run(peeklock_broker):
    """A namespace has that of the broker."""
    broker = Peeklock(peeklock_broker.url)
    broker.wait_timeout_s = 0.01
    with broker.temporary_namespace(topology={"queues": {"orders": {}}}) as namespace:
        with pytest.raises(WaitTimedOut, match=r"After 0\.01 s"):
            namespace.wait_for("orders")
        with pytest.raises(WaitTimedOut, match=r"After 0\.02 s"):
            namespace.wait_for("orders", timeout_s=0.02)


def test_conditions_hold_together(peeklock):
    peeklock.send("orders", "one")
    seen = peeklock.wait_until(
        condition("orders", state="active", equals=1), empty("events"), unlocked()
    )
    assert [1, 0, 0] == [one["count"] for one in seen]
    with pytest.raises(WaitTimedOut, match=r'"is": "settled".* 1 seen'):
        peeklock.wait_until(settled(), timeout_s=0)


def test_a_block_is_left_when_everything_is_settled(peeklock, sdk):
    with peeklock.expecting(settled("orders")) as seen:
        peeklock.send("orders", "one")
        with sdk.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.complete_message(message)
    assert [True] == [one["holds"] for one in seen]
    peeklock.wait_until_settled()
    peeklock.wait_until_empty("orders")
    peeklock.wait_until_unlocked()


def test_a_block_that_fails_is_left_at_once(peeklock):
    with (
        pytest.raises(ZeroDivisionError),
        peeklock.expecting(condition("orders", at_least=1), timeout_s=60),
    ):
        raise ZeroDivisionError


def test_a_schedule_a_week_ahead_comes_due(peeklock, sdk):
    due = peeklock.now() + timedelta(days=7)
    with sdk.get_queue_sender("orders") as sender:
        sender.schedule_messages(ServiceBusMessage("later"), due)
    assert 1 == peeklock.counts("orders")["scheduled"]
    assert peeklock.advance(days=7, seconds=1) >= due
    (message,) = peeklock.wait_for("orders", state="active")
    assert "later" == message["body"]


def test_the_clock_of_a_block_stands(peeklock, peeklock_broker):
    with peeklock.frozen_clock():
        before = peeklock.now()
        assert peeklock.now() == before
        assert before + timedelta(minutes=1) == peeklock.advance(timedelta(minutes=1))
        assert not peeklock_broker.get_clock()["is_frozen"]
    assert not peeklock.get_namespace_clock()["is_frozen"]


def test_the_client_of_the_whole_broker_moves_its_clock(peeklock_broker):
    with peeklock_broker.frozen_clock():
        before = peeklock_broker.now()
        assert before + timedelta(seconds=2) == peeklock_broker.advance(seconds=2)
    assert not peeklock_broker.get_clock()["is_frozen"]


def test_a_block_is_rolled_back(peeklock):
    peeklock.send("orders", "kept")
    with peeklock.restored_afterwards():
        peeklock.purge_entity("orders")
        peeklock.send("orders", "gone")
    assert ["kept"] == [one["body"] for one in peeklock.messages("orders")]
    assert [] == peeklock.list_snapshots()["snapshots"]


def test_a_namespace_for_a_block(peeklock, peeklock_broker):
    peeklock.send("orders", "seed")
    peeklock.take_snapshot("seeded")
    origin = {"namespace": peeklock.namespace, "snapshot": "seeded"}
    with peeklock_broker.temporary_namespace(snapshot=origin) as branch:
        assert ["seed"] == [one["body"] for one in branch.messages("orders")]
        branch.purge_entity("orders")
    assert ["seed"] == [one["body"] for one in peeklock.messages("orders")]
    with pytest.raises(PeeklockError, match="There is no namespace"):
        Peeklock(branch.url, branch.namespace).get_entity("orders")


def test_the_connections_of_the_sdk_are_seen(peeklock, sdk):
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.peek_messages()
        (connection,) = peeklock.list_connections()["connections"]
        assert any(link["address"] for link in connection["links"])


def test_a_client_says_what_it_is_for(peeklock, peeklock_broker):
    assert peeklock.namespace in repr(peeklock)
    assert "default namespace" in repr(peeklock_broker)


def test_a_fault_of_a_block(peeklock, sdk):
    """The SDK retries after the first refusal. The rule counts also after the block, and is removed."""
    with (
        peeklock.fault("send", "server_busy", entity="orders", first=1) as fault,
        sdk.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("one"))
        assert 1 == fault.hits
    assert (1, 2) == (fault.hits, fault.matched)
    assert [] == peeklock.list_faults()["faults"]
    assert 1 == peeklock.counts("orders")["active"]


def test_a_fault_that_the_test_removed(peeklock):
    with peeklock.fault("send", "delay", seconds=1, key_name="a*", name="slow") as fault:
        assert ["slow"] == [one["name"] for one in peeklock.list_faults()["faults"]]
        fault.remove()
        assert [] == peeklock.list_faults()["faults"]
    assert 0 == fault.hits


def test_a_fault_that_is_refused(peeklock):
    with (
        pytest.raises(PeeklockError, match="orderz"),
        peeklock.fault("send", "server_busy", entity="orderz"),
    ):
        pass
