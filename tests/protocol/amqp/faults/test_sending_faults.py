"""Faults of sends, where a client sends many messages in one read: each message is one operation."""

from __future__ import annotations

import pytest

from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.occurrence import Every, First, Nth
from tests.protocol.amqp.faults.faulty_clients import (
    ACCEPTED,
    REJECTED,
    FaultyBroker,
    frames,
    outcomes,
    send,
)
from tests.support import amqp_frames
from tests.support.memory_broker import error_of
from tests.support.message_sections import DATA, section

SEND = Operation.SEND


def test_every_second_message_of_a_read_is_refused():
    broker = FaultyBroker()
    rule = broker.fault(SEND, FaultKind.SERVER_BUSY, Every(2))
    client = broker.sender()
    send(client, b"a", b"b", b"c", b"d", b"e")
    expected = [(0, ACCEPTED), (1, REJECTED), (2, ACCEPTED), (3, REJECTED), (4, ACCEPTED)]
    assert expected == sorted(outcomes(client))
    assert (5, 2) == (rule.matched, rule.hits)
    assert [b"a", b"c", b"e"] == broker.stored()


def test_a_delay_keeps_the_order():
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.DELAY, Nth(2), seconds=3.0)
    client = broker.sender()
    send(client, b"a", b"b", b"c")
    send(client, b"d")
    assert [(0, ACCEPTED)] == outcomes(client)
    assert [3.0] == [seconds for seconds, _ in broker.delayed]
    broker.pass_delays()
    client.say_and_read_all()
    assert [0, 1, 2, 3] == [number for number, _ in outcomes(client)]
    assert [b"a", b"b", b"c", b"d"] == broker.stored()


def test_what_is_delayed_ends_with_the_link():
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.DELAY, seconds=3.0)
    client = broker.sender()
    send(client, b"a")
    client.say(amqp_frames.detach(client.last_handle))
    broker.pass_delays()
    lost = broker.sender()
    send(lost, b"b")
    lost.connection.lost()
    broker.pass_delays()
    assert [] == broker.stored()


@pytest.mark.parametrize("is_after", [False, True])
def test_a_dropped_connection_has_answered_what_came_before(is_after):
    """The messages after the one with the fault are lost with the connection."""
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.DROP_CONNECTION, Nth(3), is_after=is_after)
    client = broker.sender()
    send(client, b"a", b"b", b"c", b"d")
    assert client.is_dropped
    assert [(0, ACCEPTED), (1, ACCEPTED)] == outcomes(client)
    assert [] == frames(client, "close")
    assert [b"a", b"b", b"c"][: 3 if is_after else 2] == broker.stored()


def test_a_detached_link_has_answered_what_came_before():
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.DETACH, Nth(2), condition="com.microsoft:entity-disabled")
    client = broker.sender()
    send(client, b"a", b"b", b"c")
    assert [(0, ACCEPTED)] == outcomes(client)
    [detach] = frames(client, "detach")
    assert error_of(detach).startswith("com.microsoft:entity-disabled")
    assert client.attach_sender("orders") is None
    assert [b"a"] == broker.stored()


@pytest.mark.parametrize("is_after", [False, True])
def test_one_message_is_not_answered(is_after):
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.NO_ANSWER, Nth(2), is_after=is_after)
    client = broker.sender()
    send(client, b"a", b"b", b"c")
    assert [0, 2] == [number for number, _ in outcomes(client)]
    assert ([b"a", b"b", b"c"] if is_after else [b"a", b"c"]) == broker.stored()


def test_a_settled_message_that_is_refused_is_dropped():
    """Its sender does not wait for an answer."""
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.SERVER_BUSY, First(1))
    client = broker.sender()
    send(client, b"a", b"b", settled=True)
    assert [] == outcomes(client)
    assert [b"b"] == broker.stored()


def test_the_transaction_of_a_refused_message_cannot_be_committed():
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.SERVER_BUSY, Nth(2))
    client = broker.connect()
    transaction_id = client.declare_transaction()
    assert client.attach_sender("orders") is None
    message = section(DATA, b"a")
    assert ACCEPTED == client.send_in_transaction(transaction_id, message)
    state = amqp_frames.described(0x34, transaction_id)
    delivery = client.next_delivery()
    client.say(amqp_frames.transfer(delivery, message, handle=client.last_handle, state=state))
    assert (delivery, REJECTED) == outcomes(client)[-1]
    assert REJECTED == client.commit(transaction_id)
    assert [] == broker.stored()


def test_expired_tokens_end_all_links_of_the_client_and_of_no_other():
    broker = FaultyBroker()
    other = broker.receiver()
    broker.fault(SEND, FaultKind.EXPIRE_TOKEN, Nth(1))
    client = broker.connect()
    assert client.attach_receiver("orders") is None
    assert client.attach_sender("orders") is None
    send(client, b"a")
    assert ["amqp:unauthorized-access"] * 2 == [
        error_of(one).partition(": ")[0] for one in frames(client, "detach")
    ]
    assert [] == frames(other, "detach")


def test_rules_that_are_removed_do_not_act():
    broker = FaultyBroker()
    broker.fault(SEND, FaultKind.SERVER_BUSY)
    client = broker.sender()
    send(client, b"a")
    broker.faults.clear(broker.namespace)
    send(client, b"b")
    assert [(0, REJECTED), (1, ACCEPTED)] == outcomes(client)
    assert [b"b"] == broker.stored()


def test_it_does_not_matter_how_many_messages_come_together():
    def run(reads: list[list[bytes]]) -> list[bytes]:
        broker = FaultyBroker()
        broker.fault(SEND, FaultKind.SERVER_BUSY, Every(3))
        client = broker.sender()
        for read in reads:
            send(client, *read)
        return broker.stored()

    texts = [b"%d" % number for number in range(12)]
    assert run([texts]) == run([[one] for one in texts]) == run([texts[:5], texts[5:]])
