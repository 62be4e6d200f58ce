"""Python's stock administration client, unmodified, against the HTTP side over TLS."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from broker.core.contract.commands import CreateEntity, GetEntity
from config.model.definitions import QueueDefinition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.harness import HttpHarness

KEYS = [
    AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        key_name="reader",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
        rights=[AccessRights.LISTEN],
    )
]

QUEUE = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=1, minutes=11, seconds=2, milliseconds=345),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": "café & <metadata>",
    "max_message_size_in_kilobytes": 2048,
}
"""Every property of a queue that does not forward, none at its default."""


def test_a_queue_reads_back_with_every_property_it_was_created_with(admin):
    """What `create_queue` was given, `create_queue` and `get_queue` return."""
    created = admin.create_queue("every-property", authorization_rules=KEYS, **QUEUE)
    read = admin.get_queue("every-property")
    for properties in (created, read):
        assert {name: getattr(properties, name) for name in QUEUE} == QUEUE
        assert "every-property" == properties.name
        assert EntityStatus.ACTIVE == properties.status
        assert "Available" == properties.availability_status
        (rule,) = properties.authorization_rules
        assert ("reader", "cHJpbWFyeQ==", "c2Vjb25kYXJ5") == (
            rule.key_name,
            rule.primary_key,
            rule.secondary_key,
        )
        assert [AccessRights.LISTEN] == rule.rights


def test_a_queue_created_with_nothing_has_the_defaults(admin):
    """Thirty seconds of lock, ten deliveries, no end of life."""
    queue = admin.create_queue("defaults")
    assert timedelta(seconds=30) == queue.lock_duration
    assert 10 == queue.max_delivery_count
    assert 1024 == queue.max_size_in_megabytes
    assert 10_675_199 == queue.default_message_time_to_live.days
    assert 10_675_199 == queue.auto_delete_on_idle.days
    assert timedelta(minutes=10) == queue.duplicate_detection_history_time_window
    assert (False, False, False) == (
        queue.requires_session,
        queue.requires_duplicate_detection,
        queue.enable_partitioning,
    )
    assert not queue.authorization_rules
    assert queue.forward_to is None


def test_an_update_changes_what_was_changed_and_nothing_else(admin):
    """`update_queue` replays all it read; unlimited stays unlimited although Python rounds it."""
    queue = admin.create_queue("update-me", authorization_rules=KEYS)
    queue.lock_duration = timedelta(seconds=45)
    queue.status = EntityStatus.RECEIVE_DISABLED
    queue.user_metadata = "changed"
    admin.update_queue(queue)
    read = admin.get_queue("update-me")
    assert timedelta(seconds=45) == read.lock_duration
    assert EntityStatus.RECEIVE_DISABLED == read.status
    assert "changed" == read.user_metadata
    assert 10_675_199 == read.default_message_time_to_live.days
    assert "reader" == read.authorization_rules[0].key_name
    admin.update_queue(read, user_metadata="again", lock_duration="PT10S")
    assert ("again", timedelta(seconds=10)) == (
        admin.get_queue("update-me").user_metadata,
        admin.get_queue("update-me").lock_duration,
    )


def test_forwarding_is_given_by_name_and_shown_as_an_address(admin, harness: HttpHarness):
    """Clients send `sb://host/name`; the core gets the name alone."""
    admin.create_queue("forward/target")
    queue = admin.create_queue(
        "forwards",
        forward_to="forward/target",
        forward_dead_lettered_messages_to="forward/target",
    )
    address = f"sb://localhost:{harness.tls_port}/forward/target"
    assert address == queue.forward_to
    assert address == queue.forward_dead_lettered_messages_to
    view = harness.ask(lambda peer, mark: GetEntity(peer, mark, "forwards"))
    assert "forward/target" == view.definition.forward_to


def test_an_entity_can_be_updated_when_its_destination_is_gone(admin):
    """Only what is asked for anew has to exist, and has to take messages."""
    admin.create_queue("short-lived")
    queue = admin.create_queue("outlives", forward_to="short-lived")
    admin.delete_queue("short-lived")
    admin.update_queue(queue, user_metadata="changed")
    assert "changed" == admin.get_queue("outlives").user_metadata
    admin.create_topic("many")
    admin.create_subscription("many", "one")
    for destination in ("nowhere", "many/subscriptions/one"):
        with pytest.raises(HttpResponseError) as refusal:
            admin.update_queue(queue, forward_to=destination)
        assert 400 == refusal.value.status_code


def test_runtime_properties_count_and_date(admin):
    """Every number the client shows is there, also for an empty queue."""
    admin.create_queue("counted")
    runtime = admin.get_queue_runtime_properties("counted")
    assert (0, 0, 0, 0, 0, 0) == (
        runtime.active_message_count,
        runtime.dead_letter_message_count,
        runtime.scheduled_message_count,
        runtime.transfer_message_count,
        runtime.transfer_dead_letter_message_count,
        runtime.total_message_count,
    )
    assert 0 == runtime.size_in_bytes
    age = datetime.now(UTC) - runtime.created_at_utc
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert runtime.created_at_utc <= runtime.updated_at_utc


def test_a_topic_reads_back_with_every_property_it_was_created_with(admin):
    """What `create_topic` was given, `get_topic` returns."""
    names = {
        "auto_delete_on_idle",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "enable_batched_operations",
        "enable_express",
        "enable_partitioning",
        "max_size_in_megabytes",
        "requires_duplicate_detection",
        "user_metadata",
        "max_message_size_in_kilobytes",
    }
    given = {name: QUEUE[name] for name in names} | {"support_ordering": False}
    admin.create_topic("topic-with-all", authorization_rules=KEYS, **given)
    topic = admin.get_topic("topic-with-all")
    assert given == {name: getattr(topic, name) for name in given}
    assert "reader" == topic.authorization_rules[0].key_name
    topic.default_message_time_to_live = timedelta(hours=1)
    admin.update_topic(topic)
    assert timedelta(hours=1) == admin.get_topic("topic-with-all").default_message_time_to_live


def test_a_subscription_reads_back_with_every_property_it_was_created_with(admin):
    """What `create_subscription` was given, `get_subscription` returns."""
    given = {
        "lock_duration": timedelta(seconds=20),
        "requires_session": True,
        "default_message_time_to_live": timedelta(hours=2),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 7,
        "enable_batched_operations": False,
        "user_metadata": "of a subscription",
        "auto_delete_on_idle": timedelta(minutes=6),
    }
    admin.create_topic("news")
    admin.create_subscription("news", "all", **given)
    subscription = admin.get_subscription("news", "all")
    assert given == {name: getattr(subscription, name) for name in given}
    assert "all" == subscription.name
    subscription.max_delivery_count = 8
    admin.update_subscription("news", subscription)
    assert 8 == admin.get_subscription("news", "all").max_delivery_count
    assert ["$Default"] == [rule.name for rule in admin.list_rules("news", "all")]
    assert 0 == admin.get_subscription_runtime_properties("news", "all").total_message_count


def test_a_topic_counts_its_subscriptions_and_their_filters(admin):
    """Runtime properties of a topic, the newest ones included."""
    admin.create_topic("counting")
    for name in ("a", "b"):
        admin.create_subscription("counting", name)
    admin.create_rule("counting", "b", "by-label", filter=CorrelationRuleFilter(label="x"))
    runtime = admin.get_topic_runtime_properties("counting")
    assert (2, 2, 1) == (
        runtime.subscription_count,
        runtime.sql_filter_count,
        runtime.correlation_filter_count,
    )
    assert 0 == runtime.scheduled_message_count


def test_lists_come_in_pages_and_lose_nothing(admin, harness: HttpHarness):
    """250 queues take three requests; each is listed once, in order of name."""
    names = [f"paged/{number:03}" for number in range(250)]
    for name in names:
        harness.ask(functools.partial(CreateEntity, path=name, definition=QueueDefinition()))
    assert names == [queue.name for queue in admin.list_queues() if queue.name.startswith("paged/")]
    runtime = admin.list_queues_runtime_properties(max_page_size=70)
    assert names == [queue.name for queue in runtime if queue.name.startswith("paged/")]
    first_page = next(admin.list_queues(max_page_size=7).by_page())
    assert 7 == len(list(first_page))


def test_topics_subscriptions_and_rules_are_listed(admin):
    """Each list holds its own kind alone."""
    admin.create_topic("list-topic")
    for name in ("one", "two"):
        admin.create_subscription("list-topic", name)
    admin.create_rule("list-topic", "one", "extra")
    assert "list-topic" in [topic.name for topic in admin.list_topics()]
    assert "list-topic" not in [queue.name for queue in admin.list_queues()]
    assert ["one", "two"] == [one.name for one in admin.list_subscriptions("list-topic")]
    assert ["$Default", "extra"] == [rule.name for rule in admin.list_rules("list-topic", "one")]
    runtime = list(admin.list_subscriptions_runtime_properties("list-topic"))
    assert ["one", "two"] == [one.name for one in runtime]
    admin.create_topic("no-subscriptions")
    assert [] == list(admin.list_subscriptions("no-subscriptions"))


def test_what_is_deleted_is_gone(admin):
    """Deleting answers 200; getting and deleting again do not find it."""
    admin.create_topic("gone-topic")
    admin.create_subscription("gone-topic", "sub")
    admin.create_rule("gone-topic", "sub", "rule")
    admin.delete_rule("gone-topic", "sub", "rule")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule("gone-topic", "sub", "rule")
    admin.delete_subscription("gone-topic", "sub")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription("gone-topic", "sub")
    admin.delete_topic("gone-topic")
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic("gone-topic")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_topic("gone-topic")


def test_what_never_was_is_not_found(admin):
    """Every operation on something missing raises the client's not-found error."""
    admin.create_topic("lonely")
    admin.create_subscription("lonely", "sub")
    for operation in (
        lambda: admin.get_queue("missing"),
        lambda: admin.delete_queue("missing"),
        lambda: admin.get_topic_runtime_properties("missing"),
        lambda: admin.create_subscription("missing", "sub"),
        lambda: list(admin.list_subscriptions("missing")),
        lambda: list(admin.list_rules("lonely", "missing")),
        lambda: admin.create_rule("lonely", "missing", "rule"),
        lambda: admin.get_rule("lonely", "sub", "missing"),
        lambda: admin.delete_rule("lonely", "sub", "missing"),
    ):
        with pytest.raises(ResourceNotFoundError):
            operation()


