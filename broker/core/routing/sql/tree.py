"""The tree of a filter or an action.

Values without behaviour: `grammar.py` builds them, `compiler.py` compiles them. Parameters are
constants here, `NOT IN` is `Not(In)`, and a chain of operators of one precedence is one node. So
the depth of a tree is the depth of its parentheses, not the length of its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.core.contract.message import PropertyValue


@dataclass(frozen=True, slots=True)
class Constant:
    value: PropertyValue


@dataclass(frozen=True, slots=True)
class PropertyReference:
    name: str
    """The name as written. Names are compared without case, and SET keeps the case."""
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """`property(name)`: the name is known only in evaluation."""

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
    operand: PropertyReference | PropertyCall


@dataclass(frozen=True, slots=True)
class Exists:
    operand: PropertyReference | PropertyCall


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

    target: PropertyReference
    value: Value


@dataclass(frozen=True, slots=True)
class Remove:
    """`REMOVE target`."""

    target: PropertyReference


Value = Constant | PropertyReference | PropertyCall | NewId | Sign | Arithmetic
Condition = Comparison | IsNull | Exists | In | Like | Not | And | Or
Node = Value | Condition
Statement = Assign | Remove


_CHILDREN: dict[type, Callable[..., Iterable[Node]]] = {
    PropertyCall: lambda node: (node.name,),
    Sign: lambda node: (node.operand,),
    Arithmetic: lambda node: (node.first, *(operand for _, operand in node.rest)),
    Comparison: lambda node: (node.left, node.right),
    IsNull: lambda node: (node.operand,),
    Exists: lambda node: (node.operand,),
    In: lambda node: (node.operand, *node.items),
    Like: lambda node: (
        (node.operand, node.pattern)
        if node.escape is None
        else (node.operand, node.pattern, node.escape)
    ),
    Not: lambda node: (node.operand,),
    And: lambda node: node.operands,
    Or: lambda node: node.operands,
}
"""The children of a node, by type. Other types have none."""


def walk(node: Node) -> Iterator[Node]:
    """Returns the node and everything below it, in any order, without recursion."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        below = _CHILDREN.get(type(one))
        if below is not None:
            waiting.extend(below(one))
