"""Python's stock messaging client over WebSocket, against a whole broker."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

from tests.http.client import queue_entry, request
from tests.support.server import BrokerProcess


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated")  # the client's own doing
async def test_messages_go_both_ways_through_a_websocket():
    """Small ones in numbers, and one that takes many frames; each is completed."""
    with BrokerProcess() as broker:
        assert 201 == request(broker.http_port, "PUT", "/queue", queue_entry()).status
        async with ServiceBusClient.from_connection_string(
            broker.admin_connection_string,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=f"sb://127.0.0.1:{broker.http_port}",
        ) as client:
            async with client.get_queue_sender("queue") as sender:
                await sender.send_messages([ServiceBusMessage(str(n)) for n in range(50)])
                await sender.send_messages(ServiceBusMessage("x" * 900_000))
            bodies: list[str] = []
            async with client.get_queue_receiver("queue") as receiver:
                while len(bodies) < 51:
                    for message in await receiver.receive_messages(51, max_wait_time=10):
                        bodies.append(str(message))
                        await receiver.complete_message(message)
        assert [*map(str, range(50)), "x" * 900_000] == bodies
