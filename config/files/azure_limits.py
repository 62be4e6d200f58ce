"""What Azure would refuse in the entities of a namespace, although the relaxed limits of the broker allow it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from config.files.document import Node
from config.files.properties import written_properties
from config.files.yaml_writer import split_subscription
from config.model.definitions import (
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.tier_features import missing_feature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from config.model.definitions import EntityDefinition, RuleDefinition
    from config.model.limits import Limits

    RuleError = Callable[[RuleDefinition, Limits], str | None]
    """Returns what is wrong with a rule, or None."""

_DEFAULTS: Mapping[type, EntityDefinition] = {
    QueueDefinition: QueueDefinition(),
    TopicDefinition: TopicDefinition(),
    SubscriptionDefinition: SubscriptionDefinition(),
}


def beyond_azure(
    entities: Mapping[str, EntityDefinition], limits: Limits, rule_error: RuleError
) -> Iterator[tuple[str, str]]:
    """Yields paths and sentences. `limits` are those of Azure in a tier. An empty path stands for the namespace."""
    subscriptions: Counter[str] = Counter()
    others = 0
    for path, definition in entities.items():
        if isinstance(definition, SubscriptionDefinition):
            subscriptions[split_subscription(path)[0]] += 1
        else:
            others += 1
        for sentence in _beyond(path, definition, limits, rule_error):
            yield path, sentence
    if others > limits.entities_per_namespace_max:
        most = limits.entities_per_namespace_max
        yield "", f"A namespace of Azure has at most {most} queues and topics, not {others}."
    for topic, count in subscriptions.items():
        if count > limits.subscriptions_per_topic_max:
            most = limits.subscriptions_per_topic_max
            yield topic, f"A topic of Azure has at most {most} subscriptions, not {count}."


def _beyond(
    path: str, definition: EntityDefinition, limits: Limits, rule_error: RuleError
) -> Iterator[str]:
    if missing := missing_feature(definition, limits):
        yield missing
    for one, written in written_properties(definition, _DEFAULTS[type(definition)]):
        try:
            one.read(Node(written, ""), limits)
        except ValueError as allowed:
            yield f"Azure expects {allowed} as {one.name}, not {written}."
    rules = len(getattr(definition, "authorization_rules", ()))
    if rules > limits.authorization_rules_per_entity_max:
        most = limits.authorization_rules_per_entity_max
        yield f"An entity of Azure has at most {most} authorization rules, not {rules}."
    if isinstance(definition, SubscriptionDefinition):
        yield from _beyond_subscription(path, definition, limits, rule_error)


def _beyond_subscription(
    path: str, definition: SubscriptionDefinition, limits: Limits, rule_error: RuleError
) -> Iterator[str]:
    most = limits.name_max_characters
    if len(split_subscription(path)[1]) > most:
        yield f"The name of a subscription of Azure has at most {most} characters."
    if len(definition.rules) > limits.rules_per_subscription_max:
        yield (
            f"A subscription of Azure has at most {limits.rules_per_subscription_max} rules, "
            f"not {len(definition.rules)}."
        )
    for rule in definition.rules:
        if len(rule.name) > most:
            yield f"The name of a rule of Azure has at most {most} characters: '{rule.name}'."
        if (error := rule_error(rule, limits)) is not None:
            yield f"Azure refuses the rule '{rule.name}': {error}"
