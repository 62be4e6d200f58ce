"""Writes the official emulator's Config.json. `emulator_reader.py` reads it as the same topology.

Writes only what differs from the defaults of that file. The form cannot express everything; each loss is returned as
one sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from config.files.emulator_reader import QUEUE, ROOT, SUBSCRIPTION, TOPIC
from config.files.properties import written_properties
from config.files.typed_values import write_value
from config.files.yaml_writer import split_subscription, takes_everything
from config.model.definitions import (
    CorrelationFilter,
    FalseFilter,
    QueueDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.files.topology import Topology
    from config.model.definitions import EntityDefinition, Filter, RuleDefinition

_PARAMETER_OR_QUOTED = re.compile(
    r"""@\w+|'(?:[^']|'')*'|"(?:[^"]|"")*"|\[(?:[^\]]|\]\])*\]""", re.ASCII
)

NOTHING = "nothing"
"""The name of a rule that matches nothing. It is written for a subscription without rules, because the reader adds
the default rule if no rule is listed."""


def emulator_form(topology: Topology) -> tuple[dict[str, Any], list[str]]:
    """Returns the content of the file, and one sentence for each thing that it cannot express."""
    writer = _Writer()
    namespaces = []
    for name, entities in topology.namespaces.items():
        if topology.authorization_rules.get(name):
            writer.losses.append(f"{name}: its authorization rules are left out")
        namespaces.append({"Name": name, **writer.namespace(entities)})
    form = {ROOT: {"Namespaces": namespaces, "Logging": {"Type": "Console"}}}
    return form, writer.losses


class _Writer:
    """One method for each level of the file."""

    def __init__(self) -> None:
        self.losses: list[str] = []

    def namespace(self, entities: Mapping[str, EntityDefinition]) -> dict[str, Any]:
        queues: list[dict[str, Any]] = []
        topics: dict[str, dict[str, Any]] = {}
        for path, definition in entities.items():
            if isinstance(definition, QueueDefinition):
                queues.append(self._entity(path, path, definition, QUEUE))
            elif isinstance(definition, TopicDefinition):
                topic = self._entity(path, path, definition, TOPIC)
                topics[path.casefold()] = {**topic, "Subscriptions": []}
        for path, definition in entities.items():
            if isinstance(definition, SubscriptionDefinition):
                topic_path, name = split_subscription(path)
                subscription = self._entity(path, name, definition, SUBSCRIPTION)
                if not takes_everything(definition.rules):
                    subscription["Rules"] = self._rules(path, definition)
                topics[topic_path.casefold()]["Subscriptions"].append(subscription)
        return {"Queues": queues, "Topics": list(topics.values())}

    def _entity(
        self, path: str, name: str, definition: EntityDefinition, default: EntityDefinition
    ) -> dict[str, Any]:
        if getattr(definition, "authorization_rules", ()):
            self.losses.append(f"{path}: its authorization rules are left out")
        properties = {one.name: value for one, value in written_properties(definition, default)}
        return {"Name": name, "Properties": properties}

    def _rules(self, path: str, definition: SubscriptionDefinition) -> list[dict[str, Any]]:
        if not definition.rules:
            self.losses.append(f"{path}: has no rules, and gets one that takes nothing")
            nothing = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=0"}}
            return [{"Name": NOTHING, "Properties": nothing}]
        return [
            {"Name": rule.name, "Properties": self._rule(f"{path}/Rules/{rule.name}", rule)}
            for rule in definition.rules
        ]

    def _rule(self, where: str, rule: RuleDefinition) -> dict[str, Any]:
        properties = self._filter(where, rule.filter)
        if rule.action is not None:
            action = self._sql(where, rule.action.expression, rule.action.parameters)
            properties["Action"] = {"SqlExpression": action}
        return properties

    def _filter(self, where: str, filter_: Filter) -> dict[str, Any]:
        if isinstance(filter_, CorrelationFilter):
            return {"FilterType": "Correlation", "CorrelationFilter": _correlation(filter_)}
        expression = "1=1"
        if isinstance(filter_, SqlFilter):
            expression = self._sql(where, filter_.expression, filter_.parameters)
        elif isinstance(filter_, FalseFilter):
            expression = "1=0"
        return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}

    def _sql(self, where: str, expression: str, parameters: Mapping[str, object]) -> str:
        """Returns an expression with the values of its parameters inserted."""
        literals = {name.lstrip("@").lower(): _literal(value) for name, value in parameters.items()}

        def replaced(match: re.Match[str]) -> str:
            name = match[0]
            if not name.startswith("@") or name[1:].lower() not in literals:
                return name
            literal = literals[name[1:].lower()]
            if literal is None:
                self.losses.append(f"{where}: the value of {name} cannot be written as SQL")
            return literal or name

        return _PARAMETER_OR_QUOTED.sub(replaced, expression)


def _literal(value: object) -> str | None:
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return repr(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return None


def _correlation(filter_: CorrelationFilter) -> dict[str, Any]:
    members: dict[str, Any] = {one.element: value for one, value in filter_.set_fields()}
    if filter_.properties:
        members["Properties"] = {
            name: write_value(value) for name, value in filter_.properties.items()
        }
    return members
