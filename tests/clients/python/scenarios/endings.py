"""The end of a connection, wanted and unwanted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.clients.python.scenarios.moves import connect, send, take

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker

CLOSING_LIMIT_S = 3


async def reconnect_after_restart(broker: Broker) -> None:
    """With the SDK's own retries, which a user has unless they are switched off."""
    queue = broker.queue()
    async with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("before"))
        assert ["before"] == await take(receiver, 1)
        await sender.send_messages(ServiceBusMessage("kept"))
        broker.restart()
        await sender.send_messages(ServiceBusMessage("after"))
        assert ["kept", "after"] == await take(receiver, 2)


async def clean_close(broker: Broker) -> None:
    queue = broker.queue()
    before = broker.metric("peeklock_connections")
    client = connect(broker)
    await send(client, queue, "a", "b")
    receiver = client.get_queue_receiver(queue, prefetch_count=10)
    assert ["a"] == await take(receiver, 1)
    assert broker.metric("peeklock_connections") > before
    began_s = time.monotonic()
    await client.close()
    took_s = time.monotonic() - began_s
    assert took_s < CLOSING_LIMIT_S, f"closing took {took_s:.1f} s"
    assert before == broker.metric("peeklock_connections")
