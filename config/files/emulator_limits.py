"""What the official emulator refuses or ignores in a file of its own format.

Peeklock reads all of it. A user who exports a file for the emulator is warned, in one sentence for
each entity. The figures are those of the emulator's schema and documentation, version 2.0.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from config.files.emulator_reader import QUEUE, SUBSCRIPTION, TOPIC
from config.files.properties import written_properties
from config.files.yaml_writer import split_subscription
from config.model.definitions import (
    CorrelationFilter,
    QueueDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.durations import format_duration
from config.model.names import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from config.files.topology import Topology
    from config.model.definitions import EntityDefinition, RuleDefinition

ENTITIES_MAX = 50
"""Queues and topics together."""
SUBSCRIPTIONS_MAX = 50
RULES_MAX = 1_000
SQL_MAX_CHARACTERS = 1_024

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.\-/]*[A-Za-z0-9])?", re.ASCII)

_OF_ALL = {"DefaultMessageTimeToLive"}
_OF_QUEUES_AND_TOPICS = {"RequiresDuplicateDetection", "DuplicateDetectionHistoryTimeWindow"}
_OF_QUEUES_AND_SUBSCRIPTIONS = {
    "DeadLetteringOnMessageExpiration",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresSession",
}
_KNOWN: Mapping[type, set[str]] = {
    QueueDefinition: _OF_ALL | _OF_QUEUES_AND_TOPICS | _OF_QUEUES_AND_SUBSCRIPTIONS,
    TopicDefinition: _OF_ALL | _OF_QUEUES_AND_TOPICS,
    SubscriptionDefinition: _OF_ALL | _OF_QUEUES_AND_SUBSCRIPTIONS,
}
_DEFAULTS: Mapping[type, EntityDefinition] = {
    QueueDefinition: QUEUE,
    TopicDefinition: TOPIC,
    SubscriptionDefinition: SUBSCRIPTION,
}
_RANGES = {
    "DefaultMessageTimeToLive": (5 * 60_000, 60 * 60_000),
    "DuplicateDetectionHistoryTimeWindow": (5_000, 5 * 60_000),
    "LockDuration": (5_000, 5 * 60_000),
    "MaxDeliveryCount": (1, 10),
}
"""The ranges of durations, in milliseconds."""


def beyond_emulator(topology: Topology) -> Iterator[str]:
    """Returns what the official emulator would refuse or ignore, one sentence for each entity."""
    for name, entities in topology.namespaces.items():
        if name != DEFAULT_NAMESPACE:
            yield f"{name}: the official emulator has one namespace, {DEFAULT_NAMESPACE}"
        yield from _beyond_counts(name, entities)
        for path, definition in entities.items():
            if found := list(_beyond(path, definition)):
                yield f"{path}: the official emulator {'; '.join(found)}"


def _beyond_counts(name: str, entities: Mapping[str, EntityDefinition]) -> Iterator[str]:
    subscriptions: Counter[str] = Counter()
    others = 0
    for path, definition in entities.items():
        if isinstance(definition, SubscriptionDefinition):
            subscriptions[split_subscription(path)[0].casefold()] += 1
        else:
            others += 1
    if others > ENTITIES_MAX:
        yield (
            f"{name}: the official emulator takes {ENTITIES_MAX} queues and topics; "
            f"there are {others}"
        )
    for path, definition in entities.items():
        if isinstance(definition, TopicDefinition):
            count = subscriptions[path.casefold()]
            if not 1 <= count <= SUBSCRIPTIONS_MAX:
                yield (
                    f"{path}: the official emulator takes 1 to {SUBSCRIPTIONS_MAX} subscriptions "
                    f"of a topic; there are {count}"
                )


def _beyond(path: str, definition: EntityDefinition) -> Iterator[str]:
    is_subscription = isinstance(definition, SubscriptionDefinition)
    name = split_subscription(path)[1] if is_subscription else path
    if not _NAME.fullmatch(name):
        yield "takes letters, digits and . - _ / in names"
    kind = type(definition)
    unknown = []
    for one, written in written_properties(definition, _DEFAULTS[kind]):
        if one.name not in _KNOWN[kind]:
            unknown.append(one.name)
        elif one.name in _RANGES:
            yield from _beyond_range(one.name, getattr(definition, one.field), written)
    if unknown:
        yield f"overlooks {', '.join(unknown)}"
    if isinstance(definition, SubscriptionDefinition):
        yield from _beyond_rules(definition.rules)


def _beyond_range(name: str, value: int, written: object) -> Iterator[str]:
    lowest, highest = _RANGES[name]
    if name == "MaxDeliveryCount":
        if not lowest <= value <= highest:
            yield f"takes {name} from {lowest} to {highest}, not {written}"
    elif not lowest <= value <= highest or value % 1000:
        bounds = f"{format_duration(lowest)} to {format_duration(highest)}"
        yield f"takes {name} from {bounds} in whole seconds, not {written}"


def _beyond_rules(rules: tuple[RuleDefinition, ...]) -> Iterator[str]:
    if len(rules) > RULES_MAX:
        yield f"takes {RULES_MAX} rules, not {len(rules)}"
    for rule in rules:
        if rule.name != "$Default" and not _NAME.fullmatch(rule.name):
            yield f"takes letters, digits and . - _ in the name of the rule {rule.name!r}"
        texts = [rule.filter.expression] if isinstance(rule.filter, SqlFilter) else []
        texts += [rule.action.expression] if rule.action is not None else []
        if any(len(text) > SQL_MAX_CHARACTERS for text in texts):
            yield f"takes SQL of {SQL_MAX_CHARACTERS} characters, and the rule {rule.name!r} has more"
        if isinstance(rule.filter, CorrelationFilter) and any(
            not isinstance(value, str) for value in rule.filter.properties.values()
        ):
            yield f"may compare texts only, and the rule {rule.name!r} has other values"
