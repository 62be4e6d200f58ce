"""Sending: one, many, batches, and large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from tests.clients.python.scenarios.moves import connect, receive, take

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def send_one(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("one"))
        async with client.get_queue_receiver(queue) as receiver:
            assert ["one"] == await take(receiver, 1)


async def send_many(broker: Broker) -> str:
    queue, texts = broker.queue(), [str(number) for number in range(300)]
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            for text in texts:
                await sender.send_messages(ServiceBusMessage(text))
        async with client.get_queue_receiver(queue, prefetch_count=100) as receiver:
            assert texts == await take(receiver, len(texts))
    return "a sender of the SDK waits for every outcome"


async def send_batch(broker: Broker) -> None:
    queue = broker.queue()
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            batch = await sender.create_message_batch()
            count = 0
            try:
                while True:
                    batch.add_message(ServiceBusMessage(f"{count} {'x' * 5000}"))
                    count += 1
            except MessageSizeExceededError:
                pass
            assert count > 100
            await sender.send_messages(batch)
            await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        async with client.get_queue_receiver(queue, prefetch_count=100) as receiver:
            texts = await take(receiver, count + 2)
        assert [*map(str, range(count)), "a", "b"] == [text.split()[0] for text in texts]


async def send_1mb(broker: Broker) -> None:
    queue, body = broker.queue(MaxMessageSizeInKilobytes=4096), bytes(range(256)) * 4096
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(body))
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            assert body == b"".join(message.body)
            await receiver.complete_message(message)
