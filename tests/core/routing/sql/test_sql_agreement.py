"""Random filters over random messages: compiled, they say what a plain reading of them says.

The reading below knows nothing of the compiler: it walks its own trees, slowly and literally.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.core.routing.sql import FilterError, SqlSyntaxError
from tests.core.routing.filter_compilation import compile_filter

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
USER_NAMES = ["alpha", "beta", "gamma", "delta"]
SYSTEM_NAMES = ["label", "messageid", "sequencenumber", "nonsense"]
Tree = tuple[Any, ...]


class Failure(Exception):
    """What the plain reading raises where the filter must raise `FilterError`."""


# --- the plain reading ----------------------------------------------------------------------------


def read(tree: Tree, message: Any) -> Any:
    """Value or outcome of a tree; None for unknown."""
    kind, *parts = tree
    return READERS[kind](message, *parts)


def read_system(message: Any, name: str) -> Any:
    if name == "nonsense":
        raise Failure(name)
    return message.system.get(name)


def read_minus(message: Any, operand: Tree) -> Any:
    value = read(operand, message)
    if isinstance(value, timedelta):
        return -value
    return within_64_bits(-value) if is_number(value) else None


def read_arithmetic(message: Any, operator: str, left: Tree, right: Tree) -> Any:
    one, other = read(left, message), read(right, message)
    if one is None or other is None:
        return None
    if operator == "+" and (isinstance(one, str) or isinstance(other, str)):
        texts = [as_text(one), as_text(other)]
        return None if None in texts else "".join(str(text) for text in texts)
    if is_number(one) and is_number(other):
        if isinstance(one, int) and isinstance(other, int):
            return within_64_bits(integer_result(operator, one, other))
        return float_result(operator, float(one), float(other))
    kinds = (type(one), type(other))
    moment, span = datetime, timedelta
    if operator == "+" and kinds in {(moment, span), (span, moment), (span, span)}:
        return one + other
    if operator == "-" and kinds in {(moment, moment), (moment, span), (span, span)}:
        return one - other
    return None


def integer_result(operator: str, one: int, other: int) -> int:
    if operator in {"/", "%"} and other == 0:
        raise Failure("zero")
    quotient = math.trunc(Fraction(one, other)) if other else 0
    return {
        "+": one + other,
        "-": one - other,
        "*": one * other,
        "/": quotient,
        "%": one - quotient * other,
    }[operator]


def float_result(operator: str, one: float, other: float) -> float:
    if operator == "+":
        return one + other
    if operator == "-":
        return one - other
    if operator == "*":
        return one * other
    if other == 0:
        raise Failure("zero")
    if operator == "/":
        return one / other
    return math.nan if math.isinf(one) else math.fmod(one, other)


def within_64_bits(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Failure("overflow")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return None
    if isinstance(value, float):
        text = str(value).upper()
        return text.removesuffix(".0")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def read_comparison(message: Any, operator: str, left: Tree, right: Tree) -> bool | None:
    return compared(operator, read(left, message), read(right, message))


def compared(operator: str, one: Any, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    if is_number(one) and is_number(other):
        if isinstance(one, float) or isinstance(other, float):
            one, other = float(one), float(other)
    elif type(one) is not type(other) or (
        operator not in {"=", "<>"} and isinstance(one, bool | bytes | UUID)
    ):
        return None
    outcomes: dict[str, Callable[[], bool]] = {
        "=": lambda: one == other,
        "<>": lambda: one != other,
        "<": lambda: one < other,
        "<=": lambda: one <= other,
        ">": lambda: one > other,
        ">=": lambda: one >= other,
    }
    return outcomes[operator]()


def read_in(message: Any, operand: Tree, items: list[Tree], negated: bool) -> bool | None:
    value = read(operand, message)
    if value is None:
        return None
    for item in items:
        if compared("=", value, read(item, message)):
            return not negated
    return negated


def read_like(
    message: Any, operand: Tree, pattern: Tree, escape: Tree | None, negated: bool
) -> bool | None:
    value, shape = read(operand, message), read(pattern, message)
    character = ""
    if escape is not None:
        character = read(escape, message)
        if character is None:
            return None
        if not isinstance(character, str) or len(character) != 1:
            raise Failure("escape")
    if not isinstance(value, str) or not isinstance(shape, str):
        return None
    return is_like(value, shape, character) is not negated


def is_like(text: str, pattern: str, escape: str) -> bool:
    """By definition: every way of giving `%` some of the text is tried."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == escape and escape:
        literal, rest = (rest[0], rest[1:]) if rest else (head, "")
        return text[:1] == literal and is_like(text[1:], rest, escape)
    if head == "%":
        return any(is_like(text[start:], rest, escape) for start in range(len(text) + 1))
    return bool(text) and head in {"_", text[0]} and is_like(text[1:], rest, escape)


