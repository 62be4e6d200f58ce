"""Config files that we write: read back, they say what was meant."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from config.files.emulator_reader import default_topology
from config.files.emulator_writer import emulator_form
from config.files.properties import PROPERTIES
from config.files.topology import Topology
from config.files.yaml_writer import yaml_form
from config.loader import load
from config.model.definitions import (
    UNLIMITED_MS,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from config.model.limits import RELAXED
from config.model.names import subscription_path
from config.model.ticks import moment_from_ticks, span_from_ticks
from protocol.codec import Int, Symbol
from tests.config.reading import NOWHERE, any_rule, mistakes

# --- topologies of every kind ------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,9}", fullmatch=True)
entity_names = (
    st.lists(names, min_size=1, max_size=2)
    .map("/".join)
    .filter(lambda name: "subscriptions" not in name.lower().split("/"))
)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)
words = texts.filter(bool)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=9),
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.integers(-(2**63), 2**63 - 1).map(span_from_ticks),
    st.integers(0, 3 * 10**18).map(moment_from_ticks),
)
properties = st.dictionaries(words, values, max_size=3)
plain_properties = st.dictionaries(words, st.booleans() | st.integers() | texts, max_size=3)


def milliseconds(shortest: int, longest: int) -> st.SearchStrategy[int]:
    return st.integers(shortest, longest) | st.just(longest)


FIELDS = {
    "lock_duration_ms": milliseconds(RELAXED.lock_duration_min_ms, RELAXED.lock_duration_max_ms),
    "default_time_to_live_ms": milliseconds(RELAXED.time_to_live_min_ms, 10**12)
    | st.just(UNLIMITED_MS),
    "duplicate_window_ms": milliseconds(
        RELAXED.duplicate_window_min_ms, RELAXED.duplicate_window_max_ms
    ),
    "auto_delete_on_idle_ms": milliseconds(RELAXED.auto_delete_on_idle_min_ms, 10**12)
    | st.just(UNLIMITED_MS),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "max_size_megabytes": st.none() | st.integers(1, 10**6),
    "max_message_size_kilobytes": st.none() | st.integers(1, RELAXED.message_max_bytes // 1024),
    "status": st.sampled_from(EntityStatus),
    "user_metadata": st.none() | texts,
}
keys = st.builds(
    AuthorizationRule,
    names,
    words,
    words,  # one that is left out is made up when it is read
    st.sampled_from(
        [
            frozenset({"Send"}),
            frozenset({"Listen"}),
            frozenset({"Send", "Listen"}),
            frozenset({"Manage", "Send", "Listen"}),
        ]
    ),
)
rule_sets = st.lists(keys, max_size=3, unique_by=lambda rule: rule.name).map(tuple)


def filters(values_of: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.builds(SqlFilter, words, values_of),
        st.builds(CorrelationFilter, st.none() | words, label=words, properties=values_of),
    )


def rules(of: st.SearchStrategy[RuleDefinition]) -> st.SearchStrategy[tuple[RuleDefinition, ...]]:
    return st.lists(of, max_size=3, unique_by=lambda rule: rule.name.casefold()).map(tuple)


full_rules = rules(
    st.builds(
        RuleDefinition,
        names,
        filters(properties) | st.just(TrueFilter()) | st.just(FalseFilter()),
        st.none() | st.builds(SqlAction, words, properties),
    )
)
simple_rules = rules(
    st.builds(
        RuleDefinition,
        names,
        st.builds(SqlFilter, words)
        | st.builds(CorrelationFilter, label=words, properties=plain_properties),
        st.none() | st.builds(SqlAction, words),
    )
).filter(bool)


@st.composite
def definitions(draw: st.DrawFn, /, kind: type, **others: st.SearchStrategy[Any]) -> Any:
    chosen: dict[str, object] = {}
    for one in PROPERTIES[kind]:
        if one.field.startswith("forward"):
            continue
        default = getattr(kind(), one.field)
        strategy = FIELDS.get(one.field, st.booleans())
        chosen[one.field] = draw(strategy) if draw(st.booleans()) else default
    return kind(**chosen, **{name: draw(one) for name, one in others.items()})


@st.composite
def entities(
    draw: st.DrawFn, rules: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]
) -> dict[str, Any]:
    paths = draw(st.lists(entity_names, max_size=4, unique_by=str.casefold))
    found: dict[str, Any] = {}
    for path in paths:
        if draw(st.booleans()):
            found[path] = draw(definitions(QueueDefinition, authorization_rules=keys))
            continue
        found[path] = draw(definitions(TopicDefinition, authorization_rules=keys))
        for name in draw(st.lists(names, max_size=2, unique_by=str.casefold)):
            definition = draw(definitions(SubscriptionDefinition, rules=rules))
            found[subscription_path(path, name)] = definition
    target = draw(st.sampled_from([None, *(path for path in paths)]))
    if target is not None and isinstance(found[target], QueueDefinition):
        for path, definition in found.items():
            if path != target and not isinstance(definition, TopicDefinition):
                found[path] = replace(definition, forward_dead_letters_to=target)
    return found


namespace_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)


@st.composite
def topologies(
    draw: st.DrawFn, rules: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]
) -> Topology:
    chosen = draw(
        st.lists(namespace_names | st.just("sbemulatorns"), min_size=1, max_size=2, unique=True)
    )
    of_namespaces = {name: draw(keys) for name in chosen}
    return Topology(
        {name: draw(entities(rules, keys)) for name in chosen},
        {name: found for name, found in of_namespaces.items() if found},
    )


# --- there and back ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Write a document to a file and read it as the broker does."""
    folder = tmp_path_factory.mktemp("written")

    def read_back(text: str, suffix: str) -> Topology:
        path = folder / f"config{suffix}"
        path.write_text(text, "utf-8")
        return load({"config": str(path)}, {}, any_rule, NOWHERE).topology

    return read_back


