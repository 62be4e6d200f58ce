"""Rules as AMQP carries them: what comes in is what rules compare, and goes out again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.core.contract.errors import ArgumentError
from broker.core.entities.stored_definitions import definition_from_json, definition_to_json
from config.model.definitions import (
    CorrelationFilter,
    LongInteger,
    RuleDefinition,
    SubscriptionDefinition,
)
from config.model.ticks import DateTimeTicks, TimeSpanTicks
from protocol.amqp.nodes.rule_encoding import described, read_rule
from protocol.codec import (
    Char,
    Described,
    Float,
    Int,
    Long,
    Symbol,
    Timestamp,
    ULong,
    decode,
    encode,
)

MOMENT = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


def read(properties: dict[str, object]) -> CorrelationFilter:
    description = {"correlation-filter": {"properties": properties}}
    rule = read_rule({"rule-name": "r", "rule-description": description})
    stored = definition_from_json(definition_to_json(SubscriptionDefinition(rules=(rule,))))
    assert isinstance(stored, SubscriptionDefinition)
    assert (rule,) == stored.rules
    shown: Any = decode(encode(described(rule)))[0]
    assert properties.keys() == shown.value[0].value[8].keys()
    assert isinstance(rule.filter, CorrelationFilter)
    return rule.filter


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Int(-5), -5),
        (Long(1 << 40), LongInteger(1 << 40)),
        (Float(1.5), 1.5),
        (True, True),
        (Timestamp(1_000_000_000_000), MOMENT),
        (Described(Symbol("com.microsoft:timespan"), Long(10_000_000)), timedelta(seconds=1)),
        (UUID(int=7), UUID(int=7)),
        (b"\x00", b"\x00"),
        (Symbol("s"), "s"),
        (Char("c"), "c"),
        (None, None),
    ],
)
def test_a_property_is_read_as_messages_are(value: object, expected: object) -> None:
    """A time is a time: JavaScript gives dates so, and a rule must match the same in a message."""
    found = read({"p": value}).properties["p"]
    assert (type(expected), expected) == (type(found), found)


@pytest.mark.parametrize("value", [[Int(1)], {"a": Int(1)}, Described(ULong(1), [Int(1)])])
def test_a_property_that_no_store_could_keep_is_refused(value: object) -> None:
    """Before anything has been changed by it."""
    with pytest.raises(ArgumentError):
        read({"p": value})


def test_a_correlation_filter_names_something() -> None:
    """As over HTTP."""
    with pytest.raises(ArgumentError):
        read({})


@pytest.mark.parametrize("value", [Int(5), Long(5), Long(1 << 40)])
def test_a_number_keeps_its_type(value: object) -> None:
    """The .NET SDK's filters are equal only if the types of their values are; 5 is 5 to a rule."""
    rule_filter = read({"name": value})
    assert value == rule_filter.properties["name"]
    rule = RuleDefinition("r", rule_filter)
    stored: Any = definition_from_json(definition_to_json(SubscriptionDefinition(rules=(rule,))))
    shown: Any = decode(encode(described(stored.rules[0])))[0]
    assert type(value) is type(shown.value[0].value[8]["name"])


AT = datetime(2024, 1, 2, 3, 4, 5, 123_000, tzinfo=UTC)
FINER = DateTimeTicks(AT.replace(microsecond=123_456), 7)
FINER_TICKS = 638_397_614_451_234_567


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (AT, Timestamp(1_704_164_645_123)),
        (
            TimeSpanTicks(timedelta(seconds=1, microseconds=123_456), 7),
            Described(Symbol("com.microsoft:timespan"), Long(11_234_567)),
        ),
        (float("inf"), float("inf")),
    ],
)
def test_a_value_keeps_its_precision(value: object, shown: object) -> None:
    """The store, and a client that sends the value again, return the same value."""
    rule = RuleDefinition("r", CorrelationFilter(properties={"p": value}))
    stored: Any = definition_from_json(definition_to_json(SubscriptionDefinition(rules=(rule,))))
    found: Any = decode(encode(described(stored.rules[0])))[0]
    assert shown == found.value[0].value[8]["p"]
    assert {"p": value} == read({"p": found.value[0].value[8]["p"]}).properties


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (FINER, 1_704_164_645_123),
        (AT.replace(microsecond=123_999), 1_704_164_645_123),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
    ],
)
def test_a_time_is_shown_in_the_type_that_clients_read(value: object, milliseconds: int) -> None:
    """The .NET SDK cannot list the rules of a subscription if one holds a DateTimeOffset."""
    found: Any = described(RuleDefinition("r", CorrelationFilter(properties={"p": value})))
    assert Timestamp(milliseconds) == found.value[0].value[8]["p"]


def test_a_time_that_comes_in_ticks_is_kept_in_ticks() -> None:
    value = Described(Symbol("com.microsoft:datetime-offset"), Long(FINER_TICKS))
    assert {"p": FINER} == read({"p": value}).properties
