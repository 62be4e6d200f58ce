"""What the broker refuses, as the SDK's own errors, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
)

from tests.clients.python.scenarios.moves import connect, take

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def error_not_found(broker: Broker) -> None:
    async with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        try:
            async with client.get_queue_sender(broker.name("nowhere")):
                raise AssertionError("sending to nowhere")
        except MessagingEntityNotFoundError:
            pass
        try:
            async with client.get_queue_receiver(broker.name("nowhere")):
                raise AssertionError("receiving from nowhere")
        except MessagingEntityNotFoundError:
            pass


async def error_unauthorized(broker: Broker) -> None:
    wrong = broker.connection_string.replace("SAS_KEY_VALUE", "wrong")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        try:
            async with client.get_queue_sender(broker.queue()):
                raise AssertionError("let in with a wrong key")
        except (ServiceBusAuthenticationError, ServiceBusAuthorizationError):
            pass


async def error_quota(broker: Broker) -> None:
    queue = broker.queue(MaxSizeInMegabytes=1)
    async with connect(broker) as client, client.get_queue_sender(queue) as sender:
        try:
            for _ in range(10):
                await sender.send_messages(ServiceBusMessage("x" * 200_000))
            raise AssertionError("a full queue takes more")
        except ServiceBusQuotaExceededError:
            pass
        async with client.get_queue_receiver(queue) as receiver:
            await take(receiver, 2)
        await sender.send_messages(ServiceBusMessage("x" * 200_000))


async def error_too_large(broker: Broker) -> None:
    queue = broker.queue(MaxMessageSizeInKilobytes=1024)
    async with connect(broker) as client, client.get_queue_sender(queue) as sender:
        try:
            await sender.send_messages(ServiceBusMessage("x" * (1 << 21)))
            raise AssertionError("too large a message was sent")
        except MessageSizeExceededError:
            pass
        await sender.send_messages(ServiceBusMessage("small"))
        async with client.get_queue_receiver(queue) as receiver:
            assert ["small"] == await take(receiver, 1)
