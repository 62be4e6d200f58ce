"""Which subscriptions take a message, as how many copies, changed in which way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.contract.errors import ArgumentError, UndecodableMessage
from broker.core.contract.message import Message
from broker.core.contract.message_changes import MessageChanges
from broker.core.routing.compiled_rule import compile_rule
from broker.core.routing.rule_index import RoutedCopies, TopicRules
from broker.core.routing.sql import (
    EditableProperties,
    FilterError,
    MessageProperties,
    SqlSyntaxError,
)
from broker.core.routing.sql import compile_action as compile_sql_action
from config.model.definitions import (
    CorrelationFilter,
    FalseFilter,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from config.model.limits import STRICT
from tests.core.routing.filter_compilation import compile_filter
from tests.support.given_properties import GivenProperties

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Rules(TopicRules[str]):
    """The index, with a way to set all rules of a subscription at once."""

    def set(self, subscription: str, definitions: list[RuleDefinition]) -> None:
        compiled = [compile_rule(definition) for definition in definitions]
        self.remove(subscription)
        for rule in compiled:
            self.put(subscription, rule)


def topic_rules() -> Rules:
    return Rules(encode, lambda: UUID(int=9))


def encode(value: object) -> bytes:
    return repr(value).encode()


def route(rules: TopicRules[str], reader: Any, message: Message | None = None) -> dict[str, Any]:
    """What each subscription takes: its copies, and its failure if there is one."""
    routed = rules.route(message or Message(b""), reader)
    assert len(routed) == len({one.subscription for one in routed})
    return {one.subscription: one._replace(rules=()) for one in routed}


def rule_names(rules: TopicRules[str], reader: Any) -> dict[str, tuple[str, ...]]:
    """The rule of each copy."""
    return {one.subscription: one.rules for one in rules.route(Message(b""), reader)}


def takes(rule_filter: Any, reader: Any) -> bool:
    """Whether a subscription with only this filter takes the message."""
    rules = topic_rules()
    rules.set("only", [RuleDefinition("rule", rule_filter)])
    return bool(route(rules, reader))


def plain(name: str, expression: str) -> RuleDefinition:
    return RuleDefinition(name, SqlFilter(expression))


def acting(name: str, expression: str, action: str) -> RuleDefinition:
    return RuleDefinition(name, SqlFilter(expression), SqlAction(action))


# --- selection ------------------------------------------------------------------------------------


def test_a_new_subscription_takes_everything():
    """The default rule is the true filter."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("$Default")])
    assert {"a": RoutedCopies("a", (None,))} == route(rules, GivenProperties())


