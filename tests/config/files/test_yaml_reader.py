"""Our own config file can say everything the administration API can, and mistakes nothing for it."""

from __future__ import annotations

import base64
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from config.files.mistakes import ConfigError
from config.files.properties import PROPERTIES
from config.loader import load
from config.model.authorization_keys import derived_secondary_key
from config.model.definitions import (
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
from tests.config.reading import NOWHERE, entities, mistakes, read

SAMPLE = Path(__file__).parents[3] / "docker" / "entities.yaml"


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "entities.yaml"
        path.write_text(text)
        return path

    return write


AS_SENT = {"finer_ticks", "forward_to_scheme", "forward_dead_letters_to_scheme"}
"""How values were written that other fields hold."""


def test_what_is_left_out_has_the_defaults_of_service_bus(config):
    """A name alone is enough."""
    path = config("queues:\n  q:\ntopics:\n  t:\n    subscriptions:\n      s: {}\n")
    assert {
        "q": QueueDefinition(),
        "t": TopicDefinition(),
        "t/Subscriptions/s": SubscriptionDefinition(),
    } == entities(path)


SHARED = """
    default_message_time_to_live: 1h
    auto_delete_on_idle: P1D
    status: ReceiveDisabled
    enable_batched_operations: false
    user_metadata: ours
"""
SHARED_EXPECTED: dict[str, Any] = {
    "default_time_to_live_ms": 3_600_000,
    "auto_delete_on_idle_ms": 86_400_000,
    "status": EntityStatus.RECEIVE_DISABLED,
    "enable_batched_operations": False,
    "user_metadata": "ours",
}
WITH_DUPLICATES = """
    requires_duplicate_detection: true
    duplicate_detection_history_time_window: 20s
    max_size_in_megabytes: 2048
    max_message_size_in_kilobytes: 256
    enable_partitioning: true
    enable_express: true
    support_ordering: false
"""
WITH_DUPLICATES_EXPECTED: dict[str, Any] = {
    "requires_duplicate_detection": True,
    "duplicate_window_ms": 20_000,
    "max_size_megabytes": 2048,
    "max_message_size_kilobytes": 256,
    "enable_partitioning": True,
    "enable_express": True,
    "support_ordering": False,
}


def test_a_queue_can_have_every_property(config):
    """Each under the name Python's administration client gives it."""
    path = config(
        f"""
queues:
  other:
  q:{SHARED}{WITH_DUPLICATES}
    lock_duration: PT10S
    max_delivery_count: 5
    dead_lettering_on_message_expiration: true
    forward_to: other
    forward_dead_lettered_messages_to: other
    authorization_rules:
      reader: {{ rights: [listen], primary_key: one, secondary_key: two }}
  with-sessions: {{ requires_session: true }}
"""
    )
    expected = QueueDefinition(
        **SHARED_EXPECTED,
        **WITH_DUPLICATES_EXPECTED,
        lock_duration_ms=10_000,
        max_delivery_count=5,
        dead_lettering_on_expiration=True,
        forward_to="other",
        forward_dead_letters_to="other",
        authorization_rules=(AuthorizationRule("reader", "one", "two", frozenset({"Listen"})),),
    )
    found = entities(path)
    assert expected == found["q"]
    assert QueueDefinition(requires_session=True) == found["with-sessions"]
    # Nothing above is its default, so nothing a queue can be told is left out.
    unsaid = {"requires_session", *AS_SENT}
    default = QueueDefinition()
    for one in fields(QueueDefinition):
        same = getattr(default, one.name) == getattr(expected, one.name)
        assert same == (one.name in unsaid), one.name


def test_a_topic_and_a_subscription_can_have_every_property(config):
    """Rules are a subscription's, keys are a topic's."""
    path = config(
        f"""
topics:
  t:{SHARED}{WITH_DUPLICATES}
    filtering_messages_before_publishing: true
    authorization_rules:
      owner: {{ rights: [Manage], primary_key: one }}
    subscriptions:
      s:
        {SHARED.replace("    ", "        ")}
        lock_duration: PT10S
        max_delivery_count: 5
        dead_lettering_on_message_expiration: true
        dead_lettering_on_filter_evaluation_exceptions: false
        requires_session: true
        forward_dead_lettered_messages_to: t2
  t2:
"""
    )
    found = entities(path)
    every_right = frozenset({"Manage", "Send", "Listen"})
    assert found["t"] == TopicDefinition(
        **SHARED_EXPECTED,
        **WITH_DUPLICATES_EXPECTED,
        filtering_messages_before_publishing=True,
        authorization_rules=(
            AuthorizationRule("owner", "one", derived_secondary_key("owner", "one"), every_right),
        ),
    )
    assert found["t/Subscriptions/s"] == SubscriptionDefinition(
        **SHARED_EXPECTED,
        lock_duration_ms=10_000,
        max_delivery_count=5,
        dead_lettering_on_expiration=True,
        dead_lettering_on_filter_errors=False,
        requires_session=True,
        forward_dead_letters_to="t2",
    )


@pytest.mark.parametrize("definition", [QueueDefinition, TopicDefinition, SubscriptionDefinition])
def test_the_table_of_properties_names_every_field(definition):
    """A property added to a definition can be written in a file, or is one of the three lists, or
    says how other fields were written."""
    in_table = {one.field for one in PROPERTIES[definition]}
    lists = {"authorization_rules", "rules", *AS_SENT}
    assert {one.name for one in fields(definition)} - lists == in_table


@pytest.mark.parametrize(
    ("expected", "rules"),
    [
        ((RuleDefinition("$Default"),), ""),
        ((), "{}"),
        ((RuleDefinition("r"),), "{r: }"),
        ((RuleDefinition("r", TrueFilter()),), "{r: {true_filter: }}"),
        ((RuleDefinition("r", FalseFilter()),), "{r: {false_filter: }}"),
        ((RuleDefinition("r", SqlFilter("a = 1")),), "{r: {sql_filter: a = 1}}"),
        (
            (RuleDefinition("r", SqlFilter("a = @p", {"@p": 1})),),
            '{r: {sql_filter: a = @p, parameters: {"@p": 1}}}',
        ),
        (
            (RuleDefinition("r", TrueFilter(), SqlAction("SET a = @p", {"@p": "x"})),),
            '{r: {action: SET a = @p, action_parameters: {"@p": x}}}',
        ),
        (
            (RuleDefinition("r", CorrelationFilter(label="x", properties={"a": 1.5})),),
            "{r: {correlation_filter: {label: x, properties: {a: 1.5}}}}",
        ),
        (
            (RuleDefinition("a", SqlFilter("1=1")), RuleDefinition("b", SqlFilter("1=0"))),
            "{a: {sql_filter: 1=1}, b: {sql_filter: 1=0}}",
        ),
    ],
)
def test_rules_of_every_kind(config, expected, rules):
    """Without `rules`, the default rule matches every message. With an empty list, no message
    matches."""
    path = config(f"topics:\n  t:\n    subscriptions:\n      s:\n        rules: {rules}\n")
    assert expected == entities(path)["t/Subscriptions/s"].rules


@pytest.mark.parametrize("name", [one.name for one in fields(CorrelationFilter)][:-1])
def test_a_correlation_filter_compares_every_system_property(config, name):
    """Under its name in Python's SDK."""
    rule = f"{{r: {{correlation_filter: {{{name}: x}}}}}}"
    path = config(f"topics:\n  t:\n    subscriptions:\n      s:\n        rules: {rule}\n")
    (found,) = entities(path)["t/Subscriptions/s"].rules
    assert "x" == getattr(found.filter, name)


def test_namespaces_stand_beside_the_default_one(config):
    """What is at the top of the file comes first and answers on any host name."""
    topology = read(
        config(
            """
namespaces:
  Team-A:
    queues: {q: {max_delivery_count: 2}}
    authorization_rules: {k: {rights: [Send, Listen], primary_key: x}}
  team-b:
queues: {q: }
authorization_rules: {k: {rights: [Manage], primary_key: y}}
"""
        )
    ).topology
    assert [
        ("sbemulatorns", {"q": QueueDefinition()}),
        ("team-a", {"q": QueueDefinition(max_delivery_count=2)}),
        ("team-b", {}),
    ] == list(topology.namespaces.items())
    assert {
        "sbemulatorns": (AuthorizationRule("k", "y", derived_secondary_key("k", "y")),),
        "team-a": (
            AuthorizationRule(
                "k", "x", derived_secondary_key("k", "x"), frozenset({"Send", "Listen"})
            ),
        ),
    } == topology.authorization_rules


def test_the_first_namespace_is_the_default_without_entities_at_the_top_level(config):
    """There is always one that answers on any host name."""
    assert ["b", "a"] == list(read(config("namespaces: {b: , a: }")).topology.namespaces)
    assert ["sbemulatorns"] == list(read(config("queues:")).topology.namespaces)


KEYS = """
%s:
  authorization_rules:
    k: {rights: [Send], primary_key: cHJpbWFyeS1rZXktb2YtdGhpcnR5LXR3by1ieXRlcyE=}
    short: {rights: [Send], primary_key: c2hvcnQ=, secondary_key: c2Vjb25k}
"""


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("queues:\n q", "queues.q"),
        ("topics:\n t", "topics.t"),
        ("namespaces:\n n", "namespaces.n"),
    ],
)
def test_keys_are_what_the_dotnet_administration_client_can_read(config, place, where):
    """Both keys exist. The second is derived and the same at every start. Keys of other lengths are
    warnings."""
    text = (KEYS % place).replace("\n  ", "\n   ")
    loaded, again = read(config(text)), read(config(text))
    assert loaded.topology == again.topology
    if where.startswith("namespaces"):
        rules = loaded.topology.authorization_rules["n"]
    else:
        (definition,) = loaded.topology.namespaces["sbemulatorns"].values()
        rules = definition.authorization_rules
    made_up = rules[0].secondary_key
    assert 44 == len(made_up)
    assert 32 == len(base64.b64decode(made_up, validate=True))
    assert made_up != rules[0].primary_key
    assert "c2Vjb25k" == rules[1].secondary_key
    told = [(one.where, one.text.partition(";")[0]) for one in loaded.warnings]
    assert [
        (f"{where}.authorization_rules.short.primary_key", "a key of 8 bytes"),
        (f"{where}.authorization_rules.short.secondary_key", "a key of 8 bytes"),
    ] == told


