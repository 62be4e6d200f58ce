"""Writes and reads rules as XML: filters, actions, and their typed key-value lists.

Reads what the five SDKs send, and writes what all of them can read. The core parses SQL texts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

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
from config.model.ticks import (
    DateTimeTicks,
    TimeSpanTicks,
    format_date_time,
    format_double,
    format_time_span,
    parse_date_time,
    parse_double,
    parse_time_span,
)
from protocol.http import atom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DESCRIPTION = "RuleDescription"
DEFAULT_RULE = "$Default"
_COMPATIBILITY = "<CompatibilityLevel>20</CompatibilityLevel>"
_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


# --- in --------------------------------------------------------------------------------------


def read(description: atom.Element, name: str, now_ms: int) -> RuleDefinition:
    """Returns the rule in a description. Its name is the one in the path of the request."""
    return RuleDefinition(name, _read_filter(description), _read_action(description), now_ms)


def read_default(description: atom.Element | None, now_ms: int) -> RuleDefinition:
    """Returns the first rule of a new subscription: the one in its description, or a rule that matches all messages."""
    if description is None:
        return RuleDefinition(DEFAULT_RULE, created_time_ms=now_ms)
    return read(description, description.text_of("Name") or DEFAULT_RULE, now_ms)


def _read_filter(description: atom.Element) -> Filter:
    element = description.child("Filter")
    if element is None or element.is_nil:
        return TrueFilter()
    match element.type:
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_sql(element), _read_values(element.child("Parameters")))
        case "CorrelationFilter":
            texts = {
                one.attribute: element.text_of(one.element) or None for one in CORRELATION_FIELDS
            }
            correlation = CorrelationFilter(
                **texts, properties=_read_values(element.child("Properties"))
            )
            if correlation == CorrelationFilter():
                raise ArgumentError("A correlation filter must name at least one property.")
            return correlation
        case other:
            raise ArgumentError(f"The filter type '{other[:100]}' is not known.")


def _read_action(description: atom.Element) -> SqlAction | None:
    element = description.child("Action")
    if element is None or element.is_nil:
        return None
    match element.type:
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(_sql(element), _read_values(element.child("Parameters")))
        case other:
            raise ArgumentError(f"The action type '{other[:100]}' is not known.")


def _sql(element: atom.Element) -> str:
    text = element.text_of("SqlExpression")
    if not text or not text.strip():
        raise ArgumentError(f"A {element.type} needs an SqlExpression.")
    return text


def _read_values(element: atom.Element | None) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for pair in element.children if element is not None else ():
        key, value = pair.text_of("Key"), pair.child("Value")
        if key is None or value is None:
            raise ArgumentError("Each property of a rule needs a Key and a Value.")
        values[key] = _read_value(key, value)
    return values


def _read_value(key: str, value: atom.Element) -> object:
    if value.is_nil:
        return None
    reader = _READERS.get(value.type)
    if reader is None:
        raise ArgumentError(
            f"The type '{value.type[:100]}' of property '{key}' is not one of "
            f"{', '.join(name for name in _READERS if name)}."
        )
    try:
        return reader(value.text)
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"The value '{value.text[:100]}' of property '{key}' is not of type {value.type}."
        ) from None


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _integer(text: str) -> int:
    if "_" in text:  # Python allows it between digits
        raise ValueError(text)
    number = int(text)
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise ValueError(text)
    return number


_READERS: Mapping[str, Callable[[str], object]] = {
    "": str,
    "string": str,
    "int": _integer,
    "long": lambda text: LongInteger(_integer(text)),
    "double": parse_double,
    "boolean": _boolean,
    "dateTime": parse_date_time,  # also without a time zone: the Python SDK sends that
    "duration": parse_time_span,
}
"""The JavaScript SDK sends every number as a double, the Go SDK every integer as an int."""


# --- out -------------------------------------------------------------------------------------


def write(rule: RuleDefinition) -> str:
    """Returns the description of a rule. It always has an action: the SDKs of Go and JavaScript need it."""
    return atom.described(
        DESCRIPTION,
        _write_filter(rule.filter)
        + _write_action(rule.action)
        + f"<CreatedAt>{atom.timestamp(rule.created_time_ms)}</CreatedAt>"
        + atom.element("Name", rule.name),
    )


def _write_filter(filter_: Filter) -> str:
    match filter_:
        case TrueFilter():
            return _write_typed("Filter", "TrueFilter", _expression("1=1"))
        case FalseFilter():
            return _write_typed("Filter", "FalseFilter", _expression("1=0"))
        case SqlFilter(expression, parameters):
            inner = _expression(expression) + _write_values("Parameters", parameters)
            return _write_typed("Filter", "SqlFilter", inner)
        case CorrelationFilter():
            inner = "".join(atom.element(one.element, text) for one, text in filter_.set_fields())
            inner += _write_values("Properties", filter_.properties)
            return _write_typed("Filter", "CorrelationFilter", inner)


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return _write_typed("Action", "EmptyRuleAction", "")
    inner = _expression(action.expression) + _write_values("Parameters", action.parameters)
    return _write_typed("Action", "SqlRuleAction", inner)


def _write_typed(element: str, type_name: str, inner: str) -> str:
    # The JavaScript SDK looks for an attribute named `i:type`, whatever `i` means.
    return f'<{element} i:type="{type_name}">{inner}</{element}>'


def _expression(text: str) -> str:
    return atom.element("SqlExpression", text) + _COMPATIBILITY


def _write_values(element: str, values: Mapping[str, object]) -> str:
    if not values:
        return ""
    pairs = "".join(
        "<KeyValueOfstringanyType>"
        f"{atom.element('Key', key)}{_write_value(value)}</KeyValueOfstringanyType>"
        for key, value in values.items()
    )
    return f"<{element}>{pairs}</{element}>"


def _write_value(value: object) -> str:
    if value is None:
        return '<Value i:nil="true"/>'
    type_name, text = _typed_text(value)
    # Four characters and a colon: the JavaScript SDK cuts off five. It knows neither long nor duration.
    return (
        f'<Value i:type="d6p1:{type_name}" xmlns:d6p1="{atom.SCHEMA}">{atom.escape(text)}</Value>'
    )


def _typed_text(value: object) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", str(value).lower()
        case LongInteger():
            return "long", str(int(value))
        case int():
            # Compared with its bounds: `in range(...)` iterates for an integer of a subclass, as AMQP has.
            is_short = -_INT32_MAX - 1 <= value <= _INT32_MAX
            return "int" if is_short else "long", str(int(value))
        case float():
            return "double", format_double(value)
        case datetime() | DateTimeTicks():
            return "dateTime", format_date_time(value)
        case timedelta() | TimeSpanTicks():
            return "duration", format_time_span(value)
        case _:
            return "string", str(value)
