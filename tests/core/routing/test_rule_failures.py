"""A rule that fails on the values of one message: no failure leaves the index, and none makes large copies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.core.contract.errors import BrokerError
from broker.core.contract.message import Message
from broker.core.contract.message_changes import MessageChanges
from broker.core.routing import rule_index
from broker.core.routing.compiled_rule import compile_rule
from broker.core.routing.rule_index import RoutedCopies, TopicRules
from broker.core.routing.sql import FilterError, like, operators
from broker.core.routing.sql.message_properties import SET_TEXT_MAX_CHARACTERS
from config.model.definitions import (
    CorrelationFilter,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from protocol.codec.message_reader import Reader
from protocol.codec.value_encoder import encode
from protocol.codec.value_types import (
    Array,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
)
from tests.support.given_properties import GivenProperties

if TYPE_CHECKING:
    from collections.abc import Callable

READER = Reader()
DAY_TICKS = 864_000_000_000


def span(ticks: int) -> Described:
    return Described(Symbol("com.microsoft:timespan"), Long(ticks))


def moment(ticks: int) -> Described:
    return Described(Symbol("com.microsoft:datetime-offset"), Long(ticks))


def with_properties(**properties: object) -> Message:
    return Message(b"\x00\x53\x74" + encode(properties))


def route(
    rule: RuleDefinition,
    message: Message,
    reader: Any = READER,
    encode_property: Callable[[Any], bytes] = READER.encode_property,
) -> RoutedCopies[str]:
    """Returns what the only subscription gets."""
    rules: TopicRules[str] = TopicRules(encode_property, lambda: UUID(int=9))
    rules.put("s", compile_rule(rule))
    (routed,) = rules.route(message, reader)
    return routed


def acting(action: str) -> RuleDefinition:
    return RuleDefinition("r", TrueFilter(), SqlAction(action))


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "properties"),
    [
        (acting("SET y = x + x"), {"x": span(2**63 - 1)}),
        (acting("SET y = -x"), {"x": span(-(2**63))}),
        (acting("SET y = x - z"), {"x": span(-(2**63) + 5), "z": span(2**62)}),
        (acting("SET y = x + z"), {"x": moment(DAY_TICKS), "z": span(2**63 - 1)}),
        (acting("SET y = x + z"), {"x": moment(DAY_TICKS), "z": span(-(2**63))}),
        (acting("SET y = x - z"), {"x": moment(3), "z": span(4)}),
        (acting("SET y = sys.SequenceNumber / x"), {"x": 0}),
        (acting("SET y = property('sys.' + x)"), {"x": "Nope"}),
        (RuleDefinition("r", SqlFilter("-x < z")), {"x": span(-(2**63)), "z": span(0)}),
        (RuleDefinition("r", SqlFilter("x + x > z")), {"x": span(2**63 - 1), "z": span(0)}),
    ],
)
def test_an_operation_out_of_range_is_an_error_of_the_rule(rule, properties):
    """The message goes to the dead-letter queue of the subscription, and the turn goes on."""
    _, copies, error, _ = route(rule, with_properties(**properties))
    assert () == copies
    assert isinstance(error, FilterError)
    assert error.__cause__ is None


def test_the_longest_spans_can_be_set():
    """Their ticks have 64 bits."""
    longest, shortest = span(2**63 - 1), span(-(2**63))
    routed = route(
        acting("SET y = -x; SET z = w + x + a"), with_properties(x=longest, w=shortest, a=span(1))
    )
    (changes,) = routed.copies
    assert changes is not None
    assert encode(span(-(2**63) + 1)) == changes.properties["y"]
    assert encode(span(0)) == changes.properties["z"]


@pytest.mark.parametrize(
    "failure", [ValueError("v"), TypeError("t"), OverflowError("o"), UnicodeError("u")]
)
def test_a_value_without_encoding_is_an_error_of_the_rule(failure):
    """The description names what nobody has foreseen."""

    def encode_property(_):
        raise failure

    _, copies, error, _ = route(
        acting("SET y = 1"), with_properties(x=1), encode_property=encode_property
    )
    assert () == copies
    assert type(failure).__name__ in str(error)
    assert failure is error.__cause__


def test_a_text_without_encoding_is_an_error_of_the_rule():
    """A name, too: changes are stored with the names."""
    for action in ("SET y = x", "SET [\ud800] = 1"):
        reader = GivenProperties({"x": "\ud800"})
        assert isinstance(route(acting(action), Message(b""), reader).error, FilterError)


@pytest.mark.parametrize("condition", ["a = 1 AND b = 'x'", "b >= 'x' AND EXISTS(a)"])
def test_a_condition_that_fails_unforeseen_is_an_error_of_its_rule_only(monkeypatch, condition):
    """Indexed rules and others alike."""

    def fail(*_):
        raise OverflowError("too far")

    rules: TopicRules[str] = TopicRules(READER.encode_property, lambda: UUID(int=9))
    monkeypatch.setattr(operators, "compare", fail)
    rules.put("fails", compile_rule(RuleDefinition("r", SqlFilter(condition + " AND 1 = 1.5"))))
    rules.put("matches", compile_rule(RuleDefinition("r", CorrelationFilter(properties={"a": 1}))))
    found = {one.subscription: one for one in rules.route(with_properties(a=1, b="x"), READER)}
    assert (None,) == found["matches"].copies
    assert () == found["fails"].copies
    assert isinstance(found["fails"].error, FilterError)


def test_a_defect_of_the_broker_is_no_error_of_a_rule():
    """It must not pass unnoticed."""

    def encode_property(_):
        raise AssertionError("a defect")

    with pytest.raises(AssertionError):
        route(acting("SET y = 1"), with_properties(x=1), encode_property=encode_property)


def test_the_description_of_an_error_can_be_stored():
    """It quotes properties, which can have any length and any characters."""
    for text in ("\ud800", "x" * 100_000):
        reader = GivenProperties({"x": text})
        error = route(acting("SET y = property('sys.' + x)"), Message(b""), reader).error
        assert 2_000 > len(MessageChanges(dead_letter_description=str(error)).to_bytes())


# --- sizes ----------------------------------------------------------------------------------------


def test_a_joined_text_has_a_limit():
    """Each statement could double it."""
    half = "x" * (operators.JOINED_TEXT_MAX_CHARACTERS // 2)
    joined = route(acting("SET a = a + a"), with_properties(a=half))
    assert joined.error is None
    failed = route(acting("SET a = a + a; SET a = a + 'x'"), with_properties(a=half))
    assert () == failed.copies
    assert "longer than" in str(failed.error)


def test_the_changes_of_a_copy_have_a_limit():
    """Also if each of them is short enough."""
    size = rule_index.CHANGES_MAX_BYTES // 4
    properties = {"a": b"x" * size}
    few = "; ".join(f"SET p{number} = a" for number in range(3))
    many = few + "; SET p3 = a"
    assert route(acting(few), with_properties(**properties)).error is None
    failed = route(acting(many), with_properties(**properties))
    assert () == failed.copies
    assert f"{rule_index.CHANGES_MAX_BYTES} bytes" in str(failed.error)


def test_the_texts_that_an_action_makes_have_a_limit():
    """They are in memory until the action ends."""
    length = SET_TEXT_MAX_CHARACTERS // 30
    action = "; ".join(["SET b = a + 'x'"] * 31)
    assert "characters" in str(route(acting(action), with_properties(a="x" * length)).error)


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["a LIKE b", "c = 1 AND a LIKE b", "a LIKE b ESCAPE '!'"])
def test_a_pattern_from_a_message_has_a_limit(condition):
    """A sender must not occupy the broker with a pattern that takes long to compile."""
    rule = RuleDefinition("r", SqlFilter(condition))
    pattern = "_" * like.DYNAMIC_PATTERN_MAX_CHARACTERS
    fits = route(rule, with_properties(a="x" * len(pattern), b=pattern, c=1))
    assert ((None,), None) == (fits.copies, fits.error)
    failed = route(rule, with_properties(a="x", b=pattern + "_", c=1))
    assert () == failed.copies
    assert "pattern" in str(failed.error)


def test_a_text_for_a_pattern_from_a_message_has_a_limit():
    """Matching takes as many steps as the product of both lengths."""
    rule = RuleDefinition("r", SqlFilter("a LIKE b"))
    pattern = "%" + "_" * 62 + "x"
    text = "x" * (like.DYNAMIC_STEPS_MAX // len(pattern))
    assert route(rule, with_properties(a=text, b=pattern)).error is None
    failed = route(rule, with_properties(a=text + "x", b=pattern))
    assert () == failed.copies
    assert "too long" in str(failed.error)


def test_a_constant_pattern_takes_texts_of_any_length():
    """Its rule chooses how much work it is."""
    pattern = "%" + "a" * 2_000
    rule = RuleDefinition("r", SqlFilter("a LIKE @p", {"@p": pattern}))
    assert route(rule, with_properties(a="a" * 100_000)).error is None


# --- any rule and any message ---------------------------------------------------------------------

VALUES: list[object] = [
    *(None, True, False, Int(5), Long(-(2**63)), Long(2**63 - 1), ULong(2**64 - 1), UInt(3)),
    *(1.5, float("nan"), float("inf"), -0.0, 1e308, Float(2.5)),
    *("abc", "", "12", "1e5", "true", "nan", "x" * 300, "%_%", "é" * 40_000),
    *("2020-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.99999999"),
    *(Timestamp(0), Timestamp(-(2**63)), Timestamp(2**63 - 1), Timestamp(253_402_300_799_999)),
    *(UUID(int=5), str(UUID(int=5)), b"abc", b"\xff", Char("a"), Symbol("s")),
    *(Decimal(b"\x22\x50\x00\x01"), Decimal(b"\x78\x00\x00\x00"), Decimal(b"\xff" * 16)),
    *(span(15), span(36_000_000_000), span(2**63 - 1), span(-(2**63))),
    *(moment(637_134_336_000_000_001), moment(2**63 - 1), moment(0), moment(3)),
    *(Described(Symbol("com.microsoft:uri"), "http://x"), [1, 2], {"a": 1}, Array(0x81, [1, 2])),
]
CONSTANTS = ["1", "-1", "0", "9223372036854775807", "1.5", "1e308", "'x'", "'12'", "''", "NULL"]
CONSTANTS += ["TRUE", "'2020-01-01'", "newid()", "@p", "'%a_'"]
SETTABLE = ["ContentType", "CorrelationId", "ForcePersistence", "Label", "MessageId", "To"]
SETTABLE += [
    "PartitionKey",
    "ReplyTo",
    "ScheduledEnqueueTimeUtc",
    "SessionId",
    "TimeToLive",
    "Nope",
]
READABLE = [*SETTABLE, "ExpiresAtUtc", "EnqueuedTimeUtc", "SequenceNumber", "DeliveryCount", "Size"]
READABLE += ["DeadLetterSource", "LockedUntilUtc", "LockToken", "State"]


class RandomRules:
    """Makes filters and actions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, depth: int = 0) -> str:
        pick = self.random.random()
        if depth > 2 or pick < 0.35:
            return self.random.choice("abcd")
        if pick < 0.55:
            return "sys." + self.random.choice(READABLE)
        if pick < 0.7:
            return self.random.choice(CONSTANTS)
        if pick < 0.75:
            return f"property({self.value(depth + 1)})"
        if pick < 0.8:
            return "-" + self.value(depth + 1)
        return f"{self.value(depth + 1)} {self.random.choice('+-*/%')} {self.value(depth + 1)}"

    def condition(self, depth: int = 0) -> str:
        pick = self.random.random()
        if depth < 2 and pick < 0.25:
            joined = self.random.choice([" AND ", " OR "])
            return f"({self.condition(depth + 1)}{joined}{self.condition(depth + 1)})"
        if pick < 0.3:
            return "NOT " + self.condition(depth + 1)
        if pick < 0.6:
            return self.value() + self.random.choice(["=", "<>", "<", ">="]) + self.value()
        if pick < 0.7:
            return self.random.choice(["a", "sys.Label", "sys.Nope"]) + " IS NULL"
        if pick < 0.8:
            return f"{self.value()} IN ({self.value()}, {self.value()})"
        if pick < 0.95:
            escape = self.random.choice(["", f" ESCAPE {self.value()}"])
            return f"{self.value()} LIKE {self.value()}{escape}"
        return self.random.choice(["EXISTS(a)", "EXISTS(sys.Label)", "EXISTS(property(b))"])

    def statement(self) -> str:
        scope, names = self.random.choice([("", "abcd"), ("sys.", SETTABLE)])
        target = scope + self.random.choice(names)
        if self.random.random() < 0.2:
            return f"REMOVE {target}"
        return f"SET {target} = {self.value()}"

    def rule(self) -> RuleDefinition:
        parameters = {"@p": self.random.choice([1, "x", None, 1.5])}
        if self.random.random() < 0.5:
            return RuleDefinition("r", SqlFilter(self.condition(), parameters))
        action = "; ".join([self.statement() for _ in range(self.random.randint(1, 4))])
        return RuleDefinition("r", TrueFilter(), SqlAction(action, parameters))

    def message(self) -> Message:
        live_ms = self.random.choice([None, 1_000, 2**32 - 1])
        message = with_properties(**{name: self.random.choice(VALUES) for name in "abc"})
        message.time_to_live_ms = live_ms
        return message


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_fails_a_turn(seed):
    """A rule gives copies that can be stored, or an error whose description can be stored."""
    made = RandomRules(seed)
    evaluated = failed = changed = 0
    for _ in range(700):
        definition = made.rule()
        try:
            rule = compile_rule(definition)
        except BrokerError:
            continue
        rules: TopicRules[str] = TopicRules(READER.encode_property, lambda: UUID(int=9))
        rules.put("s", rule)
        evaluated += 1
        for _, copies, error, _ in rules.route(made.message(), READER):
            for changes in copies:
                changed += changes is not None
                assert changes is None or 2 * rule_index.CHANGES_MAX_BYTES > len(changes.to_bytes())
            if error is not None:
                failed += 1
                assert MessageChanges(dead_letter_description=str(error)).to_bytes()
    assert min(evaluated - 300, failed, changed) > 0
