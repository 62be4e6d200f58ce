"""The official emulator's Config.json means here what it means there, and says more when wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from config.files.emulator_reader import QUEUE, SUBSCRIPTION, TOPIC, default_topology
from config.model.definitions import (
    UNLIMITED_MS,
    CorrelationFilter,
    EntityStatus,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from tests.config.reading import entities, mistakes, read, warnings

NAMESPACE = "UserConfig.Namespaces[0]"
CATCH_ALL = (RuleDefinition("$Default"),)


@pytest.fixture
def config(tmp_path):
    """Writes a file around the queues and topics of one namespace."""

    def write(queues=(), topics=(), **namespace):
        members = {"Name": "sbemulatorns", "Queues": list(queues), "Topics": list(topics)}
        user_config = {"Namespaces": [members | namespace], "Logging": {"Type": "File"}}
        path = tmp_path / "Config.json"
        path.write_text(json.dumps({"UserConfig": user_config}))
        return path

    return write


def a_queue(name="q", **properties):
    return {"Name": name, "Properties": properties}


def a_topic(*subscriptions, name="t", **properties):
    return {"Name": name, "Properties": properties, "Subscriptions": list(subscriptions)}


def a_subscription(name="s", rules=(), **properties):
    return {"Name": name, "Properties": properties, "Rules": list(rules)}


def a_rule(name="r", **properties):
    return {"Name": name, "Properties": properties}


def test_the_default_file_is_read_as_it_is_shipped(tmp_path):
    """Comments, trailing commas and all: the same entities as a start without any file."""
    path = tmp_path / "Config.json"
    path.write_text(
        """
        {
          "UserConfig": {
            "Namespaces": [
              {
                "Name": "sbemulatorns", // the only name there
                "Queues": [
                  {
                    "Name": "queue.1",
                    "Properties": {
                      "DeadLetteringOnMessageExpiration": false,
                      "DefaultMessageTimeToLive": "PT1H",
                      "DuplicateDetectionHistoryTimeWindow": "PT20S",
                      "ForwardDeadLetteredMessagesTo": "",
                      "ForwardTo": "",
                      "LockDuration": "PT1M",
                      "MaxDeliveryCount": 3,
                      "RequiresDuplicateDetection": false,
                      "RequiresSession": false
                    }
                  }
                ],
                "Topics": [
                  {
                    "Name": "topic.1",
                    "Properties": {
                      "DefaultMessageTimeToLive": "PT1H",
                      "DuplicateDetectionHistoryTimeWindow": "PT20S",
                      "RequiresDuplicateDetection": false
                    },
                    "Subscriptions": [
                      {
                        "Name": "subscription.1",
                        "Properties": {
                          "DeadLetteringOnMessageExpiration": false,
                          "DefaultMessageTimeToLive": "PT1H",
                          "LockDuration": "PT1M",
                          "MaxDeliveryCount": 3,
                          "ForwardDeadLetteredMessagesTo": "",
                          "ForwardTo": "",
                          "RequiresSession": false
                        },
                        "Rules": [
                          {
                            "Name": "app-prop-filter-1",
                            "Properties": {
                              "FilterType": "Correlation",
                              "CorrelationFilter": { "ContentType": "application/json" }
                            }
                          }
                        ]
                      },
                      {
                        "Name": "subscription.2",
                        "Rules": [
                          {
                            "Name": "user-prop-filter-1",
                            "Properties": {
                              "FilterType": "Correlation",
                              "CorrelationFilter": { "Properties": { "prop1": "value1" } }
                            }
                          }
                        ]
                      },
                      { "Name": "subscription.3" },
                      {
                        "Name": "subscription.4",
                        "Rules": [
                          {
                            "Name": "sql-filter-1",
                            "Properties": {
                              "FilterType": "Sql",
                              "SqlFilter": {
                                "SqlExpression": "sys.MessageId = '123456' AND userProp1 = 'value1'"
                              },
                              "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
                            }
                          }
                        ]
                      },
                    ]
                  }
                ]
              }
            ],
            "Logging": { "Type": "File" }
          }
        }
        """
    )
    loaded = read(path)
    assert default_topology() == loaded.topology
    assert () == loaded.warnings


def test_what_is_left_out_has_the_files_own_defaults(config):
    """Three deliveries, a lock of a minute, an hour to live: not Service Bus's."""
    path = config([a_queue()], [a_topic(a_subscription())])
    assert {
        "q": QueueDefinition(
            max_delivery_count=3,
            lock_duration_ms=60_000,
            default_time_to_live_ms=3_600_000,
            duplicate_window_ms=20_000,
        ),
        "t": TopicDefinition(default_time_to_live_ms=3_600_000, duplicate_window_ms=20_000),
        "t/Subscriptions/s": SubscriptionDefinition(
            max_delivery_count=3,
            lock_duration_ms=60_000,
            default_time_to_live_ms=3_600_000,
            rules=CATCH_ALL,
        ),
    } == entities(path)


