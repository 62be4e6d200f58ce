"""Compiles a tree to functions that run for every message.

Implements three-valued logic (True, False, and None for unknown) and the lookup of properties.
`operators.py` implements operators. AND and OR stop at the first operand that decides. A compiled
filter returns True, False or None, or raises `FilterError`, and never raises anything else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker.core.routing.sql import operators, system_properties
from broker.core.routing.sql.like import is_like, like
from broker.core.routing.sql.sql_errors import FilterError
from broker.core.routing.sql.tree import (
    And,
    Arithmetic,
    Assign,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NewId,
    Node,
    Not,
    Or,
    PropertyCall,
    PropertyReference,
    Remove,
    Sign,
    Statement,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.message import PropertyValue
    from broker.core.routing.sql.message_properties import EditableProperties, PropertySource

    Evaluate = Callable[[PropertySource], PropertyValue]
    Condition = Callable[[PropertySource], bool | None]
    Action = Callable[[EditableProperties], None]


def compile_condition(node: Node) -> Condition:
    """Returns the condition of a tree. A value that is not boolean is unknown."""
    match node:
        case And(operands):
            return _settled_by(False, operands)
        case Or(operands):
            return _settled_by(True, operands)
        case Not(operand):
            return _not(compile_condition(operand))
        case Comparison(operator, left, right):
            return _comparison(operator, left, right)
        case In(operand, items):
            return _in(compile_value(operand), items)
        case Like(operand, pattern, escape):
            return _like(compile_value(operand), pattern, escape)
        case IsNull(operand):
            lookup = compile_value(operand)
            return lambda source: lookup(source) is None
        case Exists(operand):
            return _exists(operand)
    evaluate = compile_value(node)

    def boolean(source: PropertySource) -> bool | None:
        value = evaluate(source)
        return value if isinstance(value, bool) else None

    return boolean


def compile_value(node: Value) -> Evaluate:
    """Returns the function for the value of a tree."""
    match node:
        case Constant(value):
            return lambda _: value
        case PropertyReference(name, is_system=False):
            key = name.lower()
            return lambda source: source.user.get(key)
        case PropertyReference(name):
            return _system_property(name)
        case PropertyCall(name):
            return _property_call(compile_value(name))
        case NewId():
            return lambda source: source.new_id()
        case Sign(symbol, operand):
            evaluate = compile_value(operand)
            return lambda source: operators.sign(symbol, evaluate(source))
        case Arithmetic(first, rest):
            return _arithmetic(first, rest)


# --- logic ----------------------------------------------------------------------------------------


def _settled_by(dominant: bool, operands: Sequence[Node]) -> Condition:  # noqa: FBT001
    """False decides AND, and True decides OR. Otherwise the result is unknown if an operand is."""
    conditions = [compile_condition(operand) for operand in operands]

    def evaluate(source: PropertySource) -> bool | None:
        outcome: bool | None = not dominant
        for condition in conditions:
            result = condition(source)
            if result is dominant:
                return dominant
            if result is None:
                outcome = None
        return outcome

    return evaluate


def _not(condition: Condition) -> Condition:
    def evaluate(source: PropertySource) -> bool | None:
        result = condition(source)
        return None if result is None else not result

    return evaluate


def _comparison(symbol: str, left: Value, right: Value) -> Condition:
    if isinstance(left, PropertyReference) and not left.is_system and isinstance(right, Constant):
        return _user_comparison(symbol, left.name.lower(), right.value)
    operate = operators.COMPARISONS[symbol]
    left_value, right_value = compile_value(left), compile_value(right)

    def evaluate(source: PropertySource) -> bool | None:
        one, other = left_value(source), right_value(source)
        if type(one) is type(other) and type(one) in operators.ALIKE:
            return operate(one, other)
        return operators.compare(symbol, one, other)

    return evaluate


def _user_comparison(symbol: str, key: str, constant: Any) -> Condition:
    """A fast path for a user property and a constant, which is the most frequent comparison."""
    operate = operators.COMPARISONS[symbol]
    kind = type(constant) if type(constant) in operators.ALIKE else None

    def evaluate(source: PropertySource) -> bool | None:
        value = source.user.get(key)
        if type(value) is kind:
            return operate(value, constant)
        return operators.compare(symbol, value, constant)

    return evaluate


def _in(operand: Evaluate, items: Sequence[Value]) -> Condition:
    """The result is unknown only if the left side is. An unknown item is not equal to it."""
    constants = [item.value for item in items if isinstance(item, Constant)]
    texts = frozenset(value for value in constants if isinstance(value, str))
    if len(texts) == len(items):
        return _in_texts(operand, texts)
    item_values = [compile_value(item) for item in items]

    def evaluate(source: PropertySource) -> bool | None:
        value = operand(source)
        if value is None:
            return None
        return any(operators.compare("=", value, item(source)) for item in item_values)

    return evaluate


def _in_texts(operand: Evaluate, texts: frozenset[str]) -> Condition:
    """A fast path for lists of texts: one lookup for any number of texts."""

    def evaluate(source: PropertySource) -> bool | None:
        value = operand(source)
        return None if value is None else isinstance(value, str) and value in texts

    return evaluate


def _like(operand: Evaluate, pattern: Value, escape: Value | None) -> Condition:
    if (
        isinstance(pattern, Constant)
        and isinstance(pattern.value, str)
        and (escape is None or (isinstance(escape, Constant) and isinstance(escape.value, str)))
    ):
        matches = like(pattern.value, None if escape is None else str(escape.value))

        def evaluate_fixed(source: PropertySource) -> bool | None:
            value = operand(source)
            return matches(value) if isinstance(value, str) else None

        return evaluate_fixed
    pattern_value = compile_value(pattern)
    escape_value = None if escape is None else compile_value(escape)

    def evaluate(source: PropertySource) -> bool | None:
        value, shape = operand(source), pattern_value(source)
        character: str | None = None
        if escape_value is not None:
            found = escape_value(source)
            if found is None:
                return None
            if not isinstance(found, str) or len(found) != 1:
                raise FilterError("The ESCAPE of a LIKE must be a text of one character.")
            character = found
        if isinstance(value, str) and isinstance(shape, str):
            return is_like(value, shape, character)
        return None

    return evaluate


# --- values ---------------------------------------------------------------------------------------


def _arithmetic(first: Value, rest: Sequence[tuple[str, Value]]) -> Evaluate:
    first_value = compile_value(first)
    steps = [(operators.ARITHMETIC[symbol], compile_value(operand)) for symbol, operand in rest]

    def evaluate(source: PropertySource) -> PropertyValue:
        value = first_value(source)
        for operate, operand in steps:
            value = operate(value, operand(source))
        return value

    return evaluate


def _system_property(name: str) -> Evaluate:
    key = system_properties.canonical(name)
    if key is None:

        def fail(_: PropertySource) -> PropertyValue:
            raise _no_such_property(name)

        return fail
    return lambda source: source.system[key]


def _property_call(name: Evaluate) -> Evaluate:
    def evaluate(source: PropertySource) -> PropertyValue:
        text = name(source)
        return compile_value(_named(text))(source) if isinstance(text, str) else None

    return evaluate


def _exists(operand: PropertyReference | PropertyCall) -> Condition:
    """A user property exists if the message has it, even as null. A system property exists if it is
    set."""
    if isinstance(operand, PropertyCall):
        name = compile_value(operand.name)

        def evaluate(source: PropertySource) -> bool | None:
            text = name(source)
            return _exists(_named(text))(source) if isinstance(text, str) else None

        return evaluate
    if operand.is_system:
        lookup = _system_property(operand.name)
        return lambda source: lookup(source) is not None
    key = operand.name.lower()
    return lambda source: key in source.user


def _named(text: str) -> PropertyReference:
    """Returns what `property('sys.Label')` refers to. The name may have a scope."""
    scope, dot, name = text.partition(".")
    if dot and scope.lower() in {"sys", "user"}:
        return PropertyReference(name, is_system=scope.lower() == "sys")
    return PropertyReference(text)


def _no_such_property(name: str) -> FilterError:
    return FilterError(f"There is no system property 'sys.{name}'.")


# --- actions --------------------------------------------------------------------------------------


def compile_statements(statements: Sequence[Statement]) -> Action:
    """Returns a function that runs the statements in order on editable properties."""
    steps = [_compile_statement(statement) for statement in statements]

    def run(draft: EditableProperties) -> None:
        for step in steps:
            step(draft)

    return run


def _compile_statement(statement: Statement) -> Action:
    name = statement.target.name
    match statement:
        case Assign(target, value) if target.is_system:
            return _assign_system(name, compile_value(value))
        case Assign(_, value):
            return _assign_user(name, compile_value(value))
        case Remove(target) if target.is_system:
            return _assign_system(name, lambda _: None)
        case _:
            return lambda draft: draft.remove_user(name)


def _assign_user(name: str, evaluate: Evaluate) -> Action:
    key = name.lower()

    def assign(draft: EditableProperties) -> None:
        value = evaluate(draft)
        existing = draft.user.get(key)
        if existing is not None:
            # A value that cannot be converted to the old type keeps its own type.
            with suppress(ValueError):
                value = operators.convert(value, type(existing))
        draft.set_user(name, value)

    return assign


def _assign_system(name: str, evaluate: Evaluate) -> Action:
    key = system_properties.canonical(name)

    def assign(draft: EditableProperties) -> None:
        if key is None:
            raise _no_such_property(name)
        value = evaluate(draft)
        try:
            converted = operators.convert(value, system_properties.SETTABLE[key])
        except ValueError:
            raise FilterError(
                f"'sys.{name}' cannot be set to a value of type {type(value).__name__}."
            ) from None
        refusal = system_properties.refusal(key, converted)
        if refusal is not None:
            raise FilterError(f"'sys.{name}' {refusal}.")
        draft.set_system(key, converted)

    return assign
