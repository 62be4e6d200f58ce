"""Receiving without locks at stake: amounts, prefetch, receive-and-delete, peek."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusReceiveMode

from tests.clients.python.scenarios.moves import (
    NOTHING_S,
    WAIT_S,
    bodies,
    connect,
    expect_nothing,
    receive,
    send,
    take,
)

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def receive_no_prefetch(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "a", "b", "c")
        async with client.get_queue_receiver(queue) as receiver:
            assert ["a", "b"] == await take(receiver, 2)
            assert ["c"] == await take(receiver, 1)
            assert [] == await receiver.receive_messages(5, max_wait_time=NOTHING_S)


async def receive_prefetch(broker: Broker) -> None:
    queue, texts = broker.queue(), [str(number) for number in range(200)]
    async with connect(broker) as client:
        await send(client, queue, *texts)
        found = []
        async with client.get_queue_receiver(queue, prefetch_count=50, max_wait_time=1) as receiver:
            async for message in receiver:
                found.append(str(message))
                await receiver.complete_message(message)
        assert texts == found


async def receive_and_delete(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "a", "b")
        async with client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            assert ["a", "b"] == bodies(await receive(receiver, 2))
        async with client.get_queue_receiver(queue) as receiver:
            await expect_nothing(receiver)


async def peek(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "a", "b", "c")
        async with client.get_queue_receiver(queue) as receiver:
            peeked = await receiver.peek_messages(10)
            assert ["a", "b", "c"] == bodies(peeked)
            number = peeked[1].sequence_number
            assert number is not None
            rest = await receiver.peek_messages(10, sequence_number=number)
            assert ["b", "c"] == bodies(rest)
            received = await receiver.receive_messages(3, max_wait_time=WAIT_S)
            assert {0} == {message.delivery_count for message in received}
            assert ["a", "b", "c"] == bodies(received)
            for message in received:
                await receiver.complete_message(message)
            assert [] == await receiver.peek_messages(1)
