"""A transaction is committed as a whole or not at all, also where one of its links is gone.

A client that pipelines says something under a transaction before it knows that the link, the lock or
the message was refused. What nobody took must not be missing from a transaction that is committed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from protocol.codec import UByte, UInt
from tests.support.amqp_frames import BATCH_FORMAT, frame, source, target
from tests.support.dotnet_links import (
    ACCEPTED,
    BATCHABLE,
    Controller,
    Refused,
    message,
    transactional,
)
from tests.support.dotnet_setup import SESSION_FILTER, left_in, send

if TYPE_CHECKING:
    from tests.support.dotnet_client import DotNetClient
    from tests.support.dotnet_links import Received, Receiver, Sender
    from tests.support.dotnet_setup import DotNetSetup

REJECTED = 0x25
UNREADABLE = b"\x00\x53\x75\xa0\xff"

SETTLED = pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])


class Work:
    """A transaction that has a message to send, so that a commit shows."""

    def __init__(self, setup: DotNetSetup, client: DotNetClient) -> None:
        self._bench = setup
        self._destination = setup.queue("destination")
        self._controller = Controller(client, client.begin())
        self.id = self._controller.declare()
        client.sender(self._destination, transaction=self.id).send(message(b"out"), outcome=0x34)

    def is_committed(self) -> None:
        """A commit succeeds."""
        self._controller.discharge(self.id, fail=False)
        assert [b"out"] == self._sent()

    def _sent(self) -> list[bytes]:
        with self._bench.client() as other:
            return left_in(other, self._destination)

    def is_not_committed(self) -> None:
        """A commit is refused, and nothing of it has happened."""
        state = self._controller.ask_to_discharge(self.id, fail=False)
        assert REJECTED == state.descriptor
        condition, description, _ = state.value[0].value  # type: ignore[index]
        assert "amqp:transaction:rollback" == str(condition)
        assert "rolled back" in description
        assert [] == self._sent()


def delete(setup: DotNetSetup, queue: str) -> None:
    status, content = setup.broker.request("DELETE", f"/{queue}?api-version=2021-05")
    assert 200 == status, content


def pipeline_settlement(receiver: Receiver, one: Received, work: Work, *, settled: bool) -> None:
    """Sends a settlement without waiting for the answer."""
    state = transactional(work.id, ACCEPTED)
    fields = [True, UInt(int(one.transfer[1])), None, settled, state, BATCHABLE]
    receiver.client.write(frame("disposition", *fields, channel=receiver.link.channel))


def pipeline_send(
    sender: Sender, payload: bytes, work: Work, *, settled: bool, message_format: int = 0
) -> None:
    """Sends a message without waiting for the outcome."""
    delivery_id = sender.client.next_delivery_id(sender.link.channel)
    fields = [UInt(sender.link.handle), UInt(delivery_id), struct.pack("<I", delivery_id + 1)]
    rest = [UInt(message_format), settled, False, None, transactional(work.id)]
    sender.client.write(
        frame("transfer", *fields, *rest, payload=payload, channel=sender.link.channel)
    )


@SETTLED
def test_settlement_on_a_link_ended_for_its_session_lock(
    setup: DotNetSetup, client: DotNetClient, settled: bool
) -> None:
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"in", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    (received,) = receiver.receive()
    work = Work(setup, client)
    setup.lock_expires()
    receiver.link.expect("detach")
    pipeline_settlement(receiver, received, work, settled=settled)
    work.is_not_committed()


@SETTLED
def test_settlement_on_a_link_whose_entity_is_gone(
    setup: DotNetSetup, client: DotNetClient, settled: bool
) -> None:
    queue, receiver, received = setup.locked_message(client, b"in")
    work = Work(setup, client)
    delete(setup, queue)
    receiver.link.expect("detach")
    pipeline_settlement(receiver, received, work, settled=settled)
    work.is_not_committed()


@pytest.mark.parametrize("session", [None, "one"], ids=["plain", "session"])
def test_settlement_on_a_link_ended_for_another_transaction(
    setup: DotNetSetup, client: DotNetClient, session: str | None
) -> None:
    """A lock that outlives its link can still be settled, one that went with its session cannot."""
    queue = setup.queue(RequiresSession=session is not None)
    send(client, queue, b"in", b"too", session_id=session)
    filters: dict[Any, object] | None = None if session is None else {SESSION_FILTER: session}
    receiver = client.receiver(queue, filters=filters)
    first, second = receiver.receive(2)
    work = Work(setup, client)
    unknown = transactional(b"no such transact", ACCEPTED)
    fields = [True, UInt(int(first.transfer[1])), None, True, unknown]
    client.write(frame("disposition", *fields, channel=receiver.link.channel))
    receiver.link.expect("detach")
    pipeline_settlement(receiver, second, work, settled=False)
    if session is None:
        work.is_committed()
        assert [b"in"] == left_in(client, queue)
    else:
        work.is_not_committed()
        assert [b"in", b"too"] == left_in(client, queue)


@SETTLED
def test_message_on_a_link_that_was_ended(
    setup: DotNetSetup, client: DotNetClient, settled: bool
) -> None:
    queue = setup.queue()
    work = Work(setup, client)
    sender = client.sender(queue)
    delete(setup, queue)
    sender.link.expect("detach")
    pipeline_send(sender, message(b"lost"), work, settled=settled)
    work.is_not_committed()


@SETTLED
@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT], ids=["message", "batch"])
def test_message_that_cannot_be_read(
    setup: DotNetSetup, client: DotNetClient, settled: bool, message_format: int
) -> None:
    work = Work(setup, client)
    sender = client.sender(setup.queue())
    pipeline_send(sender, UNREADABLE, work, settled=settled, message_format=message_format)
    work.is_not_committed()


@SETTLED
def test_message_that_is_too_large(setup: DotNetSetup, client: DotNetClient, settled: bool) -> None:
    work = Work(setup, client)
    queue = setup.queue(MaxMessageSizeInKilobytes=1024)
    sender = client.sender(queue)
    payload = message(bytes(1024 * 1024 + 1))
    delivery_id = client.next_delivery_id(sender.link.channel)
    head = [UInt(sender.link.handle), UInt(delivery_id), b"tag", UInt(0), settled]
    state = transactional(work.id)
    for start in range(0, len(payload), 60_000):
        more = start + 60_000 < len(payload)
        fields = [*head, more, None, state]
        piece = payload[start : start + 60_000]
        client.write(frame("transfer", *fields, payload=piece, channel=sender.link.channel))
    work.is_not_committed()


def test_message_in_a_session_that_was_ended(setup: DotNetSetup, client: DotNetClient) -> None:
    work = Work(setup, client)
    sender = client.sender(setup.queue())
    client.write(frame("transfer", UInt(99), UInt(0), b"tag", channel=sender.link.channel))
    pipeline_send(sender, message(b"lost"), work, settled=False)
    work.is_not_committed()


def test_settlement_on_a_link_whose_name_was_taken(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    queue, receiver, received = setup.locked_message(client, b"in")
    work = Work(setup, client)
    again = [receiver.name, UInt(99), True, None, UByte(1), source(queue), target("here")]
    client.write(frame("attach", *again, channel=receiver.link.channel))
    receiver.link.expect("detach")
    pipeline_settlement(receiver, received, work, settled=False)
    work.is_not_committed()


def test_request_that_is_no_operation(setup: DotNetSetup, client: DotNetClient) -> None:
    work = Work(setup, client)
    with pytest.raises(Refused):
        client.requests(setup.queue()).manage("schedule-message", {}, transaction=work.id)
    work.is_not_committed()
