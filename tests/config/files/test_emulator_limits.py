"""Warnings about what the official emulator would not accept in an exported file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.files.emulator_limits import beyond_emulator
from config.files.emulator_reader import QUEUE, SUBSCRIPTION, TOPIC, default_topology
from config.files.topology import Topology
from config.model.definitions import (
    CorrelationFilter,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
)

DURATIONS = "in whole seconds, not"


def told(entities, name="sbemulatorns"):
    return list(beyond_emulator(Topology({name: entities})))


def test_the_emulators_own_file_is_within_its_limits():
    """There is no warning."""
    assert [] == list(beyond_emulator(default_topology()))


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (f"takes DefaultMessageTimeToLive from PT5M to PT1H {DURATIONS} P14D", {"default_time_to_live_ms": 14 * 86_400_000}),
        (f"takes DefaultMessageTimeToLive from PT5M to PT1H {DURATIONS} PT1M", {"default_time_to_live_ms": 60_000}),
        (f"takes DuplicateDetectionHistoryTimeWindow from PT5S to PT5M {DURATIONS} PT10M", {"duplicate_window_ms": 600_000}),
        (f"takes LockDuration from PT5S to PT5M {DURATIONS} PT10.5S", {"lock_duration_ms": 10_500}),
        ("takes MaxDeliveryCount from 1 to 10, not 11", {"max_delivery_count": 11}),
        ("overlooks UserMetadata", {"user_metadata": "mine"}),
        ("overlooks EnablePartitioning", {"enable_partitioning": True}),
    ],
)  # fmt: skip
def test_properties_of_a_queue_beyond_them_are_reported(expected, changes):
    """What it is, and what is allowed."""
    assert [f"q: the official emulator {expected}"] == told({"q": replace(QUEUE, **changes)})


def test_an_entity_has_one_warning():
    """With all that is wrong with it."""
    (line,) = told({"a~b": QueueDefinition(max_delivery_count=20)})
    assert line.startswith(
        "a~b: the official emulator takes letters, digits and . - _ / in names; "
    )
    assert "MaxDeliveryCount" in line
    assert "DefaultMessageTimeToLive" in line


def test_too_many_of_anything_are_reported():
    """Namespaces, queues and topics, subscriptions; and a topic without any."""
    queues = {f"q{number}": QUEUE for number in range(50)}
    topic = {"t": TOPIC} | {f"t/Subscriptions/s{number}": SUBSCRIPTION for number in range(51)}
    assert [
        "team-a: the official emulator has one namespace, sbemulatorns",
        "team-a: the official emulator takes 50 queues and topics; there are 51",
        "t: the official emulator takes 1 to 50 subscriptions of a topic; there are 51",
    ] == told(queues | topic, "team-a")
    (line,) = told({"t": TOPIC})
    assert "there are 0" in line


def test_rules_beyond_them_are_reported():
    """Long texts, and values that the form has no type for."""
    rules = (
        RuleDefinition("long", SqlFilter("a = 1" + " " * 1024)),
        RuleDefinition("acts", action=SqlAction("SET a = 1" + " " * 1024)),
        RuleDefinition("typed", CorrelationFilter(properties={"a": 1})),
        RuleDefinition("o k", CorrelationFilter(label="a")),
    )
    path = "t/Subscriptions/s"
    (line,) = told({"t": TOPIC, path: replace(SUBSCRIPTION, rules=rules)})
    assert line.startswith(f"{path}: the official emulator ")
    for word in ("'long'", "'acts'", "'typed'", "'o k'"):
        assert word in line
