"""Topics, filters, and rules over AMQP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import int32

from tests.clients.proton.moves import (
    Manager,
    body,
    connect,
    expect_nothing,
    listen,
    receive,
    send,
    settle,
    take,
    text,
)
from tests.clients.python.trial import INSTANCE, expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


def topic_true_filter(broker: Broker) -> None:
    topic = broker.topic("one", "two")
    with connect(broker) as connection:
        send(connection, topic, "a", "b")
        for name in ("one", "two"):
            assert ["a", "b"] == take(listen(connection, f"{topic}/Subscriptions/{name}"), 2)


def topic_sql_filter(broker: Broker) -> None:
    topic = broker.topic("large")
    rule = (
        f'<Filter i:type="SqlFilter" xmlns:i="{INSTANCE}">'
        "<SqlExpression>size &gt; 10</SqlExpression></Filter>"
        f'<Action i:type="SqlRuleAction" xmlns:i="{INSTANCE}">'
        "<SqlExpression>SET size = size + 1</SqlExpression></Action>"
    )
    path = f"{topic}/Subscriptions/large"
    broker.put(f"{path}/Rules/only", "RuleDescription", rule)
    broker.delete(f"{path}/Rules/$Default")
    with connect(broker) as connection:
        for size in (5, 50):
            send(connection, topic, text(str(size), properties={"size": int32(size)}))
        receiver = listen(connection, path)
        ((message, delivery),) = receive(receiver, 1)
        expect(("50", 51), (body(message), message.properties["size"]), "what matches")
        settle(receiver, delivery)
        expect_nothing(receiver)


def topic_correlation_filter(broker: Broker) -> None:
    topic = broker.topic("orders")
    broker.only_rule(topic, "orders", "CorrelationFilter", "<Label>order</Label>")
    with connect(broker) as connection:
        send(connection, topic, text("bill", subject="bill"), text("order", subject="order"))
        receiver = listen(connection, f"{topic}/Subscriptions/orders")
        assert ["order"] == take(receiver, 1)
        expect_nothing(receiver)


def _rules(manager: Manager) -> list[str]:
    window: dict[str, Any] = {"top": int32(100), "skip": int32(0)}
    answer = manager.ask("com.microsoft:enumerate-rules", window)
    return sorted(one["rule-description"].value[2] for one in answer["rules"])


def rule_management(broker: Broker) -> None:
    topic = broker.topic("sub")
    with connect(broker) as connection:
        manager = Manager(connection, f"{topic}/Subscriptions/sub")
        expect(["$Default"], _rules(manager), "rules")
        description = {"sql-filter": {"expression": "size > 10"}, "rule-name": "large"}
        manager.ask(
            "com.microsoft:add-rule", {"rule-name": "large", "rule-description": description}
        )
        expect(["$Default", "large"], _rules(manager), "rules")
        manager.ask("com.microsoft:remove-rule", {"rule-name": "$Default"})
        expect(["large"], _rules(manager), "rules")
        for size in (5, 50):
            send(connection, topic, text(str(size), properties={"size": int32(size)}))
        receiver = listen(connection, f"{topic}/Subscriptions/sub")
        assert ["50"] == take(receiver, 1)
        expect_nothing(receiver)
