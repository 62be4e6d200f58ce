"""Settlements in a transaction, frame by frame: provisional until the discharge, undone by a rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.codec import Array, ArrayCode, UInt
from tests.support.amqp_frames import described, frame
from tests.support.dotnet_links import (
    ABANDONED,
    ACCEPTED,
    DEFERRED,
    DISPOSITION_SETTLED,
    DISPOSITION_STATE,
    REJECTED,
    Controller,
    Refused,
    _is_about,
    message,
    transactional,
)
from tests.support.dotnet_setup import SESSION_FILTER, complete_by_token, left_in, send

if TYPE_CHECKING:
    from protocol.codec import Described
    from tests.support.dotnet_client import DotNetClient
    from tests.support.dotnet_links import Received, Receiver
    from tests.support.dotnet_setup import DotNetSetup

UNKNOWN = b"no such transact"


def parts(value: Any) -> Any:
    """The fields of a described list."""
    return value.value


def settle_silently(receiver: Receiver, one: Received, outcome: Described) -> None:
    """A settled disposition, which gets no answer."""
    fields = [True, UInt(int(one.transfer[1])), None, True, outcome, False]
    receiver.client.write(frame("disposition", *fields, channel=receiver.link.channel))


def settled_by_broker(receiver: Receiver, one: Received) -> Described:
    """The disposition that settles a delivery."""
    about = _is_about(int(one.transfer[1]), by_receiver=False)
    answer = receiver.client.expect("disposition", receiver.link.channel, about)
    assert answer[DISPOSITION_SETTLED] is True
    state: Described = answer[DISPOSITION_STATE]
    return state


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(ACCEPTED, 0x24), (ABANDONED, 0x27), (DEFERRED, 0x27), (REJECTED, 0x25)],
    ids=["complete", "abandon", "defer", "dead-letter"],
)
def test_a_commit_settles_what_was_provisional(
    setup: DotNetSetup, client: DotNetClient, outcome: Described, code: int
) -> None:
    _, receiver, received = setup.locked_message(client, b"in")
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    state = receiver.settle(received, transactional(transaction_id, outcome))
    assert (0x34, transaction_id) == (state.descriptor, parts(state)[0])
    assert code == parts(state)[1].descriptor
    controller.discharge(transaction_id, fail=False)
    last = settled_by_broker(receiver, received)
    assert (0x34, transaction_id) == (last.descriptor, parts(last)[0])
    assert code == parts(last)[1].descriptor


@pytest.mark.parametrize("session", [None, "one"], ids=["plain", "session"])
def test_after_a_rollback_the_delivery_is_settled_on_its_link(
    setup: DotNetSetup, client: DotNetClient, session: str | None
) -> None:
    queue = setup.queue(RequiresSession=session is not None)
    send(client, queue, b"in", session_id=session)
    receiver = client.receiver(
        queue, filters=None if session is None else {SESSION_FILTER: session}
    )
    (received,) = receiver.receive()
    controller = Controller(client, client.begin())
    for outcome in (ACCEPTED, ABANDONED, REJECTED):
        transaction_id = controller.declare()
        receiver.settle(received, transactional(transaction_id, outcome))
        controller.discharge(transaction_id, fail=True)
    assert 0x24 == receiver.settle(received, ACCEPTED).descriptor
    assert [] == left_in(client, queue)


def test_after_a_rollback_a_second_transaction_completes_it(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """After the lock has expired, the message is not delivered again."""
    queue, receiver, received = setup.locked_message(client, b"in")
    controller = Controller(client, client.begin())
    for fail in (True, False):
        transaction_id = controller.declare()
        receiver.settle(received, transactional(transaction_id, ACCEPTED))
        controller.discharge(transaction_id, fail=fail)
    setup.lock_expires()
    assert [] == left_in(client, queue)


def test_after_a_rollback_the_token_settles(setup: DotNetSetup, client: DotNetClient) -> None:
    queue, receiver, received = setup.locked_message(client, b"in")
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    receiver.settle(received, transactional(transaction_id, ACCEPTED))
    controller.discharge(transaction_id, fail=True)
    complete_by_token(client, queue, received)
    assert [] == left_in(client, queue)


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_client_may_settle_after_the_provisional_answer(
    setup: DotNetSetup, client: DotNetClient, fail: bool
) -> None:
    """It is the same settlement, and what was rolled back is still locked."""
    queue, receiver, received = setup.locked_message(client, b"in")
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    state = transactional(transaction_id, ACCEPTED)
    receiver.settle(received, state)
    settle_silently(receiver, received, state)
    controller.discharge(transaction_id, fail=fail)
    assert ([b"in"] if fail else []) == left_in(client, queue)
    if fail:
        complete_by_token(client, queue, received)
        assert [] == left_in(client, queue)


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_settled_disposition_takes_part(
    setup: DotNetSetup, client: DotNetClient, fail: bool
) -> None:
    """After a rollback the message is available at once, because its receiver has settled it."""
    queue, receiver, received = setup.locked_message(client, b"in")
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    settle_silently(receiver, received, transactional(transaction_id, ACCEPTED))
    controller.discharge(transaction_id, fail=fail)
    if fail:
        (again,) = receiver.receive()
        assert (b"in", 1) == (again.body, again.delivery_count)
    else:
        assert [] == left_in(client, queue)


def test_a_settlement_in_an_unknown_transaction_is_rejected(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    queue, receiver, received = setup.locked_message(client, b"in")
    with pytest.raises(Refused) as refused:
        receiver.settle(received, transactional(UNKNOWN, ACCEPTED))
    assert "amqp:transaction:unknown-id" == refused.value.condition
    assert [b"in"] == left_in(client, queue)


def test_a_settled_disposition_in_an_unknown_transaction_ends_the_link(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    queue, receiver, received = setup.locked_message(client, b"in")
    settle_silently(receiver, received, transactional(UNKNOWN, ACCEPTED))
    with pytest.raises(Refused) as refused:
        receiver.link.raise_detached()
    assert "amqp:transaction:unknown-id" == refused.value.condition
    assert [b"in"] == left_in(client, queue)
    client.receiver(queue)


def test_a_settled_send_in_an_unknown_transaction_ends_the_link(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    queue = setup.queue()
    sender = client.sender(queue)
    fields = [UInt(sender.link.handle), UInt(client.next_delivery_id(sender.link.channel)), b"1"]
    rest = [UInt(0), True, False, None, transactional(UNKNOWN)]
    client.write(
        frame("transfer", *fields, *rest, payload=message(b"x"), channel=sender.link.channel)
    )
    with pytest.raises(Refused) as refused:
        sender.link.raise_detached()
    assert "amqp:transaction:unknown-id" == refused.value.condition
    assert [] == left_in(client, queue)


def test_a_discharge_of_an_unknown_transaction_is_rejected(client: DotNetClient) -> None:
    state = Controller(client, client.begin())._command(described(0x32, UNKNOWN, False))
    assert 0x25 == state.descriptor
    assert "amqp:transaction:unknown-id" == parts(parts(state)[0])[0]


def test_a_transaction_is_unknown_on_another_connection(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """The refused operation does not change the transaction."""
    queue = setup.queue()
    send(client, queue, b"in")
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    with setup.client() as other:
        receiver = other.receiver(queue)
        (received,) = receiver.receive()
        with pytest.raises(Refused) as refused:
            receiver.settle(received, transactional(transaction_id, ACCEPTED))
        assert "amqp:transaction:unknown-id" == refused.value.condition
        state = Controller(other, other.begin())._command(described(0x32, transaction_id, False))
        assert "amqp:transaction:unknown-id" == parts(parts(state)[0])[0]
        tokens = Array(ArrayCode.UUID, [received.lock_token])
        request = {"disposition-status": "completed", "lock-tokens": tokens}
        with pytest.raises(Refused) as refused:
            other.requests(queue).manage("update-disposition", request, transaction=transaction_id)
        assert "amqp:transaction:unknown-id" == refused.value.condition
    client.sender(queue, transaction=transaction_id).send(message(b"out"), outcome=0x34)
    controller.discharge(transaction_id, fail=False)
    assert [b"in", b"out"] == left_in(client, queue)


def test_operations_of_a_transaction_stay_in_one_partition(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """`amqp:not-allowed` becomes an InvalidOperationException."""
    queue = setup.queue(EnablePartitioning=True)
    keyed = {key: message(key.encode(), annotations={"x-opt-partition-key": key}) for key in "12"}
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    sender = client.sender(queue, transaction=transaction_id)
    sender.send(keyed["1"], outcome=0x34)
    refused = sender.send(keyed["2"], outcome=0x25)[DISPOSITION_STATE]
    assert "amqp:not-allowed" == parts(parts(refused)[0])[0]
    controller.discharge(transaction_id, fail=True)
    plain = client.sender(queue)
    for payload in keyed.values():
        plain.send(payload)
    receiver = client.receiver(queue)
    first, second = receiver.receive(2)
    transaction_id = controller.declare()
    receiver.settle(first, transactional(transaction_id, ACCEPTED))
    with pytest.raises(Refused) as not_allowed:
        receiver.settle(second, transactional(transaction_id, ACCEPTED))
    assert "amqp:not-allowed" == not_allowed.value.condition
    controller.discharge(transaction_id, fail=True)
    receiver.settle(first, ACCEPTED)
    assert [b"2"] == left_in(client, queue)


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_client_may_settle_after_the_discharge_too(
    setup: DotNetSetup, client: DotNetClient, fail: bool
) -> None:
    """The client sent the discharge before it got the provisional answer. There is no error."""
    queue = setup.queue()
    send(client, queue, b"in", b"next")
    receiver = client.receiver(queue)
    (received,) = receiver.receive()
    controller = Controller(client, client.begin())
    transaction_id = controller.declare()
    state = transactional(transaction_id, ACCEPTED)
    receiver.settle(received, state)
    controller.discharge(transaction_id, fail=fail)
    settle_silently(receiver, received, state)
    (following,) = receiver.receive()
    assert b"next" == following.body
    assert 0x24 == receiver.settle(following, ACCEPTED).descriptor
    assert ([b"in"] if fail else []) == left_in(client, queue)
    if fail:
        complete_by_token(client, queue, received)
        assert [] == left_in(client, queue)
