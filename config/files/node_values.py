"""Reads mappings, lists and texts from the nodes of a document.

Knows no form and no entity. Nothing here raises: a mistake is reported and an empty value is returned, so that reading
continues and finds the next mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.files.mistakes import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from config.files.document import Node
    from config.files.mistakes import ConfigReport
    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits

    RuleCheck = Callable[[RuleDefinition, Limits], str | None]
    """Returns what is wrong with the SQL of a rule, or None. The core parses SQL."""

SETTINGS = "settings"
"""The section with settings, in a file of either form. `setting_sources.py` reads it."""


def mapping(node: Node | None, report: ConfigReport) -> Mapping[str, Node]:
    """Returns the members of a mapping; none if the node is missing or null."""
    if node is None or node.value is None:
        return {}
    if isinstance(node.value, dict):
        return node.value
    report.mistake(node, f"expected a mapping, found {node.kind}")
    return {}


def items(node: Node | None, report: ConfigReport) -> Sequence[Node]:
    """Returns the items of a list; none if the node is missing or null. An item that is null is a mistake."""
    if node is None or node.value is None:
        return ()
    if isinstance(node.value, list):
        for item in node.value:
            if item.value is None:
                report.mistake(item, f"expected an item, found {item.kind}")
        return [item for item in node.value if item.value is not None]
    report.mistake(node, f"expected a list, found {node.kind}")
    return ()


def text(node: Node | None, report: ConfigReport) -> str | None:
    """Returns a text that is not empty; None if there is none."""
    if node is None or node.value is None:
        return None
    if isinstance(node.value, str) and node.value:
        return node.value
    report.mistake(node, f"expected text, found {node.kind}")
    return None


def required_text(node: Node | None, report: ConfigReport) -> str | None:
    """Returns a text that is not empty; None if there is none. Null is a mistake."""
    if node is not None and node.value is None:
        report.mistake(node, f"expected text, found {node.kind}")
    return text(node, report)


def scalars(node: Node | None, report: ConfigReport) -> dict[str, object]:
    """Returns names with single values: properties of messages or parameters of a filter."""
    values: dict[str, object] = {}
    for name, member in mapping(node, report).items():
        if isinstance(member.value, dict) and member.value:
            _read_typed(name, member, values, report)
        elif member.value is None or isinstance(member.value, list | dict):
            report.mistake(member, f"expected text, a number, true or false, found {member.kind}")
        else:
            values[name] = member.value
    return values


def _read_typed(name: str, node: Node, values: dict[str, object], report: ConfigReport) -> None:
    from config.files.typed_values import ALLOWED, read_typed  # rare, and slow to load

    assert isinstance(node.value, dict)
    try:
        values[name] = read_typed({one: member.value for one, member in node.value.items()})
    except ValueError:
        report.mistake(node, f"{node.kind} is not allowed; expected {ALLOWED}")


def known_members(
    node: Node | None,
    known: Iterable[str],
    report: ConfigReport,
    unknown: Callable[[Node, str], None],
    *,
    any_case: bool = False,
) -> Mapping[str, Node]:
    """Returns the members of a mapping by their known names. Calls `unknown` for the others."""
    names = {name.casefold() if any_case else name: name for name in known}
    members: dict[str, Node] = {}
    for written, member in mapping(node, report).items():
        name = names.get(written.casefold() if any_case else written)
        if name is None:
            unknown(member, f"there is no such property{did_you_mean(written, names.values())}")
        elif name in members:
            report.mistake(member, f"{name} is given twice, first in line {members[name].line}")
        else:
            members[name] = member
    return members
