"""Finds out what is known about a filter without a message.

The results are used to avoid evaluations and never change what a filter matches. In doubt, nothing
is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.routing.sql import system_properties
from broker.core.routing.sql.tree import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Like,
    NewId,
    Node,
    PropertyCall,
    PropertyReference,
    Sign,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.contract.message import PropertyValue

Field = tuple[bool, str]
"""Whether it is a system property, and its lower-case name."""

_EXACT_IN_A_DOUBLE = 2**53


def is_constant(node: Node) -> bool:
    """Returns whether the result is the same for every message."""
    return not any(
        isinstance(part, PropertyReference | PropertyCall | NewId) for part in walk(node)
    )


def cannot_fail(node: Node) -> bool:
    """Returns whether evaluation never raises `FilterError`."""
    return not any(_may_fail(part) for part in walk(node))


def demanded_equalities(node: Node) -> dict[Field, PropertyValue]:
    """Returns the properties that must have these values for the filter to be true. Empty if
    nothing is known.

    Empty also for a filter that can fail: if it were not evaluated, the error would be missed.
    """
    if not cannot_fail(node):
        return {}
    equalities: dict[Field, PropertyValue] = {}
    for part in _conjuncts(node):
        match part:
            case Comparison("=", PropertyReference() as left, Constant(value)) | Comparison(
                "=", Constant(value), PropertyReference() as left
            ) if _compares_exactly(value):
                equalities.setdefault(_field(left), value)
    return equalities


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, And):
        for operand in node.operands:
            yield from _conjuncts(operand)
    else:
        yield node


def _may_fail(node: Node) -> bool:
    match node:
        case Arithmetic() | Sign() | PropertyCall():
            return True
        case PropertyReference(name, is_system=True):
            return system_properties.canonical(name) is None
        case Like(pattern=pattern, escape=escape):
            return not isinstance(pattern, Constant) or not isinstance(escape, Constant | None)
    return False


def _compares_exactly(value: PropertyValue) -> bool:
    """Returns whether SQL and a hash table agree on equality. They do not for integers that a
    double cannot represent."""
    if isinstance(value, int | float):
        return abs(value) < _EXACT_IN_A_DOUBLE
    return isinstance(value, str)


def _field(node: PropertyReference) -> Field:
    if node.is_system:
        return True, system_properties.canonical(node.name) or node.name.lower()
    return False, node.name.lower()