def test_each_copy_names_its_rule():
    """Of rules that make one copy together, one is named: a rule for everything, if there is one."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("$Default"), acting("act", "1=1", "SET x = 1")])
    rules.set("b", [RuleDefinition("red", SqlFilter("color = 'red'"))])
    red = GivenProperties({"color": "red"})
    assert {"a": ("$Default", "act"), "b": ("red",)} == rule_names(rules, red)
    rules.put("a", compile_rule(RuleDefinition("all")))
    rules.remove_rule("a", "$default")
    rules.remove_rule("a", "act")
    assert {"a": ("all",), "b": ("red",)} == rule_names(rules, red)
    rules.remove_rule("a", "all")
    assert {"b": ("red",)} == rule_names(rules, red)


def test_a_subscription_without_rules_takes_nothing():
    """With the default rule gone and no other made, no message arrives."""
    rules = topic_rules()
    rules.set("a", [])
    assert {} == route(rules, GivenProperties())


def test_a_false_filter_takes_nothing():
    """It is there to switch a subscription off."""
    assert not takes(FalseFilter(), GivenProperties())


def test_true_and_false_may_come_as_sql():
    """Clients that know only SQL filters write 1=1 and 1=0."""
    assert takes(SqlFilter("1=1"), GivenProperties())
    assert not takes(SqlFilter("1=0"), GivenProperties())
    assert not takes(SqlFilter("NULL"), GivenProperties())


def test_rules_without_action_make_one_copy_together():
    """However many of them match, the subscription gets the message once."""
    rules = topic_rules()
    rules.set("a", [plain("one", "x = 1"), plain("two", "x > 0"), plain("three", "x = 2")])
    assert {"a": RoutedCopies("a", (None,))} == route(rules, GivenProperties({"x": 1}))


def test_every_rule_with_an_action_makes_a_copy_of_its_own():
    """Two rules with actions and three without make three messages."""
    rules = topic_rules()
    rules.set(
        "a",
        [
            acting("first", "x = 1", "SET y = 1"),
            plain("one", "x = 1"),
            acting("second", "x > 0", "SET y = 2"),
            plain("two", "x > 0"),
            plain("three", "EXISTS(x)"),
            acting("third", "x = 2", "SET y = 3"),
        ],
    )
    copies = route(rules, GivenProperties({"x": 1}))["a"].copies
    assert (
        None,
        MessageChanges(properties={"y": b"1", "RuleName": b"'first'"}),
        MessageChanges(properties={"y": b"2", "RuleName": b"'second'"}),
    ) == copies


def test_copies_come_in_the_order_of_their_rules():
    """However the rules are found, by hash or by evaluation."""
    rules = topic_rules()
    label = CorrelationFilter(label="l")
    rules.set(
        "a",
        [
            acting("evaluated", "x > 0", "SET y = 1"),
            RuleDefinition("hashed", label, SqlAction("SET y = 2")),
            acting("evaluated too", "x < 2", "SET y = 3"),
        ],
    )
    copies = route(rules, GivenProperties({"x": 1}, label="l"))["a"].copies
    assert [b"1", b"2", b"3"] == [changes.properties["y"] for changes in copies]


def test_a_true_filter_beside_actions_adds_one_plain_copy():
    """The default rule left in place delivers the message as it came as well."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("$Default"), acting("b", "1=1", "SET y = 1"), plain("c", "x=1")])
    changes = MessageChanges(properties={"y": b"1", "RuleName": b"'b'"})
    assert (None, changes) == route(rules, GivenProperties({"x": 1}))["a"].copies


def test_subscriptions_choose_independently():
    """Each gets what its own rules ask for."""
    rules = topic_rules()
    rules.set("all", [RuleDefinition("$Default")])
    rules.set("red", [RuleDefinition("r", CorrelationFilter(properties={"color": "red"}))])
    rules.set("blue", [plain("r", "color = 'blue'")])
    rules.set("large", [plain("r", "size > 5")])
    reader = GivenProperties({"color": "red", "size": 6})
    assert {"all", "red", "large"} == set(route(rules, reader))