def test_the_default_lock_duration_is_a_setting(config):
    """For what is declared without one; what names its own keeps it."""
    path = config(
        "settings: {default_lock_duration: 1m}\n"
        "queues: {q: , own: {lock_duration: 30s}}\ntopics: {t: {subscriptions: {s: }}}"
    )
    found = entities(path)
    durations = [found[name].lock_duration_ms for name in ("q", "own", "t/Subscriptions/s")]
    assert [60_000, 30_000, 60_000] == durations


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n", "null"])
def test_an_empty_file_is_a_mistake(config, text):
    """The file may not have been written yet."""
    assert ["1: the file is empty; it must declare queues or topics, or settings"] == mistakes(
        config(text)
    )


def test_a_name_given_twice_hides_no_other_mistake(config):
    """All mistakes are reported at once."""
    text = "queues: {a: {lock_duration: 1s}}\nqueues: {b: {max_delivery_count: 0}}\ntopics: []\n"
    found = mistakes(config(text))
    assert ["1", "2", "2", "3"] == [one.partition(":")[0] for one in found]
    assert "2: queues: 'queues' is given twice, first in line 1" in found


def test_an_invalid_name_hides_no_mistake_below_it(config):
    """An entity is read completely, even if its name is wrong."""
    found = mistakes(config("topics: {a b: {subscriptions: {'c,d': {lock_duration: 1s}}}}"))
    assert 3 == len(found)
    assert any("'c,d' is not a valid name: ',' is not allowed" in one for one in found)


