"""Reads the description of a queue, topic or subscription in a request.

`descriptions.py` has the tables of elements, `config/files/properties.py` checks values. A request may have its elements
in any order, with read-only and unknown ones among them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from broker.core.contract.errors import ArgumentError
from config.files.document import Node
from config.files.properties import PROPERTIES, OutOfRange, note_finer_ticks
from config.model.definitions import (
    DEFAULT_MAX_SIZE_MEGABYTES,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from protocol.http.admin import authorization_rules_xml, descriptions

if TYPE_CHECKING:
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits
    from protocol.http import atom

Definition = TypeVar("Definition", QueueDefinition, TopicDefinition, SubscriptionDefinition)

MINUTE_MS = 60_000
_DURATIONS = ("TimeToLive", "TimeWindow", "OnIdle")
"""The last words in the names of durations."""


# --- in --------------------------------------------------------------------------------------


def check_version(description: atom.Element, base: EntityDefinition, api_version: str) -> None:
    """Raises `ArgumentError` if a description has properties that are newer than the request's `api-version`."""
    kind = descriptions.kind_of(base)
    newer = {
        line.element
        for line in kind.lines
        if not isinstance(line, descriptions.NestedElement) and line.since > api_version
    }
    if any(child.name in newer and not child.is_nil for child in description.children):
        raise ArgumentError(
            f"The entity description of type '{kind.element}' has unsupported properties for "
            f"api-version '{api_version[:20]}' in the request. Try including the correct "
            "api-version query string in the request."
        )


def read(description: atom.Element, base: Definition, limits: Limits) -> Definition:
    """Returns `base` with the values of a description. Raises `ArgumentError`."""
    lines = {
        line.element: line
        for line in descriptions.kind_of(base).lines
        if isinstance(line, descriptions.DefinitionElement)
    }
    checks = {one.name: one for one in PROPERTIES[type(base)]}
    values: dict[str, Any] = {}
    finer: dict[str, int] = {}
    for child in description.children:
        line = lines.get(child.name)
        if line is None or child.is_nil:
            continue
        check = checks[child.name]
        given = line.read(child.text)
        if line is descriptions.MAX_SIZE:
            given = _size_of_partition(given, description, limits)
        try:
            values[check.field] = check.read(Node(given, "request"), limits)
        except ValueError as allowed:
            raise _not_allowed(child, allowed) from None
        note_finer_ticks(check, given, values, finer)
        if line in (descriptions.FORWARD_TO, descriptions.FORWARD_DEAD_LETTERS):
            values[f"{check.field}_scheme"] = _scheme_of(child.text)
    values["finer_ticks"] = tuple(finer.items())
    rules = description.child("AuthorizationRules")
    if rules is not None and hasattr(base, "authorization_rules"):
        values["authorization_rules"] = authorization_rules_xml.read(rules, limits)
    return replace(base, **values)


def kept_by_update(description: atom.Element, definition: EntityDefinition) -> frozenset[str]:
    """Returns the fields that an update with this description does not change.

    SDKs send whole descriptions without default values, so a missing value is set to its default. Keys and
    values that cannot be changed stay, unless the description has them.
    """
    carried = {child.name for child in description.children if not child.is_nil}
    fields = descriptions.FIELDS[type(definition)]
    kept = {
        fields[one.element]
        for one in descriptions.DECIDED_ONCE
        if one.element in fields and one.element not in carried
    }
    if description.child("AuthorizationRules") is None:
        kept.add("authorization_rules")
    return frozenset(kept)


def _scheme_of(address: str) -> str:
    """Returns the scheme of an address; `sb` for a name."""
    scheme, separator, _ = address.strip().partition("://")
    return scheme.lower() if separator and scheme.isalpha() and scheme.isascii() else "sb"


def _size_of_partition(
    megabytes: int | str, description: atom.Element, limits: Limits
) -> int | str:
    """Returns the size of one partition. Answers have the size of all partitions, and SDKs send that back."""
    partitioned = (description.text_of("EnablePartitioning") or "").strip().lower()
    count = limits.partition_count
    if isinstance(megabytes, int) and count > 1 and partitioned in {"true", "1"}:
        of_one, rest = divmod(megabytes, count)
        if of_one >= DEFAULT_MAX_SIZE_MEGABYTES and not rest:
            return of_one
    return megabytes


def _not_allowed(child: atom.Element, allowed: ValueError) -> ArgumentError:
    """Returns an error with the sentence of the service, if it is known, the value, and what is allowed."""
    sentence = ""
    if isinstance(allowed, OutOfRange):
        if child.name == descriptions.LOCK_DURATION.element:
            if allowed.value > allowed.highest:
                sentence = (
                    "The supplied lock time exceeds the allowed maximum of "
                    f"'{allowed.highest // MINUTE_MS}' minutes. "
                )
        elif not child.name.endswith(_DURATIONS):
            sentence = (
                f"The value for '{child.name}' must be between "
                f"{allowed.lowest} and {allowed.highest}. "
            )
    return ArgumentError(
        f"{sentence}The value '{child.text[:100]}' of {child.name} is not allowed; "
        f"expected: {allowed}."
    )