def test_updating_what_is_missing_is_not_found(admin):
    """An update never creates."""
    queue = admin.create_queue("short-lived")
    admin.delete_queue("short-lived")
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)
    admin.create_topic("kept")
    admin.create_subscription("kept", "sub")
    rule = admin.create_rule("kept", "sub", "rule")
    admin.delete_rule("kept", "sub", "rule")
    with pytest.raises(ResourceNotFoundError):
        admin.update_rule("kept", "sub", rule)


def test_creating_twice_is_a_conflict(admin):
    """A name can be used once, in any case and for any kind."""
    admin.create_queue("Taken")
    admin.create_topic("taken-topic")
    admin.create_subscription("taken-topic", "sub")
    for operation in (
        lambda: admin.create_queue("Taken"),
        lambda: admin.create_queue("TAKEN"),
        lambda: admin.create_topic("taken"),
        lambda: admin.create_queue("taken-topic"),
        lambda: admin.create_subscription("taken-topic", "SUB"),
        lambda: admin.create_rule("taken-topic", "sub", "$default"),
    ):
        with pytest.raises(ResourceExistsError):
            operation()


@pytest.mark.parametrize(
    "wrong",
    [
        {"lock_duration": timedelta(minutes=6)},
        {"lock_duration": timedelta(seconds=1)},
        {"max_delivery_count": 0},
        {"auto_delete_on_idle": timedelta(minutes=4)},
        {"default_message_time_to_live": timedelta(milliseconds=1)},
        {"duplicate_detection_history_time_window": timedelta(days=8)},
        {"max_size_in_megabytes": 0},
        {"max_message_size_in_kilobytes": 102_401},
        {"user_metadata": "x" * 1025},
        {"forward_to": "nowhere"},
        {"forward_dead_lettered_messages_to": "nowhere"},
        {
            "authorization_rules": [
                AuthorizationRule(type="x", key_name="k", primary_key="", rights=[])
            ]
        },
    ],
    ids="-".join,
)
def test_a_value_out_of_range_is_refused_and_creates_nothing(admin, wrong):
    """400 with a sentence that names the property; the queue does not come to be."""
    with pytest.raises(HttpResponseError) as refusal:
        admin.create_queue("wrong-value", **wrong)
    assert 400 == refusal.value.status_code
    assert "SubCode=40000" in refusal.value.message
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("wrong-value")