def same(topology: Topology) -> tuple[object, object]:
    """What has to be equal, order of namespaces included."""
    return (
        [(name, dict(entities)) for name, entities in topology.namespaces.items()],
        {name: tuple(rules) for name, rules in topology.authorization_rules.items()},
    )


@settings(deadline=None, max_examples=60)
@given(topology=topologies(full_rules, rule_sets))
def test_what_our_form_says_is_read_back_the_same(written, topology):
    """Every property, rule, key and value, as YAML and as JSON."""
    document = yaml_form(topology)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    assert same(topology) == same(written(text, ".yaml"))
    assert same(topology) == same(written(json.dumps(document), ".json"))


@settings(deadline=None, max_examples=60)
@given(topology=topologies(simple_rules, st.just(())))
def test_what_the_emulators_form_can_say_is_read_back_the_same(written, topology):
    """With nothing lost, and its own defaults left out."""
    document, losses = emulator_form(topology)
    assert [] == losses
    assert same(topology) == same(written(json.dumps(document), ".json"))


def test_lock_durations_are_written_where_the_default_is_not_the_usual_one(written):
    """Else a queue with 30 s would get the default of the broker that reads the file."""
    topology = Topology(
        {
            "sbemulatorns": {
                "a": QueueDefinition(),
                "t": TopicDefinition(),
                "t/Subscriptions/s": SubscriptionDefinition(lock_duration_ms=60_000),
            }
        }
    )
    document = yaml_form(topology, default_lock_duration_ms=60_000)
    assert {"lock_duration": "PT30S"} == document["queues"]["a"]
    text = yaml.safe_dump({"settings": {"default_lock_duration": "1m"}} | document)
    assert same(topology) == same(written(text, ".yaml"))


def test_a_file_says_what_was_decided_and_no_more():
    """Defaults are left out, so that chosen values are easy to find."""
    topology = Topology(
        {
            "sbemulatorns": {
                "plain": QueueDefinition(),
                "orders": QueueDefinition(lock_duration_ms=45_000, requires_session=True),
                "prices": TopicDefinition(),
                "prices/Subscriptions/all": SubscriptionDefinition(),
            }
        }
    )
    assert {
        "queues": {"plain": {}, "orders": {"lock_duration": "PT45S", "requires_session": True}},
        "topics": {"prices": {"subscriptions": {"all": {}}}},
    } == yaml_form(topology)


def test_the_emulators_own_file_has_few_words():
    """Its defaults are those of the official file."""
    (namespace,) = emulator_form(default_topology())[0]["UserConfig"]["Namespaces"]
    assert [{"Name": "queue.1", "Properties": {}}] == namespace["Queues"]
    subscriptions = namespace["Topics"][0]["Subscriptions"]
    assert "Rules" not in next(one for one in subscriptions if one["Name"] == "subscription.3")