def test_rules_are_replaced_and_removed():
    """What a subscription had before leaves no trace."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("r", CorrelationFilter(label="x"))])
    rules.set("b", [RuleDefinition("r", CorrelationFilter(label="x"))])
    rules.set("a", [plain("r", "size > 5")])
    assert {"b"} == set(route(rules, GivenProperties(label="x")))
    rules.remove("b")
    assert {} == route(rules, GivenProperties(label="x"))
    assert {"a"} == set(route(rules, GivenProperties({"size": 6})))
    rules.set("a", [RuleDefinition("$Default")])
    assert {"a"} == set(route(rules, GivenProperties()))
    rules.remove("a")
    rules.remove("a")
    assert {} == route(rules, GivenProperties({"size": 6}))


def test_refused_rules_change_nothing():
    """A subscription keeps the rules it had when its new ones cannot be read."""
    rules = topic_rules()
    rules.set("a", [plain("good", "x = 1")])
    with pytest.raises(SqlSyntaxError):
        rules.set("a", [plain("good", "x = 2"), plain("bad", "x =")])
    assert {"a"} == set(route(rules, GivenProperties({"x": 1})))
    assert {} == route(rules, GivenProperties({"x": 2}))


def test_a_rule_is_checked_against_the_limits():
    """What is too long for the tier is refused before it is read."""
    long = plain("r", "1=1".ljust(1025))
    assert compile_rule(long).definition is long
    with pytest.raises(ArgumentError):
        compile_rule(long, STRICT)
    with pytest.raises(ArgumentError):
        compile_rule(acting("r", "1=1", "SET a = 1;" * 33), STRICT)


# --- correlation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        "correlation_id",
        "message_id",
        "to",
        "reply_to",
        "label",
        "session_id",
        "reply_to_session_id",
        "content_type",
    ],
)
def test_a_correlation_filter_compares_each_field(field):
    """A field that is set must be equal, to the letter."""
    wanted: dict[str, Any] = {field: "Value"}
    correlation = CorrelationFilter(**wanted)
    for value, expected in [("Value", True), ("value", False), (None, False)]:
        found: dict[str, Any] = {field.replace("_", ""): value}
        assert expected is takes(correlation, GivenProperties(**found))
    assert not takes(correlation, GivenProperties())


def test_all_fields_of_a_correlation_filter_must_be_equal():
    """Fields are joined by AND."""
    correlation = CorrelationFilter(label="a", properties={"x": 1, "y": "b"})
    assert takes(correlation, GivenProperties({"x": 1, "y": "b", "z": 2}, label="a"))
    assert not takes(correlation, GivenProperties({"x": 1, "y": "b"}, label="b"))
    assert not takes(correlation, GivenProperties({"x": 1, "y": "c"}, label="a"))
    assert not takes(correlation, GivenProperties({"x": 1}, label="a"))


@pytest.mark.parametrize(
    ("expected", "wanted", "found"),
    [
        (True, "a", "a"),
        (False, "a", "A"),
        (True, 1, 1),
        (True, 1, 1.0),
        (True, 1.0, 1),
        (False, 1, "1"),
        (False, "1", 1),
        (False, 1, True),
        (False, True, 1),
        (True, True, True),
        (False, True, False),
        (True, NOON, NOON),
        (True, NOON, datetime(2024, 5, 1, 12)),  # noqa: DTZ001 -- what careless clients send
        (True, timedelta(1), timedelta(1)),
        (True, UUID(int=1), UUID(int=1)),
        (True, b"a", b"a"),
        (False, b"a", "a"),
        (False, None, None),
        (False, "a", None),
        (False, "a", ["a"]),
        (False, "a", {"a": "a"}),
    ],
)
def test_types_must_agree_in_a_correlation_filter(expected, wanted, found):
    """Numbers are equal as numbers; nothing else is equal across types; null equals nothing."""
    assert expected is takes(
        CorrelationFilter(properties={"x": wanted}), GivenProperties({"x": found})
    )


def test_names_of_properties_are_compared_without_case():
    """As everywhere in the language of rules."""
    assert takes(CorrelationFilter(properties={"Color": "red"}), GivenProperties({"cOLOR": "red"}))


def test_a_correlation_filter_that_asks_for_nothing_takes_everything():
    """AND over no fields is true."""
    assert takes(CorrelationFilter(), GivenProperties())


# --- failures -------------------------------------------------------------------------------------


def test_a_filter_that_fails_is_reported_beside_what_matches():
    """The message is dead-lettered for the failure, once, and delivered for the matches."""
    rules = topic_rules()
    rules.set(
        "a",
        [plain("one", "1 / x = 1"), plain("two", "sys.Nonsense = 1"), plain("three", "x = 0")],
    )
    rules.set("b", [plain("one", "x = 0")])
    routed = route(rules, GivenProperties({"x": 0}))
    assert (None,) == routed["a"].copies
    assert "Attempted to divide by zero." == str(routed["a"].error)
    assert RoutedCopies("b", (None,)) == routed["b"]


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("x = 'a' AND 1 / z = 1", 0),
        ("x = 'a' AND -z < 1", -(2**63)),
        ("x = 'a' AND sys.Nonsense = 1", 0),
        ("x = 'a' AND property('sys.Nonsense') = 1", 0),
        ("x = 'a' AND y LIKE '%' ESCAPE y", 0),
    ],
)
def test_a_filter_that_may_fail_is_never_passed_over(expression, number):
    """A missing property does not end the evaluation, and the other operand raises an error."""
    rules = topic_rules()
    rules.set("a", [plain("one", expression)])
    assert isinstance(
        route(rules, GivenProperties({"y": "long", "z": number}))["a"].error, FilterError
    )


def test_large_numbers_are_found_as_doubles_compare_them():
    """An integer no double can hold equals the nearest double, also where rules are hashed."""
    assert takes(SqlFilter("y = 9007199254740992.0"), GivenProperties({"y": 2**53 + 1}))
    assert takes(SqlFilter("y = 9007199254740993"), GivenProperties({"y": float(2**53)}))
    assert not takes(SqlFilter("y = 9007199254740993"), GivenProperties({"y": 2**53}))


def test_a_failure_alone_makes_no_copy():
    """The message goes only to the dead-letter queue of that subscription."""
    rules = topic_rules()
    rules.set("a", [plain("one", "1 / x = 1")])
    routed = route(rules, GivenProperties({"x": 0}))["a"]
    assert () == routed.copies
    assert isinstance(routed.error, FilterError)
    assert {} == route(rules, GivenProperties({"x": 5}))


def test_an_action_that_fails_makes_no_copy():
    """A failed action is like a failed filter; other rules are not held up by it."""
    rules = topic_rules()
    rules.set("a", [acting("bad", "1=1", "SET y = 1 / x"), acting("good", "1=1", "SET y = 1")])
    routed = route(rules, GivenProperties({"x": 0}))["a"]
    assert (MessageChanges(properties={"y": b"1", "RuleName": b"'good'"}),) == routed.copies
    assert "Attempted to divide by zero." == str(routed.error)


def test_a_message_that_cannot_be_read_is_refused():
    """The reader's refusal goes to the sender, not into the filters."""

    class Unreadable(GivenProperties):
        def application_properties(self, message: Message) -> dict[str, Any]:
            raise UndecodableMessage("no")

    rules = topic_rules()
    rules.set("a", [plain("one", "x = 1")])
    with pytest.raises(UndecodableMessage):
        route(rules, Unreadable())