SUBSCRIPTION = "topics: {t: {subscriptions: {s: {rules: {r: %s}}}}}"
RULE_AT = "1: topics.t.subscriptions.s.rules.r"


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("1: queus: there is no such property; did you mean 'queues'?", "queus: {}"),
        ("2: queues.q.lock_duraton: there is no such property; did you mean 'lock_duration'?", "queues:\n  q: {lock_duraton: 5s}"),
        ("1: queues.q.LockDuration: there is no such property; did you mean 'lock_duration'?", "queues: {q: {LockDuration: 5s}}"),
        ("1: topics.t.lock_duration: there is no such property", "topics: {t: {lock_duration: 5s}}"),
        ('3: queues["queue.1"].lock_duration: \'1s\' is not allowed; expected a duration from PT5S to PT5M', "queues:\n  queue.1:\n    lock_duration: 1s"),
        ("1: queues: expected a mapping, found a list", "queues: [a, b]"),
        ("1: queues.q: expected a mapping, found 'x'", "queues: {q: x}"),
        ("1: expected a mapping, found a list", "- queues"),
        ('1: queues["a b"]: \'a b\' is not a valid name: white space is not allowed', "queues: {a b: }"),
        ("2: queues.A: the name 'A' is taken in line 1; case makes no difference, and queues and topics share their names", "queues: {a: ,\n A: }"),
        ("1: namespaces.A: there are two namespaces 'a'", "namespaces: {a: , A: }"),
        ("1: namespaces.sbemulatorns: there are two namespaces 'sbemulatorns'", "{namespaces: {sbemulatorns: }, queues: {a: }}"),
        ("1: namespaces.a.settings: there is no such property", "namespaces: {a: {settings: }}"),
        ("1: namespaces.a_b: 'a_b' is not a valid name: letters, digits, hyphens and dots are allowed, a letter or digit first and last", "namespaces: {a_b: }"),
        (f"{RULE_AT}.sql: there is no such property; did you mean 'sql_filter'?", SUBSCRIPTION % "{sql: x}"),
        (f"{RULE_AT}: a rule has one filter, found sql_filter and true_filter", SUBSCRIPTION % "{true_filter: , sql_filter: x}"),
        (f"{RULE_AT}.sql_filter: expected text, found 1", SUBSCRIPTION % "{sql_filter: 1}"),
        (f"{RULE_AT}.parameters: parameters are for sql_filter; there is none", SUBSCRIPTION % "{parameters: {a: 1}}"),
        (f"{RULE_AT}.action_parameters: parameters are for action; there is none", SUBSCRIPTION % "{action_parameters: {a: 1}}"),
        (f"{RULE_AT}.parameters.a: expected text, a number, true or false, found nothing", SUBSCRIPTION % "{sql_filter: x, parameters: {a: }}"),
        (f"{RULE_AT}.correlation_filter: expected at least one property to compare", SUBSCRIPTION % "{correlation_filter: }"),
        (f"{RULE_AT}.sql_filter: expected text, found nothing", SUBSCRIPTION % "{sql_filter: }"),
        (f"{RULE_AT}.action: expected text, found nothing", SUBSCRIPTION % "{sql_filter: x, action: }"),
        (f"{RULE_AT}.correlation_filter.label: expected text, found nothing", SUBSCRIPTION % "{correlation_filter: {label: }}"),
        (f"{RULE_AT}.correlation_filter.label: expected text, found nothing", SUBSCRIPTION % "{correlation_filter: {label: , to: x}}"),
        (f"{RULE_AT}.correlation_filter: expected at least one property to compare", SUBSCRIPTION % "{correlation_filter: {properties: {}}}"),
        (f"{RULE_AT}.correlation_filter: expected at least one property to compare", SUBSCRIPTION % "{correlation_filter: {properties: }}"),
        (f"{RULE_AT}.correlation_filter.subject: there is no such property", SUBSCRIPTION % "{correlation_filter: {subject: x, label: y}}"),
        ("1: topics.t.subscriptions.s: two rules have the name 'r'", "topics: {t: {subscriptions: {s: {rules: {r: , R: }}}}}"),
        ("1: authorization_rules.k: primary_key is missing", "authorization_rules: {k: {rights: [Send]}}"),
        ("1: authorization_rules.k: primary_key is missing", "authorization_rules: {k: {rights: [Send], primary_key: }}"),
        ("1: authorization_rules.k.rights[0]: expected an item, found nothing", "authorization_rules: {k: {primary_key: x, rights: [null]}}"),
        ("1: authorization_rules.k: rights is missing; expected some of Manage, Send, Listen", "authorization_rules: {k: {primary_key: x}}"),
        ("1: authorization_rules.k.rights: rights is missing; expected some of Manage, Send, Listen", "authorization_rules: {k: {primary_key: x, rights: []}}"),
        ("1: authorization_rules.k.rights[0]: 'Read' is not a right; expected Manage, Send or Listen", "authorization_rules: {k: {primary_key: x, rights: [Read]}}"),
        ("1: authorization_rules.k.rights: expected a list, found 'Send'", "authorization_rules: {k: {primary_key: x, rights: Send}}"),
        ("1: settings.amqp_prot: there is no such setting; did you mean 'amqp_port'?", "settings: {amqp_prot: 1}"),
        ("1: settings.amqp_port: 70000 is not allowed; expected a port from 1 to 65535, or 0 for a free one", "settings: {amqp_port: 70000}"),
        ("1: settings.storage: a list is not allowed; expected a single value", "settings: {storage: []}"),
        ("1: settings: expected settings by name, found a list", "settings: []"),
    ],
)  # fmt: skip
def test_every_mistake_is_reported_with_its_place(config, expected, text):
    """The line, the path in the file, what is there and what may be."""
    assert [expected] == mistakes(config(text))