OF_ALL = [
    ("DefaultMessageTimeToLive", "PT5M", {"default_time_to_live_ms": 300_000}),
    ("DefaultMessageTimeToLive", "P400D", {"default_time_to_live_ms": 400 * 86_400_000}),
    ("AutoDeleteOnIdle", "PT5M", {"auto_delete_on_idle_ms": 300_000}),
    ("AutoDeleteOnIdle", "P10675199DT2H48M5.4775807S", {"auto_delete_on_idle_ms": UNLIMITED_MS}),
    ("Status", "SendDisabled", {"status": EntityStatus.SEND_DISABLED}),
    ("Status", "disabled", {"status": EntityStatus.DISABLED}),
    ("EnableBatchedOperations", False, {"enable_batched_operations": False}),
    ("UserMetadata", "owned by us", {"user_metadata": "owned by us"}),
]
OF_QUEUES_AND_TOPICS = [
    ("RequiresDuplicateDetection", True, {"requires_duplicate_detection": True}),
    ("DuplicateDetectionHistoryTimeWindow", "PT5S", {"duplicate_window_ms": 5_000}),
    ("DuplicateDetectionHistoryTimeWindow", "P7D", {"duplicate_window_ms": 604_800_000}),
    ("MaxSizeInMegabytes", 5120, {"max_size_megabytes": 5120}),
    ("MaxMessageSizeInKilobytes", 102_400, {"max_message_size_kilobytes": 102_400}),
    ("EnablePartitioning", True, {"enable_partitioning": True}),
    ("EnableExpress", True, {"enable_express": True}),
    ("SupportOrdering", False, {"support_ordering": False}),
]
OF_QUEUES_AND_SUBSCRIPTIONS = [
    ("LockDuration", "PT5S", {"lock_duration_ms": 5_000}),
    ("LockDuration", "PT5M", {"lock_duration_ms": 300_000}),
    ("MaxDeliveryCount", 1, {"max_delivery_count": 1}),
    ("MaxDeliveryCount", 2_147_483_647, {"max_delivery_count": 2_147_483_647}),
    ("DeadLetteringOnMessageExpiration", True, {"dead_lettering_on_expiration": True}),
    ("RequiresSession", True, {"requires_session": True}),
    ("ForwardTo", "", {"forward_to": None}),
    ("ForwardTo", "other", {"forward_to": "other"}),
    ("ForwardDeadLetteredMessagesTo", "", {"forward_dead_letters_to": None}),
    ("ForwardDeadLetteredMessagesTo", "OTHER", {"forward_dead_letters_to": "other"}),
]


