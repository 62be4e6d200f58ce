"""What a filter or an action says, as a tree.

Facts without behaviour: `grammar.py` builds them, `compiler.py` turns them into functions.
Parameters are constants here, `NOT IN` is `Not(In)`, and a chain of one kind of operator is one
node, so that the depth of a tree is the depth of its parentheses and not the length of its text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.message import PropertyValue


@dataclass(frozen=True, slots=True)
class Constant:
    value: PropertyValue


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    """As written: names are compared without regard to case, and kept for SET."""
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """`property(name)`: the name is known only when evaluated."""

    name: Value


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`."""


@dataclass(frozen=True, slots=True)
class Sign:
    operator: str
    operand: Value


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A left-associative chain of one precedence: first, then (operator, operand) pairs."""

    first: Value
    rest: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Property | PropertyCall


@dataclass(frozen=True, slots=True)
class Exists:
    operand: Property | PropertyCall


@dataclass(frozen=True, slots=True)
class In:
    operand: Value
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    operand: Value
    pattern: Value
    escape: Value | None = None


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """`SET target = value`."""

    target: Property
    value: Value


@dataclass(frozen=True, slots=True)
class Remove:
    """`REMOVE target`."""

    target: Property


Value = Constant | Property | PropertyCall | NewId | Sign | Arithmetic
Condition = Comparison | IsNull | Exists | In | Like | Not | And | Or
Node = Value | Condition
Statement = Assign | Remove


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for member in fields(node):
        yield from _nodes_in(getattr(node, member.name))


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield from walk(value)
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)
