"""Rules in `$management` messages: maps in requests, described lists in answers.

The descriptors are those of the service. Clients choose the type by the descriptor and cast the fields.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from broker.core.contract.errors import ArgumentError
from config.model.definitions import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    LongInteger,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from config.model.ticks import DateTimeTicks, TimeSpanTicks
from protocol.codec import (
    Described,
    Long,
    Timestamp,
    ULong,
    milliseconds_of_moment,
    plain,
    typed_span,
)

RULE_DESCRIPTION = ULong(0x13700000004)
EMPTY_ACTION = ULong(0x13700000005)
SQL_ACTION = ULong(0x13700000006)
SQL_FILTER = ULong(0x1370000006)
TRUE_FILTER = ULong(0x1370000007)
FALSE_FILTER = ULong(0x1370000008)
CORRELATION_FILTER = ULong(0x1370000009)

PROPERTY_TYPES = (
    *(str, bool, int, float, bytes, UUID, type(None)),
    *(datetime, DateTimeTicks, timedelta, TimeSpanTicks),
)

CONSTANT_FILTERS: dict[str, Filter] = {"1=1": TrueFilter(), "1=0": FalseFilter()}
"""Clients send true and false filters as these texts."""


def read_rule(body: dict[str, Any]) -> RuleDefinition:
    """Returns the rule of an add-rule request."""
    description = body.get("rule-description")
    name = body.get("rule-name")
    if not isinstance(description, dict) or not isinstance(name, str) or not name:
        raise ArgumentError("add-rule needs a 'rule-name' and a 'rule-description' map.")
    action = None
    action_map = description.get("sql-rule-action")
    if isinstance(action_map, dict) and action_map.get("expression"):
        action = SqlAction(str(action_map["expression"]))
    return RuleDefinition(str(name), _read_filter(description), action)


def described(rule: RuleDefinition) -> Described:
    """Returns a rule as in the answer to enumerate-rules. The action is never null, because clients read its
    fields."""
    if rule.action is None:
        action = Described(EMPTY_ACTION, [])
    else:
        action = Described(SQL_ACTION, [rule.action.expression, None])
    fields = [_filter(rule.filter), action, rule.name, Timestamp(rule.created_time_ms)]
    return Described(RULE_DESCRIPTION, fields)


def _read_filter(description: dict[str, Any]) -> Filter:
    sql = description.get("sql-filter")
    if isinstance(sql, dict) and isinstance(sql.get("expression"), str):
        expression = str(sql["expression"])
        return CONSTANT_FILTERS.get(expression.replace(" ", ""), SqlFilter(expression))
    correlation = description.get("correlation-filter")
    if isinstance(correlation, dict):
        fields: dict[str, Any] = {
            one.attribute: str(correlation[one.amqp_key])
            for one in CORRELATION_FIELDS
            if correlation.get(one.amqp_key) is not None
        }
        properties = correlation.get("properties")
        if isinstance(properties, dict):
            fields["properties"] = {
                str(key): _read_property(str(key), value) for key, value in properties.items()
            }
        read = CorrelationFilter(**fields)
        if read == CorrelationFilter():
            raise ArgumentError("A correlation filter must name at least one property.")
        return read
    raise ArgumentError("A rule needs a 'sql-filter' or a 'correlation-filter'.")


def _read_property(name: str, value: object) -> object:
    """Returns a property value of a type that rules compare and the store can save."""
    value = LongInteger(value) if isinstance(value, Long) else plain(value)
    if not isinstance(value, PROPERTY_TYPES):
        raise ArgumentError(f"The property '{name[:100]}' of a filter must be a simple value.")
    return value


def _filter(rule_filter: Filter) -> Described:
    if isinstance(rule_filter, SqlFilter):
        return Described(SQL_FILTER, [rule_filter.expression, None])
    if isinstance(rule_filter, TrueFilter):
        return Described(TRUE_FILTER, [])
    if isinstance(rule_filter, FalseFilter):
        return Described(FALSE_FILTER, [])
    values = [getattr(rule_filter, one.attribute) for one in CORRELATION_FIELDS]
    properties = {name: _typed(value) for name, value in rule_filter.properties.items()}
    return Described(CORRELATION_FILTER, [*values, properties])


def _typed(value: object) -> object:
    if isinstance(value, timedelta | TimeSpanTicks):
        return typed_span(value)
    if isinstance(value, DateTimeTicks | datetime):
        # To the millisecond, over HTTP there is more. The type that carries ticks (.NET's
        # DateTimeOffset) is one that no SDK reads in a rule: the .NET SDK fails to list any.
        return milliseconds_of_moment(value)
    return Long(value) if isinstance(value, LongInteger) else value