def test_a_rule_whose_sql_is_wrong_is_reported_with_its_place(config):
    """The core reads SQL; the file knows the line."""
    path = config("topics:\n  t:\n    subscriptions:\n      s:\n        rules:\n          r: {}\n")

    def wrong(rule, _limits):
        return f"{rule.name} makes no sense"

    with pytest.raises(
        ConfigError, match=r"6: topics\.t\.subscriptions\.s\.rules\.r: r makes no sense"
    ):
        load({"config": str(path)}, {}, wrong, NOWHERE)


def test_strict_quotas_narrow_what_a_file_may_say(config):
    """A file that passes with them would pass in the cloud."""
    path = config(
        "settings: {quotas: strict, tier: Basic}\nqueues: {q: {default_message_time_to_live: P15D}}"
    )
    (found,) = mistakes(path)
    assert "'P15D' is not allowed; expected a duration from PT1S to P14D" in found


def test_the_basic_tier_has_plain_queues_only(config):
    """With any quotas: a tier has a feature or does not have it."""
    path = config(
        """
        settings: {tier: Basic}
        queues: {plain: {}, grouped: {requires_session: true}}
        topics: {t: {}}
        """
    )
    grouped, topic = mistakes(path)
    assert "queues.grouped: The property 'RequiresSession' can't be set" in grouped
    assert "topics.t: Topics and subscriptions can't be created" in topic


def test_the_sample_is_right():
    """What we show works."""
    loaded = read(SAMPLE)
    assert ["sbemulatorns", "team-a", "team-b"] == list(loaded.topology.namespaces)
    assert () == loaded.warnings
