"""Small moves that many tests of the SDK make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

    from tests.sdk.conftest import Live

WAIT_S = 5
"""Long enough for what must come."""
NOTHING_S = 0.5
"""How long to look for what must not come."""


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """What the messages say, in order."""
    return [str(message) for message in messages]


def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages, however many calls it takes."""
    received: list[ServiceBusReceivedMessage] = []
    while len(received) < count:
        more = receiver.receive_messages(count - len(received), max_wait_time=WAIT_S)
        assert more, f"only {len(received)} of {count} messages came"
        received += more
    return received


def nothing(receiver: ServiceBusReceiver) -> bool:
    """True if no message comes for a while."""
    return receiver.receive_messages(1, max_wait_time=NOTHING_S) == []


def send(live: Live, queue: str, *texts: str, **properties: object) -> None:
    """Messages with the same properties, sent as one batch."""
    with live.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, **properties) for text in texts])