def test_forwarding_to_itself_and_from_sessions_is_taken(admin):
    """As the service takes it; the Python SDK's own tests do so. A subscription that forwards has
    no idle deletion any more, and a queue keeps its own."""
    idle = timedelta(minutes=10)
    admin.create_queue("itself", forward_to="itself", auto_delete_on_idle=idle)
    queue = admin.get_queue("itself")
    assert (True, idle) == (queue.forward_to.endswith("/itself"), queue.auto_delete_on_idle)
    admin.create_queue("grouped-forward", forward_to="itself", requires_session=True)
    admin.create_topic("round-topic")
    subscription = admin.create_subscription("round-topic", "s", auto_delete_on_idle=idle)
    subscription.forward_to = "round-topic"
    admin.update_subscription("round-topic", subscription)
    subscription = admin.get_subscription("round-topic", "s")
    assert subscription.forward_to.endswith("/round-topic")
    assert subscription.auto_delete_on_idle > timedelta(days=10_000_000)


@pytest.mark.parametrize("name", ["q?", "q#1", "a b", "$queue", "@me", "x" * 261, "a*b", "a\\b"])
def test_a_name_that_cannot_be_is_refused(admin, name):
    """400, and no entity of some other name is made of it."""
    with pytest.raises(HttpResponseError) as refusal:
        admin.create_queue(name)
    assert 400 == refusal.value.status_code