def read_null(message: Any, operand: Tree, negated: bool) -> bool:
    return (read(operand, message) is None) is not negated


def read_exists(message: Any, operand: Tree) -> bool:
    kind, name = operand
    return name in message.user if kind == "user" else read_system(message, name) is not None


def read_not(message: Any, operand: Tree) -> bool | None:
    outcome = read(operand, message)
    return None if outcome is None else not outcome


def read_and(message: Any, left: Tree, right: Tree) -> bool | None:
    one = read(left, message)
    if one is False:
        return False
    other = read(right, message)
    if other is False:
        return False
    return True if one and other else None


def read_or(message: Any, left: Tree, right: Tree) -> bool | None:
    one = read(left, message)
    if one is True:
        return True
    other = read(right, message)
    if other is True:
        return True
    return False if one is False and other is False else None


def read_bare(message: Any, operand: Tree) -> bool | None:
    value = read(operand, message)
    return value if isinstance(value, bool) else None


READERS: dict[str, Any] = {
    "constant": lambda _, value: value,
    "user": lambda message, name: message.user.get(name),
    "system": read_system,
    "minus": read_minus,
    "arithmetic": read_arithmetic,
    "comparison": read_comparison,
    "in": read_in,
    "like": read_like,
    "null": read_null,
    "exists": read_exists,
    "not": read_not,
    "and": read_and,
    "or": read_or,
    "bare": read_bare,
}

# --- writing trees as text, with no more parentheses than needed ------------------------------------

OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(8)


def write(tree: Tree, at_least: int = OR) -> str:
    level, text = WRITERS[tree[0]](*tree[1:])
    return text if level >= at_least else f"({text})"


def write_constant(value: Any) -> tuple[int, str]:
    if isinstance(value, str):
        return ATOM, "'" + value.replace("'", "''") + "'"
    if value is None or isinstance(value, bool):
        return ATOM, str(value).upper().replace("NONE", "NULL")
    return (SIGN if value < 0 else ATOM), repr(value)


def write_arithmetic(operator: str, left: Tree, right: Tree) -> tuple[int, str]:
    level = SUM if operator in {"+", "-"} else PRODUCT
    return level, f"{write(left, level)} {operator} {write(right, level + 1)}"


def write_in(operand: Tree, items: list[Tree], negated: bool) -> tuple[int, str]:
    listed = ", ".join(write(item, SUM) for item in items)
    return COMPARISON, f"{write(operand, SUM)} {'NOT ' * negated}IN ({listed})"


def write_like(operand: Tree, pattern: Tree, escape: Tree | None, negated: bool) -> tuple[int, str]:
    text = f"{write(operand, SUM)} {'NOT ' * negated}LIKE {write(pattern, SUM)}"
    return COMPARISON, text + ("" if escape is None else f" ESCAPE {write(escape, SUM)}")


WRITERS: dict[str, Any] = {
    "constant": write_constant,
    "user": lambda name: (ATOM, f"[{name}]"),
    "system": lambda name: (ATOM, f"sys.{name}"),
    "minus": lambda operand: (SIGN, f"-{write(operand, SIGN)}"),
    "arithmetic": write_arithmetic,
    "comparison": lambda operator, left, right: (
        COMPARISON,
        f"{write(left, SUM)} {operator} {write(right, SUM)}",
    ),
    "in": write_in,
    "like": write_like,
    "null": lambda operand, negated: (
        COMPARISON,
        f"{write(operand)} IS {'NOT ' * negated}NULL",
    ),
    "exists": lambda operand: (ATOM, f"EXISTS({write(operand)})"),
    "not": lambda operand: (NOT, f"NOT {write(operand, NOT)}"),
    "and": lambda left, right: (AND, f"{write(left, AND)} AND {write(right, NOT)}"),
    "or": lambda left, right: (OR, f"{write(left, OR)} OR {write(right, AND)}"),
    "bare": lambda operand: (ATOM, write(operand)),
}

