"""Ways to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from tests.clients.python.scenarios.moves import there_and_back

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def connect_emulator_string(broker: Broker) -> None:
    async with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        await there_and_back(client, broker.queue())


async def connect_tls(broker: Broker) -> str:
    async with ServiceBusClient.from_connection_string(
        broker.tls_connection_string,
        custom_endpoint_address=f"sb://localhost:{broker.amqp_port}",
        connection_verify=broker.authority_file,
    ) as client:
        await there_and_back(client, broker.queue())
    return "in TLS the SDK takes the port from custom_endpoint_address only"


async def connect_websocket(broker: Broker) -> None:
    async with ServiceBusClient.from_connection_string(
        broker.tls_connection_string,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://localhost:{broker.http_port}",
        connection_verify=broker.authority_file,
    ) as client:
        await there_and_back(client, broker.queue())
