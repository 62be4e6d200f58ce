"""Transactions as the .NET SDK runs them: what a scope holds is done together, or not at all.

What it expects was learned from that SDK's sources and from what its own tests ask of the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.codec import Array, ArrayCode, Long, Timestamp, UInt
from tests.support.dotnet_links import (
    ACCEPTED,
    DEFERRED,
    Controller,
    Refused,
    message,
    transactional,
)
from tests.support.dotnet_setup import SESSION_FILTER, bodies, left_in, send

if TYPE_CHECKING:
    from tests.support.dotnet_client import DotNetClient
    from tests.support.dotnet_setup import DotNetSetup

ENDS = pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
LATER = {"x-opt-scheduled-enqueue-time": Timestamp(4_000_000_000_000)}


@ENDS
def test_transaction_across_entities_on_one_amqp_session(
    setup: DotNetSetup, client: DotNetClient, fail: bool
) -> None:
    """The coordinator is attached before any entity link, and all links share its session."""
    origin, destination = setup.queue(), setup.queue()
    send(client, origin, b"in")
    channel = client.begin()
    controller = Controller(client, channel)
    receiver = client.receiver(origin, channel)
    (received,) = receiver.receive()
    transaction_id = controller.declare()
    sender = client.sender(destination, channel, transaction=transaction_id)
    sender.send(message(b"out"), outcome=0x34)
    state = receiver.settle(received, transactional(transaction_id, ACCEPTED))
    assert 0x34 == state.descriptor
    assert [] == left_in(client, destination)
    controller.discharge(transaction_id, fail=fail)
    assert ([b"in"] if fail else []) == left_in(client, origin)
    assert ([] if fail else [b"out"]) == left_in(client, destination)


@ENDS
def test_scheduling_and_cancelling_are_part_of_it(
    setup: DotNetSetup, client: DotNetClient, fail: bool
) -> None:
    """Both go through management, in requests that are settled and in a transaction."""
    queue = setup.queue()
    requests = client.requests(queue)
    controller = Controller(client, client.begin())

    def schedule(body: bytes, transaction: bytes | None = None) -> Array:
        entry = {"message-id": "one", "message": message(body, annotations=LATER)}
        answer = requests.manage("schedule-message", {"messages": [entry]}, transaction=transaction)
        numbers = answer["sequence-numbers"]
        assert isinstance(numbers, Array)
        return numbers

    numbers = schedule(b"before")
    transaction_id = controller.declare()
    schedule(b"within", transaction_id)
    cancelled = {"sequence-numbers": numbers}
    requests.manage("cancel-scheduled-message", cancelled, transaction=transaction_id)
    assert [b"before"] == left_in(client, queue)
    controller.discharge(transaction_id, fail=fail)
    assert ([b"before"] if fail else [b"within"]) == left_in(client, queue)


@pytest.mark.parametrize("has_session", [False, True], ids=["plain", "session"])
def test_what_was_rolled_back_can_be_completed_again_and_only_once(
    setup: DotNetSetup, client: DotNetClient, has_session: bool
) -> None:
    """By lock token, in a transaction or without; then its lock is lost, but not a session."""
    queue = setup.queue(RequiresSession=has_session)
    send(client, queue, b"a", session_id="one" if has_session else None)
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"} if has_session else None)
    (received,) = receiver.receive()
    receiver.settle(received, DEFERRED)
    requests, session = client.requests(queue), {"session-id": "one"} if has_session else {}
    number = Long(received.annotations["x-opt-sequence-number"])
    fetch = {"sequence-numbers": Array(ArrayCode.LONG, [number]), "receiver-settle-mode": UInt(1)}
    (entry,) = requests.manage("receive-by-sequence-number", {**fetch, **session})["messages"]
    tokens = Array(ArrayCode.UUID, [entry["lock-token"]])
    complete = {"disposition-status": "completed", "lock-tokens": tokens, **session}
    controller = Controller(client, client.begin())

    for fail in (True, False):
        transaction_id = controller.declare()
        requests.manage("update-disposition", complete, transaction=transaction_id)
        controller.discharge(transaction_id, fail=fail)

    with pytest.raises(Refused) as refused:
        requests.manage("update-disposition", complete)
    assert "com.microsoft:message-lock-lost" == refused.value.condition


def test_transaction_of_another_connection_is_not_left_out(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """A second client in a scope sends with a transaction id of the first client. The message must
    not be stored outside the transaction."""
    queue = setup.queue()
    transaction_id = Controller(client, client.begin()).declare()
    with setup.client() as other:
        sender = other.sender(queue, transaction=transaction_id)
        sender.send(message(b"too soon"), outcome=0x25)
        assert [] == left_in(other, queue)


@pytest.mark.parametrize("sends_first", [True, False])
def test_only_the_first_entity_of_a_coordinated_session_is_received_from(
    setup: DotNetSetup, client: DotNetClient, sends_first: bool
) -> None:
    """Others are sent to via that one; a session made again may begin with another."""
    first, second = setup.queue(), setup.queue()
    channel = client.begin()
    Controller(client, channel)
    if sends_first:
        client.sender(first, channel).send(message(b"one"))
    else:
        client.receiver(first, channel)
    client.sender(second, channel).send(message(b"two"))
    with pytest.raises(Refused) as refused:
        client.receiver(second, channel)
    assert "amqp:not-allowed" == refused.value.condition
    client.receiver(first.upper(), channel)
    client.receiver(f"{first}/$DeadLetterQueue", channel)
    again = client.begin()
    Controller(client, again)
    assert [b"two"] == bodies(client.receiver(second, again).receive())


def test_a_session_without_a_coordinator_receives_from_anywhere(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """Nor does a link that was refused decide about others."""
    channel = client.begin()
    for _ in range(2):
        client.receiver(setup.queue(), channel)
    coordinated = client.begin()
    Controller(client, coordinated)
    with pytest.raises(Refused):
        client.receiver("nowhere", coordinated)
    client.receiver(setup.queue(), coordinated)