# --- actions --------------------------------------------------------------------------------------


def test_an_action_changes_properties_of_its_copy():
    """Values are encoded by the edge; what is removed is None."""
    rules = topic_rules()
    rules.set(
        "a", [acting("half", "x=1", "SET X = 5; REMOVE y; SET sys.To = 'z'; REMOVE sys.Label")]
    )
    (changes,) = route(rules, GivenProperties({"x": 1, "y": 2}, label="l"))["a"].copies
    expected = MessageChanges(
        properties={"x": b"5", "y": None, "RuleName": b"'half'"},
        system={"to": b"'z'", "label": None},
    )
    assert expected == changes


def test_an_action_keeps_what_was_changed_before():
    """A forwarded message brings its changes along; an action adds to it."""
    message = Message(b"")
    message.changes = MessageChanges(
        properties={"x": b"0", "w": b"w"}, system={"to": b"t"}, dead_letter_reason="why", hops=2
    )
    rules = topic_rules()
    rules.set("a", [acting("r", "1=1", "SET x = 5; SET sys.Label = 'l'")])
    (changes,) = route(rules, GivenProperties({"x": 0, "w": "w"}), message)["a"].copies
    expected = MessageChanges(
        properties={"x": b"5", "w": b"w", "RuleName": b"'r'"},
        system={"to": b"t", "label": b"'l'"},
        dead_letter_reason="why",
        hops=2,
    )
    assert expected == changes


def test_an_action_changes_the_reason_of_a_forwarded_dead_letter():
    """The reason and the description are application properties, which an action sets and removes."""
    message = Message(b"")
    message.changes = MessageChanges(dead_letter_reason="why", dead_letter_description="because")
    rules = topic_rules()
    action = "SET DeadLetterReason = 'other'; REMOVE DeadLetterErrorDescription"
    rules.set("a", [acting("r", "1=1", action)])
    given = {"DeadLetterReason": "why", "DeadLetterErrorDescription": "because"}
    (changes,) = route(rules, GivenProperties(given), message)["a"].copies
    expected = {
        "DeadLetterReason": b"'other'",
        "DeadLetterErrorDescription": None,
        "RuleName": b"'r'",
    }
    assert MessageChanges(properties=expected) == changes


def test_the_rule_name_is_the_last_word():
    """No action can make a copy lie about the rule it comes from."""
    rules = topic_rules()
    rules.set("a", [acting("r", "1=1", "SET rulename = 'other'")])
    (changes,) = route(rules, GivenProperties({"ruleName": 1}))["a"].copies
    assert {"ruleName": b"'r'"} == changes.properties


