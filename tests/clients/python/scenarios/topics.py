"""Topics: every subscription its copy, and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from tests.clients.python.scenarios.moves import connect, expect_nothing, receive, take
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

    from tests.clients.python.trial import Broker


async def _publish(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(list(messages))


async def topic_true_filter(broker: Broker) -> None:
    topic = broker.topic("one", "two")
    async with connect(broker) as client:
        await _publish(client, topic, ServiceBusMessage("a"), ServiceBusMessage("b"))
        for name in ("one", "two"):
            async with client.get_subscription_receiver(topic, name) as receiver:
                assert ["a", "b"] == await take(receiver, 2)


async def topic_sql_filter(broker: Broker) -> None:
    topic = broker.topic("large")
    async with (
        ServiceBusAdministrationClient.from_connection_string(
            broker.admin_connection_string, connection_verify=broker.authority_file
        ) as admin,
        connect(broker) as client,
    ):
        await admin.create_rule(
            topic,
            "large",
            "only",
            filter=SqlRuleFilter("size > 10 AND sys.Label LIKE 'o%'"),
            action=SqlRuleAction("SET size = size + 1; SET sys.Label = 'seen'"),
        )
        await admin.delete_rule(topic, "large", "$Default")
        await _publish(
            client,
            topic,
            ServiceBusMessage("small", subject="o", application_properties={"size": 5}),
            ServiceBusMessage("big", subject="order", application_properties={"size": 50}),
            ServiceBusMessage("other", subject="x", application_properties={"size": 50}),
        )
        async with client.get_subscription_receiver(topic, "large") as receiver:
            (message,) = await receive(receiver, 1)
            expect("big", str(message), "what matches")
            expect("seen", message.subject, "subject after the action")
            properties = message.application_properties or {}
            expect(51, properties[b"size"], "property after the action")
            await receiver.complete_message(message)
            await expect_nothing(receiver)


async def topic_correlation_filter(broker: Broker) -> None:
    topic = broker.topic("eu")
    wanted = (
        "<Label>order</Label><Properties><KeyValueOfstringanyType><Key>region</Key>"
        '<Value i:type="d:string" xmlns:d="http://www.w3.org/2001/XMLSchema" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">eu</Value>'
        "</KeyValueOfstringanyType></Properties>"
    )
    broker.only_rule(topic, "eu", "CorrelationFilter", wanted)
    async with connect(broker) as client:
        await _publish(
            client,
            topic,
            ServiceBusMessage("us", subject="order", application_properties={"region": "us"}),
            ServiceBusMessage("eu", subject="order", application_properties={"region": "eu"}),
            ServiceBusMessage("none", subject="order"),
            ServiceBusMessage("bill", subject="bill", application_properties={"region": "eu"}),
        )
        async with client.get_subscription_receiver(topic, "eu") as receiver:
            assert ["eu"] == await take(receiver, 1)
            await expect_nothing(receiver)