@pytest.mark.parametrize(
    ("name", "value", "expected"), OF_ALL + OF_QUEUES_AND_TOPICS + OF_QUEUES_AND_SUBSCRIPTIONS
)
def test_every_property_of_a_queue_is_taken(config, name, value, expected):
    """Also those the emulator has no name for, and values beyond its small quotas."""
    path = config([a_queue(**{name: value}), a_queue("other")])
    assert replace(QUEUE, **expected) == entities(path)["q"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *OF_ALL,
        *OF_QUEUES_AND_TOPICS,
        (
            "FilteringMessagesBeforePublishing",
            True,
            {"filtering_messages_before_publishing": True},
        ),
    ],
)
def test_every_property_of_a_topic_is_taken(config, name, value, expected):
    """A topic has neither lock nor delivery count."""
    assert replace(TOPIC, **expected) == entities(config(topics=[a_topic(**{name: value})]))["t"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *OF_ALL,
        *OF_QUEUES_AND_SUBSCRIPTIONS,
        (
            "DeadLetteringOnFilterEvaluationExceptions",
            False,
            {"dead_lettering_on_filter_errors": False},
        ),
    ],
)
def test_every_property_of_a_subscription_is_taken(config, name, value, expected):
    """A subscription is a queue in all but duplicate detection."""
    path = config([a_queue("other")], [a_topic(a_subscription(**{name: value}))])
    assert replace(SUBSCRIPTION, **expected) == entities(path)["t/Subscriptions/s"]


@pytest.mark.parametrize(
    ("properties", "filter_", "action"),
    [
        (
            {
                "FilterType": "Correlation",
                "CorrelationFilter": {
                    "ContentType": "a",
                    "CorrelationId": "b",
                    "Label": "c",
                    "MessageId": "d",
                    "ReplyTo": "e",
                    "ReplyToSessionId": "f",
                    "SessionId": "g",
                    "To": "h",
                    "Properties": {"text": "i", "number": 1, "real": 1.5, "truth": True},
                },
            },
            CorrelationFilter(
                content_type="a",
                correlation_id="b",
                label="c",
                message_id="d",
                reply_to="e",
                reply_to_session_id="f",
                session_id="g",
                to="h",
                properties={"text": "i", "number": 1, "real": 1.5, "truth": True},
            ),
            None,
        ),
        ({"FilterType": "sql", "SqlFilter": {"SqlExpression": "1=1"}}, SqlFilter("1=1"), None),
        (
            {
                "FilterType": "Sql",
                "SqlFilter": {"SqlExpression": "a > 1"},
                "Action": {"SqlExpression": "SET b = 1"},
            },
            SqlFilter("a > 1"),
            SqlAction("SET b = 1"),
        ),
    ],
)
def test_rules_replace_the_one_that_takes_everything(config, properties, filter_, action):
    """If rules are listed, only the messages that they select are received."""
    path = config(topics=[a_topic(a_subscription(rules=[a_rule(**properties)]))])
    assert (RuleDefinition("r", filter_, action),) == entities(path)["t/Subscriptions/s"].rules


def test_an_empty_list_of_rules_takes_everything(config):
    """The same as without a list of rules."""
    path = config(topics=[a_topic(a_subscription(rules=[]))])
    assert entities(path)["t/Subscriptions/s"].rules == CATCH_ALL


