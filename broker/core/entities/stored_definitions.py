"""Converts definitions of entities and rules to JSON text for the store and back.

Missing fields get their defaults, so that a store from before a field existed can be read.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING
from uuid import UUID

from config.model.definitions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDefinition,
    EntityStatus,
    FalseFilter,
    LongInteger,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from config.model.namespaces import NamespaceDefinition, SnapshotDefinition
from config.model.ticks import (
    DateTimeTicks,
    TimeSpanTicks,
    format_date_time,
    format_double,
    parse_date_time,
    parse_double,
    span_from_ticks,
    ticks_of_span,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.core.contract.records import EntityStored, RuleRow


_CLASSES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (
        AuthorizationRule,
        CorrelationFilter,
        FalseFilter,
        NamespaceDefinition,
        QueueDefinition,
        RuleDefinition,
        SnapshotDefinition,
        SqlAction,
        SqlFilter,
        SubscriptionDefinition,
        TopicDefinition,
        TrueFilter,
    )
}

_VALUES: Mapping[
    str, tuple[type | tuple[type, ...], Callable[..., object], Callable[..., object]]
] = {
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "long": (LongInteger, int, LongInteger),
    "datetime-ticks": (DateTimeTicks, format_date_time, parse_date_time),
    "timespan-ticks": ((timedelta, TimeSpanTicks), ticks_of_span, span_from_ticks),
    "timespan": ((), float, lambda value: timedelta(seconds=value)),  # until schema 1; only read
    "double": ((), format_double, parse_double),  # NaN and infinities, which JSON cannot write
    "uuid": (UUID, str, UUID),
    "status": (EntityStatus, lambda value: value.value, EntityStatus),
    "set": (frozenset, sorted, frozenset),
}
"""Values without a suitable form in JSON: by tag, the type, and the functions to and from JSON."""


def definition_to_json(definition: EntityDefinition) -> str:
    """Returns a definition as text."""
    return json.dumps(_plain(definition), separators=(",", ":"), sort_keys=True)


def definition_from_json(text: str) -> EntityDefinition:
    """The inverse of `definition_to_json`."""
    definition = _from_plain(json.loads(text))
    if not isinstance(definition, QueueDefinition | TopicDefinition | SubscriptionDefinition):
        raise TypeError(f"not an entity definition: {type(definition).__name__}")
    return definition


def rule_to_json(rule: RuleDefinition) -> str:
    """Returns a rule as text."""
    return json.dumps(_plain(rule), separators=(",", ":"), sort_keys=True)


def rule_from_json(text: str) -> RuleDefinition:
    """The inverse of `rule_to_json`."""
    rule = _from_plain(json.loads(text))
    if not isinstance(rule, RuleDefinition):
        raise TypeError(f"not a rule: {type(rule).__name__}")
    return rule


def namespace_to_json(definition: NamespaceDefinition | SnapshotDefinition) -> str:
    """Returns the definition of a namespace or a snapshot as text."""
    return json.dumps(_plain(definition), separators=(",", ":"), sort_keys=True)


def namespace_from_json(text: str) -> NamespaceDefinition | SnapshotDefinition:
    """The inverse of `namespace_to_json`."""
    definition = _from_plain(json.loads(text))
    if not isinstance(definition, NamespaceDefinition | SnapshotDefinition):
        raise TypeError(f"not a namespace definition: {type(definition).__name__}")
    return definition


def stored_definitions(
    entities: Iterable[EntityStored], rules: Iterable[RuleRow]
) -> Iterator[tuple[EntityStored, EntityDefinition]]:
    """Returns the stored entities, each with its definition including rules."""
    by_entity: dict[int, list[RuleRow]] = {}
    for row in rules:
        by_entity.setdefault(row.entity_id, []).append(row)
    for stored in entities:
        definition = definition_from_json(stored.definition)
        if isinstance(definition, SubscriptionDefinition):
            rows = sorted(by_entity.get(stored.entity_id, ()))
            definition = replace(
                definition, rules=tuple(rule_from_json(row.definition) for row in rows)
            )
        yield stored, definition


def _plain(value: object) -> object:
    if is_dataclass(value) and type(value).__name__ in _CLASSES:
        plain = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"$class": type(value).__name__, **plain}
    if isinstance(value, dict):
        return {"$map": [[name, _plain(item)] for name, item in value.items()]}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$value": "double", "of": format_double(value)}
    is_tagged = isinstance(value, Enum | LongInteger)
    if value is None or (isinstance(value, str | int | float) and not is_tagged):
        return value
    for tag, (kind, to_plain, _) in _VALUES.items():
        if isinstance(value, kind):
            return {"$value": tag, "of": to_plain(value)}
    raise TypeError(f"a definition cannot hold {type(value).__name__}")


def _from_plain(plain: object) -> object:
    if isinstance(plain, list):
        return tuple(_from_plain(item) for item in plain)
    if not isinstance(plain, dict):
        return plain
    if "$map" in plain:
        return {name: _from_plain(item) for name, item in plain["$map"]}
    if "$value" in plain:
        return _VALUES[plain["$value"]][2](plain["of"])
    cls = _CLASSES[plain["$class"]]
    known = {field.name for field in fields(cls)}
    return cls(**{name: _from_plain(item) for name, item in plain.items() if name in known})
