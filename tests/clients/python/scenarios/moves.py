"""Small moves that many scenarios make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

    from tests.clients.python.trial import Broker

WAIT_S = 10
"""Long enough for what must come."""
NOTHING_S = 0.5
"""How long to look for what must not come."""


def connect(broker: Broker, **options: Any) -> ServiceBusClient:
    """A client that tells at once what went wrong, instead of trying again."""
    return ServiceBusClient.from_connection_string(
        broker.connection_string, **{"retry_total": 0, **options}
    )


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


async def send(client: ServiceBusClient, queue: str, *texts: str, **properties: Any) -> None:
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(text, **properties) for text in texts])


async def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many, however many calls it takes."""
    received: list[ServiceBusReceivedMessage] = []
    while len(received) < count:
        more = await receiver.receive_messages(count - len(received), max_wait_time=WAIT_S)
        assert more, f"only {len(received)} of {count} messages came"
        received += more
    return received


async def take(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """The bodies of so many messages, which are completed."""
    messages = await receive(receiver, count)
    for message in messages:
        await receiver.complete_message(message)
    return bodies(messages)


async def expect_nothing(receiver: ServiceBusReceiver) -> None:
    found = await receiver.receive_messages(1, max_wait_time=NOTHING_S)
    assert not found, f"found {found[0]!r}"


async def expect_refusal(
    kinds: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any]
) -> None:
    """The call must fail with one of the SDK's own errors."""
    try:
        await call()
    except kinds:
        return
    raise AssertionError("it was not refused")


async def there_and_back(client: ServiceBusClient, queue: str) -> None:
    """One message is sent, received and completed."""
    await send(client, queue, "hello")
    async with client.get_queue_receiver(queue) as receiver:
        assert ["hello"] == await take(receiver, 1)