def test_what_is_decided_once_stays(admin):
    """Sessions, duplicate detection and partitioning cannot be changed, only repeated."""
    queue = admin.create_queue("decided", requires_session=True)
    for change in (
        {"requires_session": False},
        {"requires_duplicate_detection": True},
        {"enable_partitioning": True},
    ):
        with pytest.raises(HttpResponseError, match="cannot be changed"):
            admin.update_queue(queue, **change)
    admin.update_queue(queue, max_delivery_count=3)
    assert True is admin.get_queue("decided").requires_session


PROPERTIES: dict[str, Any] = {
    "text": "café <&> 'x'",
    "int": -7,
    "long": 2**40,
    "double": 1.5,
    "yes": True,
    "no": False,
    "moment": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "moment without a zone": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
    "duration": timedelta(days=1, seconds=2),
}
FILTERS: dict[str, Any] = {
    "true": TrueRuleFilter(),
    "false": FalseRuleFilter(),
    "sql": SqlRuleFilter("color = 'blue' AND \"q\" > 1 AND a < 3"),
    "sql-parameters": SqlRuleFilter("price > @price", parameters={"@price": 10, "@name": "n"}),
    "correlation": CorrelationRuleFilter(
        correlation_id="c",
        message_id="m",
        to="t",
        reply_to="r",
        label="l",
        session_id="s",
        reply_to_session_id="rs",
        content_type="ct",
        properties=PROPERTIES,
    ),
    "one-property": CorrelationRuleFilter(properties={"only": "one"}),
}


@pytest.fixture(scope="module")
def rules(admin: ServiceBusAdministrationClient) -> ServiceBusAdministrationClient:
    admin.create_topic("rules")
    admin.create_subscription("rules", "sub")
    return admin


@pytest.mark.parametrize("name", FILTERS)
def test_a_rule_reads_back_with_its_filter(rules, name):
    """Kind, texts and typed properties survive; so do they in a list."""
    given = FILTERS[name]
    rules.create_rule("rules", "sub", name, filter=given)
    listed = {rule.name: rule for rule in rules.list_rules("rules", "sub")}
    for rule in (rules.get_rule("rules", "sub", name), listed[name]):
        assert type(given) is type(rule.filter)
        if name not in {"true", "false"}:
            assert getattr(given, "sql_expression", None) == getattr(
                rule.filter, "sql_expression", None
            )
        for attribute in (
            *("correlation_id", "message_id", "to", "reply_to", "label", "session_id"),
            *("reply_to_session_id", "content_type"),
        ):
            assert getattr(given, attribute, None) == getattr(rule.filter, attribute, None)
        for attribute in ("properties", "parameters"):
            assert (getattr(given, attribute, None) or {}) == dict(
                getattr(rule.filter, attribute, None) or {}
            )
        assert rule.action is None
        assert name == rule.name


def test_a_rule_reads_back_with_its_action(rules):
    """An SQL action with parameters."""
    action = SqlRuleAction("SET sys.Label = @label", parameters={"@label": "new"})
    rules.create_rule("rules", "sub", "acting", filter=TrueRuleFilter(), action=action)
    read = rules.get_rule("rules", "sub", "acting").action
    assert action.sql_expression == read.sql_expression
    assert action.parameters == dict(read.parameters)


def test_a_rule_can_be_updated(rules):
    """The new filter takes the place of the old one; the rule keeps its name and there is one."""
    rule = rules.create_rule("rules", "sub", "changing", filter=SqlRuleFilter("a = 1"))
    rule.filter = CorrelationRuleFilter(label="blue")
    rule.action = SqlRuleAction("REMOVE b")
    rules.update_rule("rules", "sub", rule)
    read = rules.get_rule("rules", "sub", "changing")
    assert "blue" == read.filter.label
    assert "REMOVE b" == read.action.sql_expression
    names = [rule.name for rule in rules.list_rules("rules", "sub")]
    assert 1 == names.count("changing")


