"""The set-up of tests that send the frames of the .NET SDK: a broker, entities for one test, clients.

The frames themselves are in `dotnet_client` and `dotnet_links`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from protocol.codec import Array, ArrayCode, Int, Long, Symbol
from tests.sdk.conftest import Live
from tests.support.dotnet_client import DotNetClient
from tests.support.dotnet_links import message
from tests.support.message_sections import sections_of

if TYPE_CHECKING:
    from tests.support.dotnet_links import Received, Receiver
    from tests.support.server import BrokerProcess

SESSION_FILTER = Symbol("com.microsoft:session-filter")
_numbers = itertools.count(1)


class DotNetSetup:
    """A broker, entities for one test, and clients."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def queue(self, name: str = "queue", **properties: object) -> str:
        path = f"{name}-{next(_numbers)}"
        Live(self.broker).put(path, "QueueDescription", properties)
        return path

    def client(self) -> DotNetClient:
        return DotNetClient(self.broker.amqp_port)

    def locked_message(
        self, client: DotNetClient, body: bytes, **properties: bool | int | str
    ) -> tuple[str, Receiver, Received]:
        """Creates a queue with one message, and receives it. Returns the queue, the receiver and
        the locked message."""
        queue = self.queue("queue", **properties)
        send(client, queue, body)
        receiver = client.receiver(queue)
        (received,) = receiver.receive()
        return queue, receiver, received

    def lock_expires(self) -> None:
        self.broker.advance_clock(31_000)


def send(client: DotNetClient, queue: str, *bodies: bytes, **properties: Any) -> None:
    sender = client.sender(queue)
    for body in bodies:
        sender.send(message(body, **properties))


def bodies(received: list[Received]) -> list[bytes]:
    return [one.body for one in received]


def left_in(client: DotNetClient, queue: str) -> list[bytes]:
    """Returns the messages that a peek from the first sequence number shows."""
    request = {"from-sequence-number": Long(0), "message-count": Int(100)}
    answer = client.requests(queue).manage("peek-message", request)
    return [sections_of(one["message"])[0x75] for one in answer.get("messages", [])]


def complete_by_token(client: DotNetClient, queue: str, received: Received) -> None:
    """Complete a message by its lock token, over the management node of its queue."""
    tokens = Array(ArrayCode.UUID, [received.lock_token])
    request = {"disposition-status": "completed", "lock-tokens": tokens}
    client.requests(queue).manage("update-disposition", request)