# --- cost -----------------------------------------------------------------------------------------


def test_a_topic_of_true_filters_never_reads_a_message():
    """Broadcast is free: nothing is decoded, and nothing is built for each message."""
    rules = topic_rules()
    for number in range(10):
        rules.set(f"s{number}", [RuleDefinition("$Default"), plain("more", "x = 1")])
    reader = GivenProperties()
    message = Message(b"")
    first = rules.route(message, reader)  # type: ignore[arg-type]
    assert first is rules.route(message, reader)  # type: ignore[arg-type]
    assert [] == reader.asked


def test_rules_that_are_gone_cost_nothing():
    """When the last rule that looks into messages is removed, none is read any more."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("r", CorrelationFilter(label="x"))])
    rules.set("b", [plain("r", "x > 1")])
    rules.remove("a")
    rules.remove("b")
    reader = GivenProperties()
    assert {} == route(rules, reader)
    assert [] == reader.asked


def test_a_message_is_read_once_for_all_rules():
    """However many rules look at it, each kind of property is decoded once."""
    rules = topic_rules()
    for number in range(50):
        rules.set(f"c{number}", [RuleDefinition("r", CorrelationFilter(label=f"{number}"))])
        rules.set(f"q{number}", [plain("r", f"x > {number} AND sys.Label LIKE '%'")])
    reader = GivenProperties({"x": 25}, label="7")
    assert 26 == len(route(rules, reader))
    assert ["application", "system"] == sorted(reader.asked)


def test_only_what_rules_ask_for_is_read():
    """A topic that filters on the label never decodes application properties."""
    rules = topic_rules()
    rules.set("a", [RuleDefinition("r", CorrelationFilter(label="x"))])
    reader = GivenProperties(label="x")
    route(rules, reader)
    assert ["system"] == reader.asked


# --- the index says what a look at every rule would say ---------------------------------------------

names = st.sampled_from(["x", "y", "Z"])
small_values = st.sampled_from(["a", "b", 1, 2, 1.0, True, False, None, 2**53 + 1, float(2**53)])
correlations = st.builds(
    CorrelationFilter,
    label=st.sampled_from([None, "a", "b"]),
    message_id=st.sampled_from([None, None, "m"]),
    properties=st.dictionaries(names, small_values, max_size=2),
)
conditions = st.sampled_from(
    [
        "x = 'a'",
        "'b' = X",
        "x = 1",
        "x = 1.0",
        "x = TRUE",
        "y = 9007199254740992.0",
        "y = 9007199254740993",
        "x = 'a' AND y = 1",
        "x = 'a' AND (y = 1 AND sys.Label = 'a')",
        "x = 'a' AND x = 'b'",
        "x = 'a' OR y = 1",
        "x = 'a' AND NOT y = 1",
        "NOT (x = 'a')",
        "x = y",
        "x = NULL",
        "x = @p",
        "sys.Label = 'a' AND z > 1",
        "sys.Label = 'a' AND sys.Nonsense = 1",
        "1 / z = 1 AND x = 'a'",
        "x = 'a' AND 1 / z = 1",
        "x + 1 = 2",
        "x LIKE 'a%' ESCAPE y",
        "property('x') = 'a'",
        "x IN ('a', 1)",
        "1=1",
        "1=0",
        "1/0=1",
        "TRUE AND x = 'a'",
    ]
)
filters = st.one_of(
    correlations,
    st.builds(SqlFilter, conditions, st.just({"@p": "a"})),
    st.just(TrueFilter()),
    st.just(FalseFilter()),
)
actions = st.none() | st.builds(
    SqlAction, st.sampled_from(["SET w = 1", "SET x = 1 / z", "SET sys.To = x"])
)
rule_lists = st.lists(st.tuples(filters, actions), max_size=4).map(
    lambda pairs: [RuleDefinition(f"r{n}", *pair) for n, pair in enumerate(pairs)]
)
changes = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | rule_lists), min_size=1, max_size=10
)
readers = st.builds(
    GivenProperties,
    st.dictionaries(names, small_values),
    label=st.sampled_from([None, "a", "b"]),
    messageid=st.sampled_from(["m", "n"]),
)


def one_by_one(rules: list[RuleDefinition], reader: Any) -> tuple[Any, ...]:
    """Copies and failure by a look at every rule, without compiling ahead or index."""
    view = MessageProperties(Message(b""), reader, lambda: UUID(int=9))
    is_plain = False
    takes_everything = any(rule.action is None and always(rule.filter) for rule in rules)
    message_changes, failures, action_failures = [], [], []
    for rule in rules:
        if rule.action is None and takes_everything:
            is_plain = True
            continue
        try:
            if not matches(rule.filter, view):
                continue
        except FilterError as error:
            failures.append(str(error))
            continue
        if rule.action is None:
            is_plain = True
            continue
        draft = EditableProperties(view)
        try:
            compile_sql_action(rule.action.expression)(draft)
        except FilterError as error:
            action_failures.append(str(error))
            continue
        draft.set_user("RuleName", rule.name)
        message_changes.append(
            MessageChanges(draft.changed_user(encode), draft.changed_system(encode))
        )
    return [None] * is_plain + message_changes, next(iter(failures + action_failures), None)


def always(rule_filter: Any) -> bool:
    if isinstance(rule_filter, SqlFilter):
        return rule_filter.expression == "1=1"
    return rule_filter in (TrueFilter(), CorrelationFilter())


def matches(rule_filter: Any, view: MessageProperties) -> bool:
    match rule_filter:
        case TrueFilter():
            return True
        case FalseFilter():
            return False
        case SqlFilter(text, parameters):
            return compile_filter(text, parameters)(view) is True
    wanted = [(view.user.get(name.lower()), v) for name, v in rule_filter.properties.items()]
    wanted += [(view.system["label"], rule_filter.label)] * (rule_filter.label is not None)
    wanted += [(view.system["messageid"], "m")] * (rule_filter.message_id is not None)
    return all(
        found is not None and found == value and isinstance(found, bool) is isinstance(value, bool)
        for found, value in wanted
    )


@given(changes, st.lists(readers, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_routing_agrees_with_a_look_at_every_rule(history, messages):
    """After any changes of rules, for any message: the same copies and the same failures."""
    rules = topic_rules()
    current: dict[str, list[RuleDefinition]] = {}
    for subscription, definitions in history:
        if definitions is None:
            rules.remove(subscription)
            current.pop(subscription, None)
        else:
            rules.set(subscription, definitions)
            current[subscription] = definitions
    for reader in messages:
        expected = {name: one_by_one(definitions, reader) for name, definitions in current.items()}
        found = {
            name: (list(one.copies), one.error and str(one.error))
            for name, one in route(rules, reader).items()
        }
        assert {name: what for name, what in expected.items() if what != ([], None)} == found


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["r0", "R0", "r1", "r2"]),
        st.none() | st.tuples(filters, actions),
    ),
    max_size=12,
)


@given(steps, st.lists(readers, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_rules_that_come_and_go_one_by_one_leave_nothing_behind(history, messages):
    """After any creations, replacements and removals, routing is the same as with only the
    remaining rules."""
    rules = topic_rules()
    current: dict[str, dict[str, RuleDefinition]] = {"a": {}, "b": {}}
    for subscription, name, rule in history:
        if rule is not None:
            definition = RuleDefinition(name, *rule)
            rules.put(subscription, compile_rule(definition))
            current[subscription][name.lower()] = definition
        elif name.lower() in current[subscription]:
            rules.remove_rule(subscription, name)
            del current[subscription][name.lower()]
    left = [rule for named in current.values() for rule in named.values()]
    assert len(left) == rules.rule_count
    assert rules.correlation_filter_count == sum(
        isinstance(rule.filter, CorrelationFilter) for rule in left
    )
    for reader in messages:
        expected = {name: one_by_one([*named.values()], reader) for name, named in current.items()}
        found = {
            name: (list(one.copies), one.error and str(one.error))
            for name, one in route(rules, reader).items()
        }
        assert {name: what for name, what in expected.items() if what != ([], None)} == found
    for subscription in current:
        rules.remove(subscription)
    assert ({}, {}, set()) == (rules._indexed, rules._scanned, rules._evaluated)
