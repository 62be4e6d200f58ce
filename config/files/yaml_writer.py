"""Writes our own form of the config file. `yaml_reader.py` reads it as the same topology.

Writes only what differs from the defaults of Service Bus. The result is plain data; the caller writes the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.files.properties import written_properties
from config.files.typed_values import write_value
from config.model.definitions import (
    DEFAULT_LOCK_DURATION_MS,
    RIGHTS,
    CorrelationFilter,
    FalseFilter,
    QueueDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.names import DEFAULT_NAMESPACE, SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from config.files.topology import Topology
    from config.model.definitions import AuthorizationRule, EntityDefinition, RuleDefinition


def yaml_form(
    topology: Topology, default_lock_duration_ms: int = DEFAULT_LOCK_DURATION_MS
) -> dict[str, Any]:
    """Returns the content of a file. A lock duration is left out only if every broker has the same default."""
    is_usual = default_lock_duration_ms == DEFAULT_LOCK_DURATION_MS
    left_out_ms = DEFAULT_LOCK_DURATION_MS if is_usual else 0
    document: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for number, (name, entities) in enumerate(topology.namespaces.items()):
        rules = topology.authorization_rules.get(name, ())
        namespace = _namespace(entities, rules, left_out_ms)
        if number == 0 and name == DEFAULT_NAMESPACE:
            # Written even if it is empty: else another namespace would be used for any host name.
            document |= namespace or {"queues": {}}
        else:
            others[name] = namespace
    return document | ({"namespaces": others} if others else {})


def entity_form(definition: EntityDefinition) -> dict[str, Any]:
    """Returns the properties and rules of one entity that differ from the defaults of Service Bus, without its keys."""
    default = type(definition)()
    members = {one.snake_name: value for one, value in written_properties(definition, default)}
    if isinstance(definition, SubscriptionDefinition) and not takes_everything(definition.rules):
        return {**members, "rules": {rule.name: rule_form(rule) for rule in definition.rules}}
    return members


def _namespace(
    entities: Mapping[str, EntityDefinition],
    rules: Sequence[AuthorizationRule],
    lock_duration_left_out_ms: int,
) -> dict[str, Any]:
    queue_default = QueueDefinition(lock_duration_ms=lock_duration_left_out_ms)
    subscription_default = SubscriptionDefinition(lock_duration_ms=lock_duration_left_out_ms)
    queues: dict[str, Any] = {}
    topics: dict[str, Any] = {}
    for path, definition in entities.items():
        if isinstance(definition, QueueDefinition):
            queues[path] = _properties(definition, queue_default)
        elif isinstance(definition, TopicDefinition):
            topics[path] = _properties(definition, TopicDefinition())
    spelled = {path.casefold(): path for path in topics}
    for path, definition in entities.items():
        if isinstance(definition, SubscriptionDefinition):
            topic, name = split_subscription(path)
            members = _properties(definition, subscription_default)
            if not takes_everything(definition.rules):
                members["rules"] = {rule.name: rule_form(rule) for rule in definition.rules}
            topics[spelled[topic.casefold()]].setdefault("subscriptions", {})[name] = members
    parts = {"queues": queues, "topics": topics, "authorization_rules": _authorization(rules)}
    return {name: part for name, part in parts.items() if part}


def _properties(definition: EntityDefinition, default: EntityDefinition) -> dict[str, Any]:
    members: dict[str, Any] = {
        one.snake_name: value for one, value in written_properties(definition, default)
    }
    rules = getattr(definition, "authorization_rules", ())
    if rules:
        members["authorization_rules"] = _authorization(rules)
    return members


def _authorization(rules: Sequence[AuthorizationRule]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for rule in rules:
        members: dict[str, Any] = {
            "rights": [right for right in RIGHTS if right in rule.rights],
            "primary_key": rule.primary_key,
        }
        if rule.secondary_key:
            members["secondary_key"] = rule.secondary_key
        written[rule.name] = members
    return written


def rule_form(rule: RuleDefinition) -> dict[str, Any]:
    """Returns a rule without its name."""
    members: dict[str, Any] = {}
    match rule.filter:
        case SqlFilter(expression, parameters):
            members["sql_filter"] = expression
            if parameters:
                members["parameters"] = _values(parameters)
        case CorrelationFilter():
            members["correlation_filter"] = _correlation(rule.filter)
        case FalseFilter():
            members["false_filter"] = None
        case _:
            members["true_filter"] = None
    if rule.action is not None:
        members["action"] = rule.action.expression
        if rule.action.parameters:
            members["action_parameters"] = _values(rule.action.parameters)
    return members


def _correlation(filter_: CorrelationFilter) -> dict[str, Any]:
    members: dict[str, Any] = {one.attribute: value for one, value in filter_.set_fields()}
    if filter_.properties:
        members["properties"] = _values(filter_.properties)
    return members


def _values(values: Mapping[str, object]) -> dict[str, Any]:
    return {str(name): write_value(value) for name, value in values.items()}


def split_subscription(path: str) -> tuple[str, str]:
    """Returns the topic and the name."""
    topic, name = path[: path.rindex("/")], path[path.rindex("/") + 1 :]
    return topic[: -len(SUBSCRIPTIONS) - 1], name


def takes_everything(rules: Sequence[RuleDefinition]) -> bool:
    """Returns whether these are the default rules of a subscription."""
    default = SubscriptionDefinition().rules
    return [(rule.name, rule.filter, rule.action) for rule in rules] == [
        (rule.name, rule.filter, rule.action) for rule in default
    ]
