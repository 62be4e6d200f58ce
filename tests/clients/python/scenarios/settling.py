"""The four ways to settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessageState, ServiceBusSubQueue

from tests.clients.python.scenarios.moves import connect, expect_nothing, receive, send, take
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def complete(broker: Broker) -> None:
    queue = broker.queue(LockDuration="PT5S")
    async with connect(broker) as client:
        await send(client, queue, "a", "b")
        async with client.get_queue_receiver(queue) as receiver:
            assert ["a", "b"] == await take(receiver, 2)
            broker.advance(seconds=6)
            await expect_nothing(receiver)


async def abandon_with_properties(broker: Broker) -> str:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "a", "b")
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            assert 0 == message.delivery_count
            await receiver.abandon_message(message)
            (again,) = await receive(receiver, 1)
            assert ("a", 1) == (str(again), again.delivery_count)
            await receiver.complete_message(again)
            assert ["b"] == await take(receiver, 1)
    return "the SDK's abandon takes no properties"


async def defer_and_fetch(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "later", "now")
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            await receiver.defer_message(message)
            assert ["now"] == await take(receiver, 1)
            await expect_nothing(receiver)
            number = message.sequence_number
            assert number is not None
            (deferred,) = await receiver.receive_deferred_messages([number])
            assert "later" == str(deferred)
            expect(ServiceBusMessageState.DEFERRED, deferred.state, "state")
            await receiver.complete_message(deferred)
            assert [] == await receiver.peek_messages(1)


async def dead_letter_and_read_back(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "bad")
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            await receiver.dead_letter_message(
                message, reason="why", error_description="in more words"
            )
            await expect_nothing(receiver)
        async with client.get_queue_receiver(
            queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            (dead,) = await receive(receiver, 1)
            expect("bad", str(dead), "body")
            expect("why", dead.dead_letter_reason, "reason")
            expect("in more words", dead.dead_letter_error_description, "description")
            await receiver.complete_message(dead)
