"""The SDK's administration client."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import (
    CorrelationRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.clients.python.scenarios.moves import connect, receive, send
from tests.clients.python.trial import INSTANCE, expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


WRITTEN_BY_OTHERS = {
    "when": "dateTime 2030-01-02T03:04:05.1234567Z",
    "long": "duration PT1.1234567S",
    "most": "double INF",
    "least": "double -INF",
    "none": "double NaN",
}
"""Values of filters, to the last digit that other clients can write."""


def _administer(broker: Broker) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker.admin_connection_string, connection_verify=broker.authority_file
    )


async def admin_queue_crud(broker: Broker) -> None:
    name = broker.name("queue")
    async with _administer(broker) as admin:
        created = await admin.create_queue(
            name,
            lock_duration=timedelta(seconds=45),
            max_delivery_count=7,
            requires_session=True,
            default_message_time_to_live=timedelta(days=2),
            user_metadata="café & <metadata>",
        )
        expect(timedelta(seconds=45), created.lock_duration, "lock duration")
        expect("café & <metadata>", created.user_metadata, "metadata")
        try:
            await admin.create_queue(name)
            raise AssertionError("created twice")
        except ResourceExistsError:
            pass
        read = await admin.get_queue(name)
        expect((7, True), (read.max_delivery_count, read.requires_session), "properties")
        read.lock_duration = timedelta(seconds=20)
        await admin.update_queue(read, max_delivery_count=3)
        again = await admin.get_queue(name)
        expect(
            (timedelta(seconds=20), 3), (again.lock_duration, again.max_delivery_count), "updated"
        )
        expect(timedelta(days=2), again.default_message_time_to_live, "what was not updated")
        assert name in [queue.name async for queue in admin.list_queues()]
        await admin.delete_queue(name)
        try:
            await admin.get_queue(name)
            raise AssertionError("found after it was deleted")
        except ResourceNotFoundError:
            pass


async def admin_topic_crud(broker: Broker) -> None:
    name = broker.name("topic")
    async with _administer(broker) as admin:
        created = await admin.create_topic(
            name, max_size_in_megabytes=2048, requires_duplicate_detection=True
        )
        expect(
            (2048, True), (created.max_size_in_megabytes, created.requires_duplicate_detection), ""
        )
        created.default_message_time_to_live = timedelta(hours=3)
        await admin.update_topic(created)
        read = await admin.get_topic(name)
        expect(timedelta(hours=3), read.default_message_time_to_live, "time to live")
        assert name in [topic.name async for topic in admin.list_topics()]
        await admin.delete_topic(name)
        assert name not in [topic.name async for topic in admin.list_topics()]


async def admin_subscription_crud(broker: Broker) -> None:
    topic = broker.topic()
    async with _administer(broker) as admin:
        created = await admin.create_subscription(
            topic, "sub", lock_duration=timedelta(seconds=50), max_delivery_count=4
        )
        expect((timedelta(seconds=50), 4), (created.lock_duration, created.max_delivery_count), "")
        created.dead_lettering_on_message_expiration = True
        await admin.update_subscription(topic, created)
        read = await admin.get_subscription(topic, "sub")
        assert read.dead_lettering_on_message_expiration
        names = [one.name async for one in admin.list_subscriptions(topic)]
        expect(["sub"], names, "names")
        await admin.delete_subscription(topic, "sub")
        assert [] == [one.name async for one in admin.list_subscriptions(topic)]


async def admin_rule_crud(broker: Broker) -> None:
    topic = broker.topic("sub")
    async with _administer(broker) as admin:
        default = await admin.get_rule(topic, "sub", "$Default")
        assert isinstance(default.filter, TrueRuleFilter)
        await admin.create_rule(
            topic,
            "sub",
            "sql",
            filter=SqlRuleFilter("size > @limit", {"@limit": 3}),
            action=SqlRuleAction("SET seen = 'yes'"),
        )
        sql = await admin.get_rule(topic, "sub", "sql")
        assert isinstance(sql.filter, SqlRuleFilter)
        expect("size > @limit", sql.filter.sql_expression, "filter")
        expect({"@limit": 3}, sql.filter.parameters, "parameters")
        assert isinstance(sql.action, SqlRuleAction)
        expect("SET seen = 'yes'", sql.action.sql_expression, "action")
        sql.filter = CorrelationRuleFilter(label="order", properties={"region": "eu"})
        await admin.update_rule(topic, "sub", sql)
        changed = await admin.get_rule(topic, "sub", "sql")
        assert isinstance(changed.filter, CorrelationRuleFilter)
        expect(("order", {"region": "eu"}), (changed.filter.label, changed.filter.properties), "")
        expect(
            {"$Default", "sql"},
            {rule.name async for rule in admin.list_rules(topic, "sub")},
            "rules",
        )
        await admin.delete_rule(topic, "sub", "sql")
        expect(["$Default"], [rule.name async for rule in admin.list_rules(topic, "sub")], "rules")


async def rule_value_precision(broker: Broker) -> str:
    topic = broker.topic("sub")
    broker.only_rule(topic, "sub", "SqlFilter", _parameters(**WRITTEN_BY_OTHERS))
    async with _administer(broker) as admin:
        others = await admin.get_rule(topic, "sub", "only")
        assert isinstance(others.filter, SqlRuleFilter)
        found = others.filter.parameters or {}
        expect(datetime(2030, 1, 2, 3, 4, 5, 123456, UTC), found["@when"], "time")
        # The client itself rounds what it reads to microseconds.
        expect(timedelta(seconds=1, microseconds=123457), found["@long"], "duration")
        expect((math.inf, -math.inf), (found["@most"], found["@least"]), "doubles without end")
        assert math.isnan(found["@none"])
        values: dict[str, Any] = {
            "@long": timedelta(days=1, microseconds=1),
            "@third": 1 / 3,
            "@huge": 1.7976931348623157e308,
            "@number": 9007199254740993,
        }
        rule = SqlRuleFilter("a = @third", values)
        await admin.create_rule(topic, "sub", "own", filter=rule)
        own = await admin.get_rule(topic, "sub", "own")
        assert isinstance(own.filter, SqlRuleFilter)
        expect(values, own.filter.parameters, "own values")
    return "the SDK writes times in whole seconds, and infinity in a way of its own"


def _parameters(**values: str) -> str:
    """Parameters of an SQL filter as other clients write them."""
    elements = (
        f"<KeyValueOfstringanyType><Key>@{name}</Key><Value i:type='d:{kind}'"
        f" xmlns:d='http://www.w3.org/2001/XMLSchema' xmlns:i='{INSTANCE}'>{text}</Value>"
        "</KeyValueOfstringanyType>"
        for name, (kind, text) in ((name, value.split()) for name, value in values.items())
    )
    return f"<SqlExpression>a = @most</SqlExpression><Parameters>{''.join(elements)}</Parameters>"


async def admin_runtime_properties(broker: Broker) -> None:
    queue = broker.queue()
    async with _administer(broker) as admin, connect(broker) as client:
        await send(client, queue, "bad", "good", "fine")
        async with client.get_queue_sender(queue) as sender:
            due = broker.now().replace(year=broker.now().year + 1, day=1)
            await sender.schedule_messages(ServiceBusMessage("later"), due)
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            await receiver.dead_letter_message(message)
        counts = await admin.get_queue_runtime_properties(queue)
        expect(
            (2, 1, 1, 4),
            (
                counts.active_message_count,
                counts.scheduled_message_count,
                counts.dead_letter_message_count,
                counts.total_message_count,
            ),
            "active, scheduled, dead, total",
        )
        assert counts.size_in_bytes
        space = await admin.get_namespace_properties()
        assert space.name
