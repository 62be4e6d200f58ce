"""Keys of each claim on a broker that is strict, and batches filled to its limits."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from tests.clients.python.scenarios.moves import expect_refusal, send, take
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker

ENVELOPE_BYTES = 56
"""The SDK writes the first message's id on the batch itself, and does not count it."""
UNAUTHORIZED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


def _string(claim: str) -> str:
    return os.environ[f"PEEKLOCK_STRICT_{claim.upper()}_CONNECTION_STRING"]


def _connect(claim: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(_string(claim), retry_total=0)


def _administer(broker: Broker, claim: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        _string(claim), connection_verify=broker.authority_file
    )


async def strict_claims(broker: Broker) -> None:
    queue = os.environ["PEEKLOCK_STRICT_QUEUE"]
    due = broker.now() + timedelta(days=1)
    async with _connect("send") as client:
        await send(client, queue, "sent")
        receiver = client.get_queue_receiver(queue)
        await expect_refusal(UNAUTHORIZED, lambda: receiver.receive_messages(max_wait_time=1))
        await expect_refusal(UNAUTHORIZED, receiver.peek_messages)
    async with _connect("listen") as client:
        sender = client.get_queue_sender(queue)
        message = ServiceBusMessage("x")
        await expect_refusal(UNAUTHORIZED, lambda: sender.send_messages(message))
        await expect_refusal(UNAUTHORIZED, lambda: sender.schedule_messages(message, due))
        async with client.get_queue_receiver(queue) as receiver:
            expect(1, len(await receiver.peek_messages(10)), "messages peeked")
            assert ["sent"] == await take(receiver, 1)
    for claim in ("send", "listen"):
        async with _administer(broker, claim) as admin:
            await expect_refusal(ClientAuthenticationError, lambda: admin.get_queue(queue))
            await expect_refusal(ClientAuthenticationError, lambda: admin.create_queue("more"))
    async with _administer(broker, "manage") as admin, _connect("manage") as client:
        expect(queue, (await admin.get_queue(queue)).name, "name")
        made = await admin.create_queue(broker.name("managed"))
        await send(client, made.name, "managed")
        async with client.get_queue_receiver(made.name) as receiver:
            assert ["managed"] == await take(receiver, 1)
        await admin.delete_queue(made.name)


async def full_batch(broker: Broker) -> str:
    """Smaller and smaller messages are added, so that hardly a byte is left."""
    queue = os.environ["PEEKLOCK_STRICT_QUEUE"]
    async with _connect("manage") as client:
        async with client.get_queue_sender(queue) as sender:
            limit = (await sender.create_message_batch()).max_size_in_bytes
            batch = await sender.create_message_batch(limit - ENVELOPE_BYTES)
            count = 0
            for size in (5000, 500, 50, 5, 0):
                try:
                    while True:
                        batch.add_message(ServiceBusMessage("x" * size))
                        count += 1
                except MessageSizeExceededError:
                    pass
            await sender.send_messages(batch)
        async with client.get_queue_receiver(queue) as receiver:
            expect(count, len(await take(receiver, count)), "messages of the batch")
    return "the SDK gives every message an id, and does not count the copy on the batch"
