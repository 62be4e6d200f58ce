"""Topics through the stock SDK: every matching subscription gets its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.sdk.support import bodies, nothing, receive

if TYPE_CHECKING:
    from tests.sdk.conftest import Live

XSI = "http://www.w3.org/2001/XMLSchema-instance"


def sql(expression: str) -> str:
    return (
        f'<Filter i:type="SqlFilter" xmlns:i="{XSI}"><SqlExpression>{expression}</SqlExpression>'
        "</Filter>"
    )


def label(value: str) -> str:
    return f'<Filter i:type="CorrelationFilter" xmlns:i="{XSI}"><Label>{value}</Label></Filter>'


def test_each_subscription_gets_what_its_rules_select(live: Live) -> None:
    """True, SQL and correlation filters side by side on one topic."""
    topic = live.topic()
    live.subscription(topic, "all")
    live.subscription(topic, "large", rule=sql("quantity &gt; 100"))
    live.subscription(topic, "invoices", rule=label("invoice"))
    with live.client() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(
                [
                    ServiceBusMessage("small", application_properties={"quantity": 1}),
                    ServiceBusMessage("big", application_properties={"quantity": 500}),
                    ServiceBusMessage("bill", subject="invoice"),
                ]
            )
        found = {}
        for name, count in (("all", 3), ("large", 1), ("invoices", 1)):
            with client.get_subscription_receiver(topic, name) as receiver:
                messages = receive(receiver, count)
                found[name] = bodies(messages)
                for message in messages:
                    receiver.complete_message(message)
                assert nothing(receiver)
    assert {"all": ["small", "big", "bill"], "large": ["big"], "invoices": ["bill"]} == found


def test_a_subscription_is_a_queue_of_its_own(live: Live) -> None:
    """Settling on one subscription leaves the other's copy alone."""
    topic = live.topic()
    live.subscription(topic, "first")
    live.subscription(topic, "second")
    with live.client() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(ServiceBusMessage("news"))
        with client.get_subscription_receiver(topic, "first") as receiver:
            receiver.dead_letter_message(receive(receiver, 1)[0], reason="dull")
        with client.get_subscription_receiver(topic, "second") as receiver:
            assert ["news"] == bodies(receive(receiver, 1))
        with client.get_subscription_receiver(
            topic, "first", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            assert "dull" == receive(receiver, 1)[0].dead_letter_reason
