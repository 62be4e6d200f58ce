"""Sessions: accepted by name and as they come, held, renewed, lost, and their state."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.clients.python.scenarios.moves import (
    bodies,
    connect,
    expect_refusal,
    receive,
    send,
    take,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

    from tests.clients.python.trial import Broker


async def _send_to(client: ServiceBusClient, queue: str, **texts: str) -> None:
    """To each session its words."""
    async with client.get_queue_sender(queue) as sender:
        for session_id, words in texts.items():
            for word in words.split():
                await sender.send_messages(ServiceBusMessage(word, session_id=session_id))


async def session_named(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    async with connect(broker) as client:
        await _send_to(client, queue, one="a b c", two="x")
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            expect("one", receiver.session.session_id, "session")
            assert ["a", "b", "c"] == await take(receiver, 3)
            assert [] == await receiver.receive_messages(1, max_wait_time=0.5)


async def session_next_available(broker: Broker) -> None:
    queue, found = broker.queue(RequiresSession=True), {}
    async with connect(broker) as client:
        await _send_to(client, queue, one="a b", two="x y")
        for _ in range(2):
            async with client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5
            ) as receiver:
                found[receiver.session.session_id] = await take(receiver, 2)
    expect({"one": ["a", "b"], "two": ["x", "y"]}, found, "sessions")


async def session_two_holders(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    async with connect(broker) as client:
        async with (
            client.get_queue_receiver(queue, session_id="one") as one,
            client.get_queue_receiver(queue, session_id="two") as two,
        ):
            await _send_to(client, queue, two="x y", one="a b")
            assert ["a", "b"] == await take(one, 2)
            assert ["x", "y"] == await take(two, 2)


async def session_state(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    async with connect(broker) as client:
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            assert not await receiver.session.get_state()
            await receiver.session.set_state("halfway")
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            expect(b"halfway", await receiver.session.get_state(), "state")
            await receiver.session.set_state(None)
            assert not await receiver.session.get_state()


async def session_renew(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT10S")
    async with connect(broker) as client:
        await send(client, queue, "mine", session_id="one")
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            (message,) = await receive(receiver, 1)
            for _ in range(3):
                broker.advance(seconds=8)
                until = await receiver.session.renew_lock()
                assert broker.now() < until <= broker.now() + timedelta(seconds=10)
            await receiver.complete_message(message)


async def session_lock_lost(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT5S")
    async with connect(broker) as client:
        await send(client, queue, "slow", session_id="one")
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            (message,) = await receive(receiver, 1)
            broker.advance(seconds=6)
            try:
                await receiver.complete_message(message)
            except SessionLockLostError:
                pass
            else:
                raise AssertionError("completed after the session was lost")
        async with client.get_queue_receiver(queue, session_id="one") as other:
            (again,) = await receive(other, 1)
            expect(["slow"], bodies([again]), "what the next holder gets")
            expect(1, again.delivery_count, "delivery count")
            await other.complete_message(again)


async def session_none_available(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    began_s = time.monotonic()
    async with connect(broker) as client:
        try:
            async with client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2
            ):
                raise AssertionError("there was a session")
        except OperationTimeoutError:
            pass
    took_s = time.monotonic() - began_s
    assert 1.5 < took_s < 6, f"took {took_s:.1f} s"


async def session_id_case(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    async with connect(broker) as client:
        await _send_to(client, queue, Order="a", ORDER="b", order="c")
        async with client.get_queue_receiver(queue, session_id="oRDER") as receiver:
            expect("order", receiver.session.session_id.lower(), "session")
            await receiver.session.set_state("shared")
            held = client.get_queue_receiver(queue, session_id="Order")
            await expect_refusal(SessionCannotBeLockedError, held.__aenter__)
            assert ["a", "b", "c"] == await take(receiver, 3)
        async with client.get_queue_receiver(queue, session_id="ORDER") as receiver:
            expect(b"shared", await receiver.session.get_state(), "state")


async def session_deferred_after_renewals(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT10S")
    async with connect(broker) as client:
        await _send_to(client, queue, one="early late")
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            numbers = []
            for message in await receive(receiver, 2):
                await receiver.defer_message(message)
                numbers.append(message.sequence_number)
            (early,) = await receiver.receive_deferred_messages(numbers[:1])
            for _ in range(3):
                broker.advance(seconds=8)
                await receiver.session.renew_lock()
            await receiver.complete_message(early)
            (late,) = await receiver.receive_deferred_messages(numbers[1:])
            broker.advance(seconds=8)
            await receiver.session.renew_lock()
            broker.advance(seconds=8)
            await receiver.complete_message(late)
            expect([], await receiver.peek_messages(1), "what is left")


async def error_session_held(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    async with connect(broker) as client:
        async with client.get_queue_receiver(queue, session_id="one"):
            try:
                async with client.get_queue_receiver(queue, session_id="one"):
                    raise AssertionError("two hold the session")
            except SessionCannotBeLockedError:
                pass
        async with client.get_queue_receiver(queue, session_id="one") as receiver:
            expect("one", receiver.session.session_id, "session once it is free")
