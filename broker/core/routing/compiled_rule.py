"""A compiled rule of a subscription: its selection and its action.

Converts correlation, SQL, true and false filters to a `Selection`. Compiling is the expensive part
of creating a rule and is done once. `rule_index.py` finds the rules that match a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core.contract.errors import BrokerError
from broker.core.routing.sql import compile_action, operators
from config.model.definitions import (
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    TrueFilter,
)
from config.model.limits import RELAXED, Limits

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from broker.core.contract.message import PropertyValue
    from broker.core.routing.sql.analysis import Field
    from broker.core.routing.sql.compiler import Action, Condition
    from config.model.definitions import Filter, RuleDefinition


class Selection(NamedTuple):
    """The conditions under which a rule matches a message."""

    equalities: Mapping[Field, Hashable]
    """The fields that must have these values, as keys of `key_of`."""
    condition: Condition | None
    """A further condition, or None. Together with equalities, it cannot fail."""


EVERYTHING = Selection({}, None)


class CompiledRule(NamedTuple):
    """A compiled rule."""

    definition: RuleDefinition
    selection: Selection | None
    """None if no message matches."""
    action: Action | None


def compile_rule(definition: RuleDefinition, limits: Limits = RELAXED) -> CompiledRule:
    """Raises `SqlSyntaxError`, or `ArgumentError` for a text beyond its limits."""
    action = definition.action
    return CompiledRule(
        definition,
        _select(definition.filter, limits),
        compile_action(
            action.expression,
            action.parameters,
            max_characters=limits.sql_text_max_characters,
            max_statements=limits.statements_per_action_max,
        )
        if action
        else None,
    )


def _select(rule_filter: Filter, limits: Limits) -> Selection | None:
    match rule_filter:
        case TrueFilter():
            return EVERYTHING
        case FalseFilter():
            return None
        case CorrelationFilter():
            return _demand(_correlated(rule_filter), None)
        case SqlFilter():
            return _select_by_sql(rule_filter, limits)


def _select_by_sql(rule_filter: SqlFilter, limits: Limits) -> Selection | None:
    # Imported with the first SQL filter: see `broker.core.routing.sql`.
    from broker.core.routing.sql.analysis import cannot_fail, demanded_equalities, is_constant
    from broker.core.routing.sql.compiler import compile_condition
    from broker.core.routing.sql.grammar import parse_filter

    tree = parse_filter(
        rule_filter.expression, rule_filter.parameters, limits.sql_text_max_characters
    )
    condition = compile_condition(tree)
    if is_constant(tree) and cannot_fail(tree):
        # `1=1` and the like: how clients that know only SQL say true and false.
        no_message: Any = None
        return EVERYTHING if condition(no_message) else None
    return _demand(demanded_equalities(tree), condition)


def _correlated(correlation: CorrelationFilter) -> dict[Field, PropertyValue]:
    fields: dict[Field, PropertyValue] = {
        (True, one.sql_name): value for one, value in correlation.set_fields()
    }
    for name, value in correlation.properties.items():
        fields[False, name.lower()] = value
    return fields


def _demand(fields: Mapping[Field, PropertyValue], condition: Condition | None) -> Selection | None:
    equalities = {field: key_of(value) for field, value in fields.items()}
    return None if None in equalities.values() else Selection(equalities, condition)


def key_of(value: PropertyValue) -> Hashable | None:
    """Returns a hash key for a value: equal keys mean equal values. None means that it equals
    nothing.

    In Python True equals 1, but not in messages.
    """
    value = operators.plain(value)
    return ("boolean", value) if isinstance(value, bool) else value


def rule_error(rule: RuleDefinition, limits: Limits) -> str | None:
    """Returns what is wrong with the SQL of a rule, or None."""
    if rule.action is None and not isinstance(rule.filter, SqlFilter):
        return None
    try:
        compile_rule(rule, limits)
    except BrokerError as error:
        return str(error)
    return None
