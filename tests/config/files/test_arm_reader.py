"""ARM templates: their entities, and what is told about everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.core.routing.compiled_rule import rule_error
from config.files.arm_reader import is_arm_template, read_arm_template
from config.files.document import parse_json
from config.files.mistakes import ConfigReport
from config.model.definitions import (
    CorrelationFilter,
    QueueDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from config.model.limits import RELAXED
from tests.config.reading import mistakes

NAMESPACE = "Microsoft.ServiceBus/namespaces"

TEMPLATE = """{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "parameters": {
    "namespaceName": {"type": "string"},
    "queueName": {"type": "string", "defaultValue": "orders"},
    "maxDelivery": {"type": "int", "defaultValue": 7}
  },
  "variables": {
    "fullQueue": "[concat(parameters('namespaceName'), '/', parameters('queueName'))]",
    "settings": {"lock": "PT45S"}
  },
  "resources": [
    {
      "type": "Microsoft.ServiceBus/namespaces",
      "apiVersion": "2022-10-01-preview",
      "name": "[parameters('namespaceName')]",
      "location": "[resourceGroup().location]",
      "sku": {"name": "Standard"},
      "properties": {"disableLocalAuth": true}
    },
    {
      "type": "Microsoft.ServiceBus/namespaces/queues",
      "name": "[variables('fullQueue')]",
      "dependsOn": ["[resourceId('Microsoft.ServiceBus/namespaces', parameters('namespaceName'))]"],
      "properties": {
        "lockDuration": "[variables('settings').lock]",
        "maxDeliveryCount": "[parameters('maxDelivery')]",
        "requiresSession": true,
        "enableExpress": true,
        "duplicateDetectionHistoryTimeWindow": "P99D",
        "forwardDeadLetteredMessagesTo": "dead"
      }
    },
    {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "[format('{0}/{1}', parameters('namespaceName'), 'dead')]"},
    {
      "type": "Microsoft.ServiceBus/namespaces/topics",
      "name": "[concat(parameters('namespaceName'), '/events')]",
      "resources": [
        {
          "type": "subscriptions",
          "name": "audit",
          "properties": {"maxDeliveryCount": 3},
          "resources": [
            {
              "type": "rules",
              "name": "red",
              "properties": {
                "filterType": "SqlFilter",
                "sqlFilter": {"sqlExpression": "color = 'red'", "compatibilityLevel": 20},
                "action": {"sqlExpression": "SET seen = 1"}
              }
            },
            {
              "type": "rules",
              "name": "broken",
              "properties": {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "color ="}}
            }
          ]
        },
        {
          "type": "subscriptions",
          "name": "all",
          "resources": [
            {
              "type": "rules",
              "name": "$Default",
              "properties": {
                "filterType": "CorrelationFilter",
                "correlationFilter": {"label": "x", "properties": {"a": "b"}}
              }
            }
          ]
        }
      ]
    },
    {"type": "Microsoft.ServiceBus/namespaces/authorizationRules", "name": "[concat(parameters('namespaceName'), '/send')]"},
    {"type": "Microsoft.Storage/storageAccounts", "name": "other"}
  ]
}
"""


def read(template: str | dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the entities, and what is told as `line: text`."""
    text = template if isinstance(template, str) else json.dumps(template, indent=1)
    root = parse_json(text, "main.json")
    assert is_arm_template(root)
    report = ConfigReport()
    topology = read_arm_template(root, RELAXED, report, rule_error)
    entities = {path: one for each in topology.namespaces.values() for path, one in each.items()}
    told = sorted([*report.mistakes, *report.warnings], key=lambda one: one.line or 0)
    return entities, [f"{one.line}: {one.text}" for one in told]


def test_entities_of_a_template_are_read():
    """With parameters, variables, nested resources and rules."""
    entities, _ = read(TEMPLATE)
    orders = entities["orders"]
    assert isinstance(orders, QueueDefinition)
    assert (45_000, 7, True, "dead") == (
        orders.lock_duration_ms,
        orders.max_delivery_count,
        orders.requires_session,
        orders.forward_dead_letters_to,
    )
    assert isinstance(entities["events"], TopicDefinition)
    audit = entities["events/Subscriptions/audit"]
    assert isinstance(audit, SubscriptionDefinition)
    assert (3, ["$Default", "red"]) == (
        audit.max_delivery_count,
        [rule.name for rule in audit.rules],
    )
    assert (TrueFilter(), SqlFilter("color = 'red'")) == tuple(one.filter for one in audit.rules)
    assert SqlAction("SET seen = 1") == audit.rules[1].action
    (default,) = entities["events/Subscriptions/all"].rules
    assert CorrelationFilter(label="x", properties={"a": "b"}) == default.filter