def test_the_default_lock_duration_of_the_settings_is_not_this_files(tmp_path):
    """It has its own default, which the emulator's users rely on."""
    path = tmp_path / "Config.json"
    content = {"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [a_queue()]}]}}
    path.write_text(json.dumps(content))
    loaded = read(path, default_lock_duration="10s")
    assert 10_000 == loaded.settings.default_lock_duration_ms
    assert 60_000 == loaded.topology.namespaces["n"]["q"].lock_duration_ms


def test_names_of_properties_may_have_any_case(config):
    """The emulator is written in .NET, whose readers do not look at case."""
    path = config([{"name": "q", "properties": {"lockduration": "PT10S"}}])
    assert 10_000 == entities(path)["q"].lock_duration_ms


def test_more_namespaces_and_other_names_are_taken(tmp_path):
    """The first one answers on any host name; their names are parts of host names, in lower case."""
    path = tmp_path / "Config.json"
    namespaces = [{"Name": "Mine", "Queues": [a_queue()]}, {"Name": "yours"}]
    path.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
    assert {"mine": {"q": QUEUE}, "yours": {}} == read(path).topology.namespaces


@pytest.mark.parametrize(
    "name", ["a~b", "a/b/c", "a_b-c.d", "x", "été", "MassTransit.Fault--Order--", "1"]
)
def test_names_the_cloud_takes_are_taken(config, name):
    """The emulator refuses some of them."""
    assert [name] == list(entities(config([a_queue(name)])))


@pytest.mark.parametrize("name", ["settings", "Settings"])
def test_settings_may_stand_beside_the_entities(tmp_path, name):
    """They are taken from a file of either form, and then without a warning. Names in this form have no case."""
    path = tmp_path / "Config.json"
    user_config = {"Namespaces": [{"Name": "sbemulatorns"}]}
    path.write_text(json.dumps({"UserConfig": user_config, name: {"amqp_port": 1}}))
    loaded = read(path)
    assert (1, ()) == (loaded.settings.amqp_port, loaded.warnings)


def test_what_is_not_known_is_a_warning(config):
    """The emulator overlooks it, so the file still works; a likely meaning is offered."""
    loaded = read(config([a_queue(LockDuraton="PT10S")], Colour="blue"))
    assert {
        f"{NAMESPACE}.Colour": "there is no such property",
        f"{NAMESPACE}.Queues[0].Properties.LockDuraton": (
            "there is no such property; did you mean 'LockDuration'?"
        ),
    } == {one.where: one.text for one in loaded.warnings}
    assert QUEUE == loaded.topology.namespaces["sbemulatorns"]["q"]


QUEUE_AT = f"1: {NAMESPACE}.Queues[0]"
PROPERTIES_AT = f"{QUEUE_AT}.Properties"


@pytest.mark.parametrize(
    ("expected", "queue"),
    [
        ("LockDuration: 'PT4S' is not allowed; expected a duration from PT5S to PT5M", {"LockDuration": "PT4S"}),
        ("LockDuration: 'PT5M1S' is not allowed; expected a duration from PT5S to PT5M", {"LockDuration": "PT5M1S"}),
        ("LockDuration: '1 minute' is not allowed; expected a duration from PT5S to PT5M", {"LockDuration": "1 minute"}),
        ("LockDuration: 60 is not allowed; expected a duration from PT5S to PT5M", {"LockDuration": 60}),
        ("MaxDeliveryCount: 0 is not allowed; expected a whole number from 1 to 2147483647", {"MaxDeliveryCount": 0}),
        ("MaxDeliveryCount: '3' is not allowed; expected a whole number from 1 to 2147483647", {"MaxDeliveryCount": "3"}),
        ("MaxDeliveryCount: 2.5 is not allowed; expected a whole number from 1 to 2147483647", {"MaxDeliveryCount": 2.5}),
        ("MaxDeliveryCount: true is not allowed; expected a whole number from 1 to 2147483647", {"MaxDeliveryCount": True}),
        ("DefaultMessageTimeToLive: 'PT0S' is not allowed; expected a duration of PT1S or longer", {"DefaultMessageTimeToLive": "PT0S"}),
        ("AutoDeleteOnIdle: 'PT1M' is not allowed; expected a duration of PT5M or longer", {"AutoDeleteOnIdle": "PT1M"}),
        ("DuplicateDetectionHistoryTimeWindow: 'P8D' is not allowed; expected a duration from PT5S to P7D", {"DuplicateDetectionHistoryTimeWindow": "P8D"}),
        ("MaxSizeInMegabytes: 0 is not allowed; expected a whole number from 1 to 2147483647", {"MaxSizeInMegabytes": 0}),
        ("MaxMessageSizeInKilobytes: 102401 is not allowed; expected a whole number from 1 to 102400", {"MaxMessageSizeInKilobytes": 102_401}),
        ("RequiresSession: 'true' is not allowed; expected true or false", {"RequiresSession": "true"}),
        ("Status: 'Enabled' is not allowed; expected Active or Disabled or SendDisabled or ReceiveDisabled", {"Status": "Enabled"}),
        ("UserMetadata: a list is not allowed; expected text of at most 1024 characters", {"UserMetadata": []}),
        ("ForwardTo: 7 is not allowed; expected the name of a queue or topic", {"ForwardTo": 7}),
    ],
)  # fmt: skip
def test_a_wrong_property_is_reported_with_what_is_allowed(config, expected, queue):
    """The line, the path in the file, the value and the range."""
    path = config([a_queue(**queue), a_queue("other")], [a_topic(a_subscription())])
    assert [f"{PROPERTIES_AT}.{expected}"] == mistakes(path)


RULE_AT = f"1: {NAMESPACE}.Topics[0].Subscriptions[0].Rules[0]"


@pytest.mark.parametrize(
    ("expected", "properties"),
    [
        ("ForwardTo: there is no queue or topic 'othr' to forward to; did you mean 'other'?", {"ForwardTo": "othr"}),
        ("ForwardDeadLetteredMessagesTo: there is no queue or topic 'errors' to forward to", {"ForwardDeadLetteredMessagesTo": "errors"}),
        ("ForwardTo: there is no queue or topic 't/Subscriptions/s' to forward to; did you mean 't'?", {"ForwardTo": "t/Subscriptions/s"}),
        ("ForwardTo: 'q' forwards to itself: what is forwarded too often is dead-lettered", {"ForwardTo": "Q"}),
        ("ForwardDeadLetteredMessagesTo: 'q' forwards to itself: what is forwarded too often is dead-lettered", {"ForwardDeadLetteredMessagesTo": "q"}),
    ],
)  # fmt: skip
def test_forwarding_that_leads_nowhere_is_a_warning(config, expected, properties):
    """The emulator takes such a file, and Aspire writes it; the target may be created later."""
    path = config([a_queue(**properties), a_queue("other")], [a_topic(a_subscription())])
    assert [f"1: UserConfig.Namespaces[0].Queues[0].Properties.{expected}"] == warnings(path)
    definition = entities(path)["q"]
    (target,) = properties.values()
    forwarded = definition.forward_to or definition.forward_dead_letters_to
    assert target.lower() == forwarded.lower()


def test_what_requires_sessions_may_forward(config):
    """Service Bus accepts it."""
    path = config([a_queue(RequiresSession=True, ForwardTo="other"), a_queue("other")])
    assert "other" == entities(path)["q"].forward_to


@pytest.mark.parametrize(
    ("expected", "rule"),
    [
        (": SqlFilter is missing: the rule takes every message", a_rule(FilterType="Sql", CorrelationFilter={})),
        (": SqlFilter is missing: the rule takes every message", a_rule(FilterType="Sql", CorrelationFilter={"Label": "a"})),
        (": CorrelationFilter is missing: the rule takes every message", a_rule(FilterType="Correlation")),
        (": SqlFilter is missing: the rule takes every message", a_rule(FilterType="Sql", SqlFilter=None)),
        (": CorrelationFilter is missing: the rule takes every message", a_rule(FilterType="Correlation", CorrelationFilter=None)),
        (".CorrelationFilter: names no property to compare: the rule takes every message", a_rule(FilterType="Correlation", CorrelationFilter={})),
        (".CorrelationFilter: names no property to compare: the rule takes every message", a_rule(FilterType="Correlation", CorrelationFilter={"Properties": {}})),
    ],
)  # fmt: skip
def test_a_rule_without_a_filter_takes_every_message(config, expected, rule):
    """Aspire writes rules so; the service's own default filter is true."""
    path = config([], [a_topic(a_subscription(rules=[rule]))])
    where = "UserConfig.Namespaces[0].Topics[0].Subscriptions[0].Rules[0].Properties"
    assert [f"1: {where}{expected}"] == warnings(path)
    assert (RuleDefinition("r", TrueFilter()),) == entities(path)["t/Subscriptions/s"].rules


ASPIRE = """{"UserConfig":{"Namespaces":[{"Name":"sbemulatorns","Queues":[
{"Name":"queue1","Properties":{"DeadLetteringOnMessageExpiration":false,
"DefaultMessageTimeToLive":"P10675199DT2H48M5.4775807S",
"DuplicateDetectionHistoryTimeWindow":"PT1.5M","ForwardDeadLetteredMessagesTo":"errors",
"LockDuration":"PT1M","MaxDeliveryCount":10,"RequiresSession":false}}],
"Topics":[{"Name":"topic1","Properties":{},"Subscriptions":[{"Name":"sub1",
"Properties":{"MaxDeliveryCount":10,"IsClientAffine":false},"Rules":[
{"Name":"app-prop-filter-1","Properties":{"FilterType":"Correlation","CorrelationFilter":
{"Properties":{"region":"eu","size":3},"CorrelationId":"id1","MessageId":"msgid1","To":"xyz",
"ReplyTo":"someQueue","Label":"subject1","SessionId":"session1","ReplyToSessionId":"sessionId",
"ContentType":"application/text","RequiresPreprocessing":true}}},
{"Name":"by-sql","Properties":{"FilterType":"Sql","CorrelationFilter":{}}},
{"Name":"bare","Properties":{"FilterType":"Correlation","CorrelationFilter":{}}}]}]}]}],
"Logging":{"Type":"File"}}}""".replace("PT1.5M", "PT1M30S")
"""In the order and the spelling of Aspire's writer, which puts all of it into one line."""


def test_a_file_that_aspire_wrote_is_taken(tmp_path):
    """With warnings where it says less than it means."""
    path = tmp_path / "Config.json"
    path.write_text(ASPIRE.replace("\n", ""))
    found = entities(path)
    assert ["queue1", "topic1", "topic1/Subscriptions/sub1"] == list(found)
    assert "errors" == found["queue1"].forward_dead_letters_to
    assert UNLIMITED_MS == found["queue1"].default_time_to_live_ms
    given, by_sql, bare = found["topic1/Subscriptions/sub1"].rules
    assert ("id1", {"region": "eu", "size": 3}) == (
        given.filter.correlation_id,
        given.filter.properties,
    )
    assert (TrueFilter(), TrueFilter()) == (by_sql.filter, bare.filter)
    told = "\n".join(warnings(path))
    for word in ("'errors'", "IsClientAffine", "RequiresPreprocessing", "SqlFilter is missing"):
        assert word in told


@pytest.mark.parametrize(
    ("expected", "rule"),
    [
        (": Name is missing", {"Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}}),
        (".Name: 'a/b' is not a valid name: '/' is not allowed", a_rule("a/b", FilterType="Sql", SqlFilter={"SqlExpression": "1=1"})),
        (": Properties is missing", {"Name": "r"}),
        (".Properties: FilterType is missing; expected Correlation or Sql", a_rule(SqlFilter={"SqlExpression": "1=1"})),
        (".Properties.FilterType: 'SqlFilter' is not allowed; expected Correlation or Sql; did you mean 'Sql'?", a_rule(FilterType="SqlFilter", SqlFilter={"SqlExpression": "1=1"})),
        (".Properties.FilterType: 'Corelation' is not allowed; expected Correlation or Sql; did you mean 'Correlation'?", a_rule(FilterType="Corelation")),
        (".Properties.SqlFilter: SqlExpression is missing", a_rule(FilterType="Sql", SqlFilter={})),
        (".Properties.SqlFilter: SqlExpression is missing", a_rule(FilterType="Sql", SqlFilter={"SqlExpression": None})),
        (".Properties.Action: SqlExpression is missing", a_rule(FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}, Action={"SqlExpression": None})),
        (": Name is missing", a_rule(None, FilterType="Sql", SqlFilter={"SqlExpression": "1=1"})),
        (": Properties is missing", {"Name": "r", "Properties": None}),
        (": expected an item, found nothing", None),
        (".Properties.SqlFilter.SqlExpression: expected text, found ''", a_rule(FilterType="Sql", SqlFilter={"SqlExpression": ""})),
        (".Properties.SqlFilter: expected a mapping, found '1=1'", a_rule(FilterType="Sql", SqlFilter="1=1")),
        (".Properties.Action: SqlExpression is missing", a_rule(FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}, Action={})),
        (".Properties.CorrelationFilter.Label: expected text, found 1", a_rule(FilterType="Correlation", CorrelationFilter={"Label": 1})),
        (".Properties.CorrelationFilter.Properties.a: expected text, a number, true or false, found a list", a_rule(FilterType="Correlation", CorrelationFilter={"Properties": {"a": []}})),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_reported(config, expected, rule):
    """A rule that is overlooked would let every message through, so it is never overlooked."""
    path = config(topics=[a_topic(a_subscription(rules=[rule]))])
    assert [f"{RULE_AT}{expected}"] == mistakes(path)


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        ("a name may not be empty", None),
        ("'#' is not allowed", "a#b"),
        ("'?' is not allowed", "a?"),
        ("white space is not allowed", "a b"),
        ("'\\' is not allowed", "a\\b"),
        ("'/' is allowed only between other characters", "/a"),
        ("'/' is allowed only between other characters", "a//b"),
        ("names that begin with '$' are reserved", "$cbs"),
        ("'Subscriptions' is reserved for the subscriptions of a topic", "a/subscriptions/b"),
        ("261 characters are too many; at most 260 are allowed", "a" * 261),
    ],
)
def test_a_wrong_name_is_reported(config, expected, name):
    """With what is wrong about it."""
    path = config([a_queue(name)] if name else [{"Name": ""}])
    if name is None:
        assert [f"{QUEUE_AT}.Name: expected text, found ''"] == mistakes(path)
    else:
        assert [f"{QUEUE_AT}.Name: {name!r} is not a valid name: {expected}"] == mistakes(path)


@pytest.mark.parametrize(
    ("where", "text", "queues", "topics"),
    [
        (f"{NAMESPACE}.Queues[1]", "the name 'Q' is taken", [a_queue(), a_queue("Q")], []),
        (f"{NAMESPACE}.Topics[0]", "the name 'Q' is taken", [a_queue()], [a_topic(name="Q")]),
        (
            f"{NAMESPACE}.Topics[0].Subscriptions[1]",
            "the name 't/Subscriptions/S' is taken",
            [],
            [a_topic(a_subscription(), a_subscription("S"))],
        ),
        (
            f"{NAMESPACE}.Topics[0].Subscriptions[0]",
            "two rules have the name 'r'",
            [],
            [
                a_topic(
                    a_subscription(
                        rules=[
                            a_rule("r", FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}),
                            a_rule("R", FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}),
                        ]
                    )
                )
            ],
        ),
    ],
)
def test_names_are_taken_without_regard_to_case(config, where, text, queues, topics):
    """In Service Bus, Orders and orders are one name, and queues and topics share their names."""
    (found,) = mistakes(config(queues, topics))
    assert found.startswith(f"1: {where}: {text}")