# --- random trees and messages ----------------------------------------------------------------------

texts = st.text(alphabet="ab%_!'", max_size=4)
integers = st.integers(-12, 12) | st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63)])
finite = st.sampled_from([0.0, -0.5, 2.5, 3.0, 1e300, float(2**53)])
property_values = st.one_of(
    texts,
    integers,
    finite,
    st.booleans(),
    st.none(),
    st.sampled_from([math.inf, math.nan, NOON, NOON + timedelta(hours=1), timedelta(hours=1)]),
    st.sampled_from([UUID(int=1), UUID(int=2), b"", b"a"]),
)
messages = st.builds(
    lambda user, system: SimpleNamespace(
        user=user, system=defaultdict(lambda: None, system), new_id=None
    ),
    st.dictionaries(st.sampled_from(USER_NAMES), property_values),
    st.dictionaries(st.sampled_from(SYSTEM_NAMES[:-1]), texts | integers | st.none()),
)

properties = st.tuples(st.just("user"), st.sampled_from(USER_NAMES)) | st.tuples(
    st.just("system"), st.sampled_from(SYSTEM_NAMES)
)
constants = st.tuples(st.just("constant"), st.one_of(texts, integers, finite, st.none()))
value_trees = st.recursive(
    properties | constants | st.tuples(st.just("constant"), st.booleans()),
    lambda inner: st.one_of(
        st.tuples(st.just("minus"), inner),
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/%"), inner, inner),
    ),
    max_leaves=4,
)
escapes = st.none() | properties | st.tuples(st.just("constant"), st.sampled_from("!%_"))
condition_trees = st.recursive(
    st.one_of(
        st.tuples(
            st.just("comparison"),
            st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
            value_trees,
            value_trees,
        ),
        st.tuples(st.just("in"), value_trees, st.lists(value_trees, min_size=1), st.booleans()),
        st.tuples(st.just("like"), value_trees, value_trees, escapes, st.booleans()),
        st.tuples(st.just("null"), properties, st.booleans()),
        st.tuples(st.just("exists"), properties),
        st.tuples(st.just("bare"), properties),
        st.tuples(st.just("constant"), st.booleans()),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
    ),
    max_leaves=6,
)


def outcome_of(evaluate: Any, *arguments: Any) -> Any:
    """What comes of it, a failure included."""
    try:
        return evaluate(*arguments)
    except (Failure, FilterError):
        return "failure"


@given(condition_trees, messages)
@settings(max_examples=250, deadline=None)
def test_a_compiled_filter_agrees_with_a_plain_reading(tree, message):
    """True, False, unknown or a failure: for every filter and message the same."""
    evaluate = compile_filter(write(tree), max_characters=100_000)
    assert outcome_of(read, tree, message) is outcome_of(evaluate, message)


WORDS = ["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "sys", "user"]
MARKS = ["(", ")", ",", ".", "=", "<>", "<", "+", "-", "*", "/", "%", ";", "@a", "'x'", "[y]", "'"]
word_salads = st.lists(
    st.sampled_from(WORDS + MARKS + USER_NAMES + ["1", "2.5", "newid", "property", "p", "\n"]),
    max_size=12,
).map(" ".join)


@given(word_salads | st.text(max_size=30), messages)
@example("NOT " * 10 + "alpha", SimpleNamespace(user={}, system={}, new_id=None))
@settings(max_examples=250, deadline=None)
def test_no_text_does_anything_but_select_fail_or_be_refused(text, message):
    """Any text is refused, or selects messages, or raises `FilterError`."""
    message.new_id = lambda: UUID(int=9)
    compiled = compiled_or_refused(text)
    if isinstance(compiled, SqlSyntaxError):
        assert 0 <= compiled.position <= len(text)
        assert 1 <= compiled.line <= text.count("\n") + 1
        assert 1 <= compiled.column <= len(text) + 1
    else:
        assert outcome_of(compiled, message) in {True, False, None, "failure"}


def compiled_or_refused(text: str) -> Any:
    """The filter, or why there is none."""
    try:
        return compile_filter(text, {"@a": 1})
    except SqlSyntaxError as refusal:
        return refusal