def test_what_the_emulators_form_cannot_express_is_reported():
    """One sentence for each, and everything else is written."""
    key = AuthorizationRule("k", "v")
    when = {"@x": datetime(2026, 1, 2, tzinfo=UTC)}
    sql = RuleDefinition("by", SqlFilter("a = @x", when), SqlAction("SET a = @y", {"@y": b"b"}))
    topology = Topology(
        {
            "sbemulatorns": {
                "q": QueueDefinition(authorization_rules=(key,)),
                "t": TopicDefinition(),
                "t/Subscriptions/none": SubscriptionDefinition(rules=()),
                "t/Subscriptions/some": SubscriptionDefinition(rules=(sql,)),
            }
        },
        {"sbemulatorns": (key,)},
    )
    assert [
        "sbemulatorns: its authorization rules are left out",
        "q: its authorization rules are left out",
        "t/Subscriptions/none: has no rules, and gets one that takes nothing",
        "t/Subscriptions/some/Rules/by: the value of @x cannot be written as SQL",
        "t/Subscriptions/some/Rules/by: the value of @y cannot be written as SQL",
    ] == emulator_form(topology)[1]


def test_the_emulators_form_has_parameters_in_their_places():
    """It knows none; what is quoted is left alone."""
    parameters = {"@a": 1, "@b": "it's", "@flag": True}
    sql = "x = @a AND y = @B AND z = @flag AND q = '@a' AND [@a] = @unknown"
    rule = RuleDefinition("r", SqlFilter(sql, parameters), SqlAction("SET x = @a", {"@a": 2.5}))
    topology = Topology(
        {"n": {"t": TopicDefinition(), "t/Subscriptions/s": SubscriptionDefinition(rules=(rule,))}}
    )
    (namespace,) = emulator_form(topology)[0]["UserConfig"]["Namespaces"]
    ((written_rule,),) = [one["Rules"] for one in namespace["Topics"][0]["Subscriptions"]]
    assert {
        "FilterType": "Sql",
        "SqlFilter": {
            "SqlExpression": ("x = 1 AND y = 'it''s' AND z = TRUE AND q = '@a' AND [@a] = @unknown")
        },
        "Action": {"SqlExpression": "SET x = 2.5"},
    } == written_rule["Properties"]


def test_values_that_came_over_amqp_are_written_as_plain_ones():
    """Its integers and symbols are types of their own."""
    rule = RuleDefinition("r", CorrelationFilter(properties={"a": Int(1), "b": Symbol("s")}))
    topology = Topology(
        {"n": {"t": TopicDefinition(), "t/Subscriptions/s": SubscriptionDefinition(rules=(rule,))}}
    )
    assert "a: 1\n" in yaml.safe_dump(yaml_form(topology))


@pytest.mark.parametrize(
    ("written_as", "value"),
    [
        ({"datetime": "2026-01-02T03:04:05+00:00"}, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ({"datetime": "2026-01-02T03:04:05"}, datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
        ({"duration": "PT1M30S"}, timedelta(seconds=90)),
        ({"duration": "90s"}, timedelta(seconds=90)),
        ({"duration": "-PT1S"}, timedelta(seconds=-1)),
        ({"uuid": "00112233-4455-6677-8899-aabbccddeeff"}, UUID(int=0x112233445566778899AABBCCDDEEFF)),
        ({"binary": "AAE="}, b"\x00\x01"),
        ({"number": "-inf"}, -math.inf),
        ({"null": None}, None),
    ],
)  # fmt: skip
def test_values_without_a_plain_form_name_their_type(written, written_as, value):
    """In properties and in parameters."""
    rules = {"r": {"correlation_filter": {"properties": {"p": written_as}}}}
    document = {"topics": {"t": {"subscriptions": {"s": {"rules": rules}}}}}
    found = written(yaml.safe_dump(document), ".yaml").namespaces["sbemulatorns"]
    (rule,) = found["t/Subscriptions/s"].rules
    assert {"p": value} == rule.filter.properties


@pytest.mark.parametrize(
    "wrong",
    [{"uuid": "x"}, {"binary": "!"}, {"datetime": 1}, {"colour": "red"}, {"uuid": "", "a": ""}],
)
def test_a_type_that_is_wrong_is_reported(tmp_path, wrong):
    """With those there are."""
    rules = {"r": {"correlation_filter": {"properties": {"p": wrong}}}}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"topics": {"t": {"subscriptions": {"s": {"rules": rules}}}}}))
    (found,) = mistakes(path)
    assert "properties.p: a mapping is not allowed; expected text, a number" in found