def test_two_namespaces_of_one_name_are_a_mistake(tmp_path):
    """Host names do not look at case either."""
    path = tmp_path / "Config.json"
    namespaces = [{"Name": "a"}, {"Name": "A"}]
    path.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
    assert ["1: UserConfig.Namespaces[1]: there are two namespaces 'a'"] == mistakes(path)


@pytest.mark.parametrize(
    ("circles", "queues", "topics"),
    [
        (["a → b → a"], [a_queue("a", ForwardTo="b"), a_queue("b", ForwardTo="a")], []),
        (
            ["a → b → c → a"],
            [a_queue("a", ForwardTo="b"), a_queue("b", ForwardTo="c"), a_queue("c", ForwardTo="a")],
            [],
        ),
        (
            ["a → b → a", "c → d → c"],
            [a_queue(one, ForwardTo=other) for one, other in ("ab", "ba", "cd", "dc")],
            [],
        ),
        (
            ["q → t → t/Subscriptions/s → q"],
            [a_queue(ForwardTo="t")],
            [a_topic(a_subscription(ForwardTo="q"))],
        ),
        (["t → t/Subscriptions/s → t"], [], [a_topic(a_subscription(ForwardTo="t"))]),
    ],
)
def test_forwarding_in_a_circle_is_a_warning(config, circles, queues, topics):
    """Service Bus accepts it. Each circle is reported, through queues and topics."""

    def turned(trail: str) -> frozenset[tuple[str, str]]:
        stops = trail.split(" → ")
        return frozenset(pairwise(stops))

    found = warnings(config(queues, topics))
    told = {turned(one.partition("in a circle: ")[2].partition(";")[0]) for one in found}
    assert {turned(circle) for circle in circles} == told
    assert all(".Properties.ForwardTo: " in one for one in found)