def test_what_is_not_carried_over_is_told_by_line():
    """Everything else, once."""
    _, told = read(TEMPLATE)
    expected = [
        "4: has no default value: its name 'namespaceName' is used as value",
        "18: the tier 'Standard' is a setting of the broker: --tier Standard",
        "19: disableLocalAuth of a namespace is not carried over",
        "30: 'P99D' is not allowed; expected a duration from PT5S to P7D",
        "39: has the rule $Default as well, which takes every message",
        "53: the rule 'broken' is left out: ",
        "76: the rule 'namespaceName/send' is left out: a template has no keys",
        "77: a resource of type 'Microsoft.Storage/storageAccounts' is left out",
    ]
    assert len(expected) == len(told), told
    for start, found in zip(expected, told, strict=True):
        assert found.startswith(start), found


def resource(kind: str, name: str, **properties: Any) -> dict[str, Any]:
    return {"type": f"{NAMESPACE}/{kind}", "name": name, "properties": properties}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ns/q", ["q"]),
        ("ns/a~b", ["a/b"]),
        ("[format('{0}/q', 'ns')]", ["q"]),
        ("[toLower(concat('NS', '/', 'Q'))]", ["q"]),
        ("[concat('ns', uniqueString(resourceGroup().id), '/q')]", ["q"]),
        ("[if(equals(1, 1), 'ns/one', 'ns/other')]", ["one"]),
        ("[concat('ns/it''s')]", []),
        ("[reference('x').y]", []),
        ("[parameters('unknown')]", []),
        ("[variables('loop')]", []),
        ("[concat('ns/q'", []),
        ("q", []),
        ("ns/a b", []),
    ],
)
def test_names_are_evaluated_or_told(name, found):
    """An entity without a name is left out, and the line says why."""
    template = {
        "variables": {"loop": "[variables('loop')]"},
        "resources": [resource("queues", name), resource("queues", "ns/there")],
    }
    entities, told = read(template)
    assert {*found, "there"} == set(entities)
    assert bool(told) == (not found)


def test_named_resources_and_conditions():
    """Newer templates have a mapping of resources."""
    template = {
        "resources": {
            "one": {**resource("queues", "ns/one"), "condition": False},
            "two": resource("queues", "ns/two"),
        }
    }
    entities, told = read(template)
    assert (["two"], []) == (list(entities), told)


def looped(kind: str, name: str, count: object, **properties: Any) -> dict[str, Any]:
    return {**resource(kind, name, **properties), "copy": {"name": "loop", "count": count}}


@pytest.mark.parametrize(
    ("name", "count", "found"),
    [
        (
            "[concat('ns/', parameters('names')[copyIndex()])]",
            "[length(parameters('names'))]",
            "ab",
        ),
        ("[format('ns/{0}', copyIndex(1))]", 3, "123"),
        ("[format('ns/{0}', copyIndex('loop', 5))]", "[sub(add(1, 2), 1)]", "56"),
        ("[format('ns/{0}', createArray('x', 'y')[copyIndex('LOOP')])]", "[mul(2, 1)]", "xy"),
        ("ns/none", 0, ""),
    ],
)
def test_a_loop_makes_copies(name, count, found):
    template = {
        "parameters": {"names": {"type": "array", "defaultValue": ["a", "b"]}},
        "resources": [looped("queues", name, count)],
    }
    entities, told = read(template)
    assert (list(found), []) == (list(entities), told)


def test_loops_in_loops():
    """`copyIndex` is that of the inner one, unless it names another."""
    topic = looped("topics", "[format('ns/t{0}', copyIndex())]", 2)
    inner = looped("", "[format('s{0}{1}', copyIndex('outer'), copyIndex())]", 2)
    topic["copy"]["name"] = "outer"
    topic["resources"] = [{**inner, "type": "subscriptions"}]
    entities, _ = read({"resources": [topic]})
    assert [
        "t0", "t1",
        "t0/Subscriptions/s00", "t0/Subscriptions/s01",
        "t1/Subscriptions/s10", "t1/Subscriptions/s11",
    ] == list(entities)  # fmt: skip


