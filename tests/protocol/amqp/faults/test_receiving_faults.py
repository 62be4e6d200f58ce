"""Faults of deliveries and settlements, where many come together: each message is one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.occurrence import Every, Nth
from tests.protocol.amqp.faults.faulty_clients import (
    ACCEPTED,
    REJECTED,
    FaultyBroker,
    bodies,
    frames,
    outcomes,
    send,
)
from tests.support import amqp_frames

if TYPE_CHECKING:
    from tests.support.memory_broker import MemoryClient

DELIVER, SETTLE = Operation.DELIVER, Operation.SETTLE


def broker_with(*texts: bytes) -> FaultyBroker:
    broker = FaultyBroker()
    send(broker.sender(), *texts)
    return broker


def complete(client: MemoryClient, first: int, last: int) -> None:
    client.say(amqp_frames.disposition(first, last, state=amqp_frames.accepted()))
    client.say_and_read_all()


# --- deliveries ----------------------------------------------------------------------------------


def test_a_delay_keeps_the_order_and_holds_a_drain():
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(DELIVER, FaultKind.DELAY, Nth(2), seconds=3.0)
    client = broker.connect()
    assert client.attach_receiver("orders") is None
    client.say(amqp_frames.flow(10, handle=client.last_handle, drain=True))
    client.say_and_read_all()
    assert [b"a"] == bodies(client)
    assert [] == frames(client, "flow")[1:]
    broker.pass_delays()
    client.say_and_read_all()
    assert [b"a", b"b", b"c"] == bodies(client)
    assert 0 == frames(client, "flow")[-1][6], "the rest of the credit is returned"


def test_a_lost_delivery_takes_no_credit():
    broker = broker_with(b"a", b"b", b"c")
    rule = broker.fault(DELIVER, FaultKind.NO_ANSWER, Nth(1))
    client = broker.receiver(credit=1)
    assert [b"b"] == bodies(client)
    client.say(amqp_frames.flow(1, handle=client.last_handle, delivery_count=1))
    client.say_and_read_all()
    assert [b"b", b"c"] == bodies(client)
    assert (3, 1) == (rule.matched, rule.hits)


@pytest.mark.parametrize("kind", [FaultKind.DETACH, FaultKind.EXPIRE_TOKEN])
def test_messages_that_were_not_delivered_return_to_the_queue(kind):
    """Without a failed delivery: nobody has seen them."""
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(DELIVER, kind, Nth(2))
    client = broker.receiver()
    assert [b"a"] == bodies(client)
    assert 1 == len(frames(client, "detach"))
    assert [b"b", b"c"] == broker.stored()


@pytest.mark.parametrize(("is_after", "seen"), [(False, [b"a"]), (True, [b"a", b"b"])])
def test_a_connection_is_dropped_before_or_after_a_delivery(is_after, seen):
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(DELIVER, FaultKind.DROP_CONNECTION, Nth(2), is_after=is_after)
    client = broker.connect()
    assert client.attach_receiver("orders") is None
    client.say(amqp_frames.flow(10, handle=client.last_handle))
    assert client.is_dropped
    assert seen == bodies(client)
    broker.run()
    assert [b"a", b"b", b"c"] == broker.stored()


def test_a_message_without_lock_comes_twice_and_its_copy_waits_for_credit():
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(DELIVER, FaultKind.DELIVER_TWICE, Nth(1))
    client = broker.connect()
    client.attach(amqp_frames.attach_receiver, "orders", snd_settle_mode=1)
    for count in range(4):
        client.say(amqp_frames.flow(1, handle=client.last_handle, delivery_count=count))
        client.say_and_read_all()
        assert count + 1 == len(bodies(client))
    assert [b"a", b"a", b"b", b"c"] == bodies(client)


def test_a_completed_message_comes_again_once():
    broker = broker_with(b"a", b"b")
    broker.fault(DELIVER, FaultKind.DELIVER_TWICE)
    client = broker.receiver()
    complete(client, 0, 1)
    assert [(0, ACCEPTED), (1, ACCEPTED)] == sorted(outcomes(client))
    assert [b"a", b"b", b"a", b"b"] == bodies(client)
    complete(client, 2, 3)
    assert [(number, ACCEPTED) for number in range(4)] == sorted(outcomes(client))
    assert 4 == len(bodies(client))
    client.connection.lost()
    assert [] == broker.stored()


def test_locks_are_lost_after_the_delivery():
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(DELIVER, FaultKind.LOSE_LOCK, Nth(2))
    client = broker.receiver()
    complete(client, 0, 2)
    assert [(0, ACCEPTED), (1, REJECTED), (2, ACCEPTED)] == sorted(outcomes(client))
    assert b"b" == bodies(client)[-1]


# --- settlements ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_BUSY, FaultKind.LOSE_LOCK], ids=["refused", "lock lost"]
)
def test_every_second_settlement_of_a_range_fails(kind):
    broker = broker_with(b"a", b"b", b"c", b"d")
    rule = broker.fault(SETTLE, kind, Every(2))
    client = broker.receiver()
    complete(client, 0, 3)
    expected = [(0, ACCEPTED), (1, REJECTED), (2, ACCEPTED), (3, REJECTED)]
    assert expected == sorted(outcomes(client))
    assert (4, 2) == (rule.matched, rule.hits)
    client.connection.lost()
    broker.run()
    assert [b"b", b"d"] == broker.stored()


def test_a_delayed_settlement_holds_the_later_ones():
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(SETTLE, FaultKind.DELAY, Nth(2), seconds=3.0)
    client = broker.receiver()
    complete(client, 0, 2)
    assert [(0, ACCEPTED)] == outcomes(client)
    broker.pass_delays()
    client.say_and_read_all()
    assert [(0, ACCEPTED), (1, ACCEPTED), (2, ACCEPTED)] == outcomes(client)


@pytest.mark.parametrize(("is_after", "left"), [(False, [b"b", b"c"]), (True, [b"c"])])
def test_a_connection_is_dropped_before_or_after_a_settlement(is_after, left):
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(SETTLE, FaultKind.DROP_CONNECTION, Nth(2), is_after=is_after)
    client = broker.receiver()
    complete(client, 0, 2)
    assert client.is_dropped
    assert [(0, ACCEPTED)] == outcomes(client)
    broker.run()
    assert left == broker.stored()


@pytest.mark.parametrize(("is_after", "left"), [(False, [b"b"]), (True, [])])
def test_one_settlement_is_not_answered(is_after, left):
    broker = broker_with(b"a", b"b", b"c")
    broker.fault(SETTLE, FaultKind.NO_ANSWER, Nth(2), is_after=is_after)
    client = broker.receiver()
    complete(client, 0, 2)
    assert [(0, ACCEPTED), (2, ACCEPTED)] == outcomes(client)
    client.connection.lost()
    broker.run()
    assert left == broker.stored()


def test_a_detach_leaves_the_lock_as_every_detach_does():
    broker = broker_with(b"a", b"b")
    broker.fault(SETTLE, FaultKind.DETACH, Nth(2))
    client = broker.receiver()
    complete(client, 0, 1)
    assert [(0, ACCEPTED)] == outcomes(client)
    assert 1 == len(frames(client, "detach"))
    assert [] == broker.stored(), "b is still locked"


def test_a_settlement_without_answer_that_is_refused_is_dropped():
    """The client has settled, and expects no answer. The message stays locked."""
    broker = broker_with(b"a", b"b")
    broker.fault(SETTLE, FaultKind.SERVER_BUSY, Nth(1))
    client = broker.receiver()
    client.say(amqp_frames.disposition(0, 1, state=amqp_frames.accepted(), settled=True))
    assert [] == outcomes(client)
    client.connection.lost()
    broker.run()
    assert [b"a"] == broker.stored()


def test_only_settlements_of_matching_messages_fail():
    """The filter is evaluated when the message is delivered, because a settlement names only the lock."""
    broker = broker_with(b"a", b"second", b"c")
    # The other bodies contain random ids, which are hexadecimal digits.
    rule = broker.fault(
        SETTLE, FaultKind.SERVER_BUSY, matches=lambda message: b"second" in message.body
    )
    client = broker.receiver()
    complete(client, 0, 2)
    assert [(0, ACCEPTED), (1, REJECTED), (2, ACCEPTED)] == sorted(outcomes(client))
    assert (1, 1) == (rule.matched, rule.hits)