def test_long_ways_and_forks_without_a_circle_are_fine(config):
    """Two ways to one queue are no circle."""
    path = config(
        [a_queue("a", ForwardTo="t"), a_queue("b", ForwardTo="t"), a_queue("end")],
        [a_topic(a_subscription("s1", ForwardTo="end"), a_subscription("s2", ForwardTo="end"))],
    )
    assert "end" == entities(path)["t/Subscriptions/s1"].forward_to


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        ("1: UserConfig is missing", {}),
        ("1: UserConfig is missing", {"UserConfg": {"Namespaces": []}}),
        ("1: UserConfig: Namespaces is missing", {"UserConfig": {}}),
        ("1: UserConfig: expected one namespace at least", {"UserConfig": {"Namespaces": []}}),
        (
            "1: UserConfig.Namespaces: expected a list, found a mapping",
            {"UserConfig": {"Namespaces": {"Name": "a"}}},
        ),
        (f"1: {NAMESPACE}: Name is missing", {"UserConfig": {"Namespaces": [{"Queues": []}]}}),
        (f"1: {NAMESPACE}: Name is missing", {"UserConfig": {"Namespaces": [{"Name": None}]}}),
        (
            f"1: {NAMESPACE}: expected an item, found nothing",
            {"UserConfig": {"Namespaces": [None]}},
        ),
        ("1: UserConfig is missing", {"UserConfig": None}),
        ("1: UserConfig: Namespaces is missing", {"UserConfig": {"Namespaces": None}}),
        (
            (
                f"1: {NAMESPACE}.Name: 'a.' is not a valid name: letters, digits, hyphens and dots "
                "are allowed, a letter or digit first and last"
            ),
            {"UserConfig": {"Namespaces": [{"Name": "a."}]}},
        ),
        (
            f"1: {NAMESPACE}.Queues[0]: expected a mapping, found 'q'",
            {"UserConfig": {"Namespaces": [{"Name": "a", "Queues": ["q"]}]}},
        ),
    ],
)
def test_a_file_of_the_wrong_shape_is_reported(tmp_path, expected, content):
    """Each level says what it expects."""
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(content))
    assert expected in mistakes(path)


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines(tmp_path):
    """One start, one list: not one mistake a start."""
    path = tmp_path / "Config.json"
    path.write_text(
        """{
        "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns",
            "Queues": [
                { "Name": "a", "Properties": { "LockDuration": "PT1S" } },
                { "Name": "b", "Properties": { "ForwardTo": 7 } },
                { "Name": "A", "Properties": { "MaxDeliveryCount": -1 } }
            ] } ] } }"""
    )
    lines = [int(one.partition(":")[0]) for one in mistakes(path, amqp_port="no") if one[0] != "-"]
    assert [4, 5, 6, 6] == lines


@pytest.mark.parametrize("kind", ["Queues", "Topics"])
def test_an_entity_that_is_null_or_has_no_name_is_a_mistake(config, kind):
    """It would be left out, and clients would not find it."""
    assert [
        f"1: {NAMESPACE}.{kind}[0]: expected an item, found nothing",
        f"1: {NAMESPACE}.{kind}[1]: Name is missing",
    ] == mistakes(config(**{kind: [None, {"Name": None}]}))


def test_optional_members_may_be_null(config):
    path = config(
        [{"Name": "q", "Properties": None}],
        [{"Name": "t", "Subscriptions": [{"Name": "s", "Properties": None, "Rules": None}]}],
        Queues=None,
    )
    assert {"t": TOPIC, "t/Subscriptions/s": SUBSCRIPTION} == entities(path)