@pytest.mark.parametrize("count", [None, -1, 801, True, "many", "[parameters('unknown')]"])
def test_a_loop_without_a_count_is_told(count):
    entities, told = read({"resources": [looped("queues", "ns/q", count)]})
    assert [] == list(entities)
    assert "is left out: a number from 0 to 800 is expected as its count" in "\n".join(told)


def test_a_nested_deployment_is_read():
    """It has the variables of the template around it, unless it says otherwise."""
    nested = {"template": {"resources": [resource("queues", "[variables('name')]")]}}
    other = {**nested, "expressionEvaluationOptions": {"scope": "inner"}}
    deployments = [
        {"type": "Microsoft.Resources/deployments", "name": str(number), "properties": one}
        for number, one in enumerate([nested, other, {"templateLink": {"uri": "https://x"}}])
    ]
    entities, told = read({"variables": {"name": "ns/q"}, "resources": deployments})
    assert ["q"] == list(entities)
    assert 2 == len(told)
    assert all("is left out: it has parameters of its own, or a link" in one for one in told)


def rules_of_one_subscription(*properties: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Returns the filters of the rules with these properties, and what is told."""
    rules = [
        resource("topics/subscriptions/rules", f"ns/t/s/r{n}", **one)
        for n, one in enumerate(properties)
    ]
    above = [resource("topics", "ns/t"), resource("topics/subscriptions", "ns/t/s")]
    entities, told = read({"resources": [*above, *rules]})
    default, *found = entities["t/Subscriptions/s"].rules
    assert "$Default" == default.name
    return [one.filter for one in found], [one for one in told if "'r" in one]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"filterType": "SqlFilter"},
        {"filterType": "SqlFilter", "sqlFilter": {}},
        {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": ""}},
        {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "[reference('x').y]"}},
        {"filterType": "CorrelationFilter", "correlationFilter": {"properties": {}}},
    ],
)
def test_a_rule_without_a_filter_is_told(properties):
    """Such a rule takes every message, which nobody may have meant."""
    found, told = rules_of_one_subscription(properties)
    assert [TrueFilter()] == found
    assert ["has no filter that can be read: it takes every message"] == [
        one.partition("the rule 'r0' ")[2] for one in told
    ]


def test_the_type_of_a_filter_chooses_between_two():
    filters = {"sqlFilter": {"sqlExpression": "a=1"}, "correlationFilter": {"label": "x"}}
    found, told = rules_of_one_subscription(
        {"filterType": "CorrelationFilter", **filters}, {"filterType": "SqlFilter", **filters}
    )
    assert ([CorrelationFilter(label="x"), SqlFilter("a=1")], []) == (found, told)


def test_subscriptions_and_rules_of_other_templates_are_told():
    """Their topic or subscription is not in this template, or has another kind."""
    rule = {"sqlFilter": {"sqlExpression": "a=1"}}
    entities, told = read(
        {
            "resources": [
                resource("queues", "ns/q"),
                resource("topics/subscriptions", "ns/q/s"),
                resource("topics/subscriptions", "ns/elsewhere/s"),
                resource("topics/subscriptions/rules", "ns/elsewhere/s/r", **rule),
                resource("topics", "ns/t"),
                resource("topics/subscriptions/rules", "ns/t/s/r", **rule),
            ]
        }
    )
    assert ["q", "t"] == list(entities)
    assert [
        "is left out: there is no topic 'q'",
        "is left out: there is no topic 'elsewhere'",
        "the rule 'r' is left out: there is no subscription 't/subscriptions/s'",
    ] == [one.partition(": ")[2] for one in told]


def test_a_template_is_no_config_file(tmp_path):
    """The mistake names the command that makes one of it."""
    path = tmp_path / "main.json"
    path.write_text(TEMPLATE)
    (mistake,) = mistakes(path)
    assert f"is an ARM template; `peeklock import {path} --output entities.yaml`" in mistake
    path.write_text('{"queues": {}, "resources": []}')
    (mistake,) = mistakes(path)
    assert "there is no such property" in mistake