@pytest.mark.parametrize("expression", ["a = ", "SELECT 1", ""])
def test_an_sql_filter_that_makes_no_sense_is_refused(rules, expression):
    """400; the rule does not come to be, and an update to it leaves the old rule."""
    with pytest.raises(HttpResponseError) as refusal:
        rules.create_rule("rules", "sub", "senseless", filter=SqlRuleFilter(expression))
    assert 400 == refusal.value.status_code
    with pytest.raises(ResourceNotFoundError):
        rules.get_rule("rules", "sub", "senseless")


def test_names_with_slashes_and_tildes_work_everywhere(admin):
    """Python sends `%2F` for the slash; lists give the name back as it was."""
    admin.create_queue("a/b~c/d.e-f_g")
    assert "a/b~c/d.e-f_g" == admin.get_queue("a/b~c/d.e-f_g").name
    assert "a/b~c/d.e-f_g" in [queue.name for queue in admin.list_queues()]
    admin.create_topic("t/o~p")
    admin.create_subscription("t/o~p", "s~1")
    admin.create_rule("t/o~p", "s~1", "r~1")
    assert "r~1" == admin.get_rule("t/o~p", "s~1", "r~1").name
    assert ["s~1"] == [one.name for one in admin.list_subscriptions("t/o~p")]
    assert ["$Default", "r~1"] == [rule.name for rule in admin.list_rules("t/o~p", "s~1")]
    admin.delete_topic("t/o~p")


def test_the_namespace_describes_itself(admin):
    """Name, tier and the time of its creation."""
    namespace = admin.get_namespace_properties()
    assert ("sbemulatorns", "Premium", 1) == (
        namespace.name,
        namespace.messaging_sku,
        namespace.messaging_units,
    )
    assert namespace.created_at_utc <= datetime.now(UTC)


@pytest.mark.parametrize("version", list(ApiVersion))
def test_older_api_versions_work(harness: HttpHarness, authority_file: Path, version):
    """A client of any api-version creates, lists and reads."""
    with ServiceBusAdministrationClient.from_connection_string(
        harness.connection_string, api_version=version, connection_verify=str(authority_file)
    ) as old:
        name = f"version-{version.value}"
        old.create_topic(name)
        old.create_subscription(name, "sub", lock_duration=timedelta(seconds=10))
        assert timedelta(seconds=10) == old.get_subscription(name, "sub").lock_duration
        assert name in [topic.name for topic in old.list_topics()]


def test_a_refused_token_is_an_authentication_error(admin, harness: HttpHarness):
    """The answer is 401 before anything else is read. The function that authorizes gets the path
    and the claim."""
    harness.refuse_token = True
    try:
        with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
            admin.get_queue("whatever")
        with pytest.raises(ClientAuthenticationError):
            admin.create_rule("topic", "sub", "rule")
    finally:
        harness.refuse_token = False
    header, path, claim = harness.authorized[-1]
    assert ("topic/subscriptions/sub/rules/rule", "Manage") == (path, claim)
    assert header is not None
    assert header.startswith("SharedAccessSignature sr=")


async def test_the_asynchronous_client_does_the_same(harness: HttpHarness, authority_file: Path):
    """The other Python client: create, update, list over pages, rules, delete."""
    async with AsyncAdministrationClient.from_connection_string(
        harness.connection_string, connection_verify=str(authority_file), retry_total=0
    ) as admin:
        topic = await admin.create_topic("async-topic")
        topic.user_metadata = "hello"
        await admin.update_topic(topic)
        assert "hello" == (await admin.get_topic("async-topic")).user_metadata
        for number in range(5):
            await admin.create_subscription("async-topic", f"s{number}")
        names = [one.name async for one in admin.list_subscriptions("async-topic", max_page_size=2)]
        assert ["s0", "s1", "s2", "s3", "s4"] == names
        await admin.create_rule("async-topic", "s0", "r", filter=FILTERS["correlation"])
        rule: Any = await admin.get_rule("async-topic", "s0", "r")
        assert PROPERTIES == dict(rule.filter.properties)
        with pytest.raises(ResourceExistsError):
            await admin.create_topic("async-topic")
        await admin.delete_topic("async-topic")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_topic("async-topic")
