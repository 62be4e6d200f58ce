"""What the broker refuses, as the SDK's own errors, at once."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
)

from tests.clients.python.scenarios.moves import connect, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.python.trial import Broker

AT_ONCE_S = 5


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


async def error_not_found_operations(broker: Broker) -> None:
    nowhere, topic = broker.name("nowhere"), broker.topic()
    due = broker.now() + timedelta(hours=1)
    async with connect(broker) as client:
        sender, receiver = client.get_queue_sender(nowhere), client.get_queue_receiver(nowhere)
        publisher = client.get_topic_sender(nowhere)
        subscriber = client.get_subscription_receiver(topic, "nowhere")
        named = client.get_queue_receiver(nowhere, session_id="one")
        following = client.get_queue_receiver(nowhere, session_id=NEXT_AVAILABLE_SESSION)
        message = ServiceBusMessage("x")
        calls: dict[str, Callable[[], Any]] = {
            "send": lambda: sender.send_messages(message),
            "schedule": lambda: sender.schedule_messages(message, due),
            "cancel": lambda: sender.cancel_scheduled_messages(1),
            "publish": lambda: publisher.send_messages(message),
            "receive": lambda: receiver.receive_messages(max_wait_time=1),
            "peek": receiver.peek_messages,
            "fetch": lambda: receiver.receive_deferred_messages(1),
            "receive from a subscription": lambda: subscriber.receive_messages(max_wait_time=1),
            "peek in a subscription": subscriber.peek_messages,
            "accept a session": lambda: named.receive_messages(max_wait_time=1),
            "accept any session": lambda: following.receive_messages(max_wait_time=1),
        }
        await _all_refused(MessagingEntityNotFoundError, calls)
    async with ServiceBusAdministrationClient.from_connection_string(
        broker.admin_connection_string, connection_verify=broker.authority_file
    ) as admin:
        calls = {
            "get a queue": lambda: admin.get_queue(nowhere),
            "count a queue": lambda: admin.get_queue_runtime_properties(nowhere),
            "delete a queue": lambda: admin.delete_queue(nowhere),
            "get a topic": lambda: admin.get_topic(nowhere),
            "delete a topic": lambda: admin.delete_topic(nowhere),
            "get a subscription": lambda: admin.get_subscription(topic, nowhere),
            "create a subscription": lambda: admin.create_subscription(nowhere, "sub"),
            "get a rule": lambda: admin.get_rule(topic, nowhere, "rule"),
            "create a rule": lambda: admin.create_rule(topic, nowhere, "rule"),
        }
        await _all_refused(ResourceNotFoundError, calls)


async def _all_refused(kind: type[Exception], calls: dict[str, Callable[[], Any]]) -> None:
    wrong = []
    for name, call in calls.items():
        began_s = time.monotonic()
        try:
            await call()
            wrong.append(f"{name}: not refused")
        except kind:
            pass
        except Exception as error:  # noqa: BLE001 -- whatever else it is, it is told
            wrong.append(f"{name}: {error!r}")
        took_s = time.monotonic() - began_s
        if took_s > AT_ONCE_S:
            wrong.append(f"{name}: after {took_s:.1f} s")
    assert not wrong, "\n".join(wrong)


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
