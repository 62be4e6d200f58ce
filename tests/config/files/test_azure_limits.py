"""What Azure would refuse in the entities of a namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.routing.compiled_rule import rule_error
from config.files.azure_limits import beyond_azure
from config.files.emulator_reader import default_topology
from config.model.definitions import (
    QueueDefinition,
    RuleDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import RELAXED, Tier, strict

QUEUE = QueueDefinition()
PREMIUM = strict(Tier.PREMIUM)


def told(entities, limits=PREMIUM):
    return list(beyond_azure(entities, limits, rule_error))


def test_the_default_entities_are_within_the_limits():
    (entities,) = default_topology().namespaces.values()
    assert [] == told(entities)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"duplicate_window_ms": 10_000}, "Azure expects a duration from PT20S to P7D as DuplicateDetection"),
        ({"max_size_megabytes": 1_000_000}, "Azure expects a whole number from 1 to 81920 as MaxSizeInMeg"),
        ({"max_message_size_kilobytes": 4}, "Azure expects a whole number from 1024 to 102400 as MaxMess"),
    ],
)  # fmt: skip
def test_properties_out_of_range_are_told(changes, expected):
    queue = replace(QUEUE, **changes)
    ((path, sentence),) = told({"orders": queue})
    assert ("orders", True) == (path, sentence.startswith(expected)), sentence
    assert [] == told({"orders": queue}, RELAXED)


def test_rules_and_names_of_subscriptions_are_checked():
    long = RuleDefinition("r" * 51, SqlFilter("color = '" + "x" * 2_000 + "'"))
    entities = {
        "events": TopicDefinition(),
        "events/Subscriptions/" + "s" * 51: SubscriptionDefinition(rules=(long,)),
    }
    sentences = [sentence for _, sentence in told(entities)]
    assert 3 == len(sentences)
    assert sentences[0].startswith("The name of a subscription of Azure has at most 50")
    assert sentences[1].startswith("The name of a rule of Azure has at most 50")
    assert sentences[2].startswith("Azure refuses the rule 'rrr")


def test_numbers_of_entities_are_checked():
    limits = replace(
        PREMIUM,
        entities_per_namespace_max=1,
        subscriptions_per_topic_max=1,
        rules_per_subscription_max=1,
    )
    two = SubscriptionDefinition(rules=(RuleDefinition("a"), RuleDefinition("b")))
    found = told(
        {
            "q": QUEUE,
            "events": TopicDefinition(),
            "events/Subscriptions/a": two,
            "events/Subscriptions/b": SubscriptionDefinition(),
        },
        limits,
    )
    assert [
        ("events/Subscriptions/a", "A subscription of Azure has at most 1 rules, not 2."),
        ("", "A namespace of Azure has at most 1 queues and topics, not 2."),
        ("events", "A topic of Azure has at most 1 subscriptions, not 2."),
    ] == found


def test_the_basic_tier_has_no_topics():
    ((path, sentence),) = told({"events": TopicDefinition()}, strict(Tier.BASIC))
    assert "events" == path
    assert "'Basic' tier" in sentence
