"""Operators on values, with the type promotions of C# for the types that messages can have.

Implements comparison, arithmetic and conversion. None is null and unknown: an operation on None, or
on types that do not fit, returns None. Only a division by zero, or a result that is out of range or
too long, raises `FilterError`.
"""

from __future__ import annotations

import math
import operator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.core.routing.sql.sql_errors import FilterError
from config.model.ticks import (
    DateTimeTicks,
    TimeSpanTicks,
    format_date_time,
    format_time_span,
    in_utc,
    moment_from_ticks,
    parse_date_time,
    span_from_ticks,
    ticks_of_moment,
    ticks_of_span,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.contract.message import PropertyValue
    from config.model.ticks import Moment, Span

JOINED_TEXT_MAX_CHARACTERS = 64 * 1024
"""The longest text that `+` makes. Without a limit, `SET a = a + a` many times would fill the memory."""
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_NUMBERS = frozenset({int, float})
_ORDERED = frozenset({int, float, str, datetime, timedelta, DateTimeTicks, TimeSpanTicks})
_EQUATABLE = _ORDERED | {bool, bytes, UUID}
_TIMES: dict[type, type] = {
    datetime: datetime,
    DateTimeTicks: datetime,
    timedelta: timedelta,
    TimeSpanTicks: timedelta,
}
"""The kinds of values that can be compared with each other, with or without ticks."""
_OUT_OF_RANGE = "A date or time span is out of range."
_BASES: tuple[type[Any], ...] = (int, float, str, bytes)

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

ALIKE = frozenset({str, int, float})
"""Two values of one of these types are compared as in Python. All others use `compare`."""


def compare(symbol: str, left: Any, right: Any) -> bool | None:
    """Returns the result of a comparison, or None if the values cannot be compared."""
    left, right = plain(left), plain(right)
    kind = type(left)
    if kind is not type(right):
        if kind in _NUMBERS and type(right) in _NUMBERS:
            left, right = float(left), float(right)
        elif kind in _TIMES and _TIMES[kind] is _TIMES.get(type(right)):
            left, right = _ticks(left), _ticks(right)
        else:
            return None
    elif kind not in (_EQUATABLE if symbol in {"=", "<>"} else _ORDERED):
        return None
    return COMPARISONS[symbol](left, right)


def plain(value: Any) -> Any:
    """Returns the value in the type for comparisons, or None. A time without zone is UTC."""
    if type(value) not in _EQUATABLE:
        # A derived type, such as an enumeration, counts as its base type.
        return next((kind(value) for kind in _BASES if isinstance(value, kind)), None)
    if type(value) is datetime:
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return in_utc(value) if type(value) is DateTimeTicks else value


def _ticks(value: Moment | Span) -> int:
    if isinstance(value, datetime | DateTimeTicks):
        return ticks_of_moment(value)
    return ticks_of_span(value)


# --- arithmetic -----------------------------------------------------------------------------------


def add(left: PropertyValue, right: PropertyValue) -> PropertyValue:
    """Returns the sum. If one side is a text, returns both texts joined."""
    if isinstance(left, str) or isinstance(right, str):
        left, right = to_text(left), to_text(right)
        if left is None or right is None:
            return None
        if len(left) + len(right) > JOINED_TEXT_MAX_CHARACTERS:
            raise FilterError(
                f"The joined text is longer than {JOINED_TEXT_MAX_CHARACTERS} characters."
            )
        return left + right
    return _apply(operator.add, left, right, _TIME_SUMS)


def subtract(left: PropertyValue, right: PropertyValue) -> PropertyValue:
    return _apply(operator.sub, left, right, _TIME_DIFFERENCES)


def multiply(left: PropertyValue, right: PropertyValue) -> PropertyValue:
    return _apply(operator.mul, left, right)


def divide(left: PropertyValue, right: PropertyValue) -> PropertyValue:
    """Returns the quotient. For integers without the fraction."""
    return _apply(_quotient, left, right)


def remainder(left: PropertyValue, right: PropertyValue) -> PropertyValue:
    """Returns the remainder, with the sign of the left side."""
    return _apply(_remainder, left, right)


ARITHMETIC = {"+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder}

_TIME_SUMS: dict[tuple[type, type], type] = {
    (datetime, timedelta): datetime,
    (timedelta, datetime): datetime,
    (timedelta, timedelta): timedelta,
}
_TIME_DIFFERENCES: dict[tuple[type, type], type] = {
    (datetime, datetime): timedelta,
    (datetime, timedelta): datetime,
    (timedelta, timedelta): timedelta,
}
"""The kind of the result, by the kinds of both sides."""


def sign(symbol: str, value: PropertyValue) -> PropertyValue:
    """`+value` or `-value`."""
    number: Any = plain(value)
    if type(number) in _NUMBERS:
        return _in_range(-number if symbol == "-" else number)
    if _TIMES.get(type(number)) is not timedelta:
        return None
    return _span_in_range(-ticks_of_span(number)) if symbol == "-" else number


def _apply(
    operate: Callable[[Any, Any], Any],
    left: Any,
    right: Any,
    on_times: Mapping[tuple[type, type], type] = MappingProxyType({}),
) -> PropertyValue:
    left, right = plain(left), plain(right)
    kinds = (type(left), type(right))
    try:
        if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS:
            if kinds[0] is not kinds[1]:
                left, right = float(left), float(right)
            return _in_range(operate(left, right))
        if kinds in on_times and on_times[kinds] is datetime:
            return operate(left, right)
        return _apply_to_ticks(operate, left, right, on_times)
    except ZeroDivisionError:
        raise FilterError("Attempted to divide by zero.") from None
    except OverflowError:
        raise FilterError(_OUT_OF_RANGE) from None


def _apply_to_ticks(
    operate: Callable[[Any, Any], Any],
    left: Any,
    right: Any,
    on_times: Mapping[tuple[type, type], type],
) -> PropertyValue:
    """Calculates with times in ticks, because one is finer than a microsecond or the result is a span."""
    left_kind, right_kind = _TIMES.get(type(left)), _TIMES.get(type(right))
    if left_kind is None or right_kind is None or (left_kind, right_kind) not in on_times:
        return None
    result = on_times[left_kind, right_kind]
    ticks = operate(_ticks(left), _ticks(right))
    return moment_from_ticks(ticks) if result is datetime else _span_in_range(ticks)


def _span_in_range(ticks: int) -> Span:
    """Returns the span of so many ticks. One of more than 64 bits has no encoding."""
    if not _INT64_MIN <= ticks <= _INT64_MAX:
        raise FilterError(_OUT_OF_RANGE)
    return span_from_ticks(ticks)


def _in_range(value: Any) -> PropertyValue:
    if type(value) is int and not _INT64_MIN <= value <= _INT64_MAX:
        raise FilterError("An arithmetic operation resulted in a number of more than 64 bits.")
    return value


def _quotient(left: Any, right: Any) -> Any:
    if type(left) is float:
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if type(left) is int:
        return left - right * _quotient(left, right)
    if right == 0:
        raise ZeroDivisionError
    return math.nan if math.isinf(left) else math.fmod(left, right)


# --- conversion -----------------------------------------------------------------------------------


def to_text(value: PropertyValue) -> str | None:
    """Returns the text of a value in C#, in the invariant culture, or None."""
    value = plain(value)
    if isinstance(value, float):
        return repr(value).removesuffix(".0").upper()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, DateTimeTicks):
        return format_date_time(value)
    if isinstance(value, TimeSpanTicks):
        return format_time_span(value)
    return None if value is None or isinstance(value, bytes) else str(value)


def convert(value: PropertyValue, kind: type) -> PropertyValue:
    """Returns the value in another type. Raises `ValueError` if there is no conversion."""
    value = plain(value)
    kind = _TIMES.get(kind, kind)
    if value is None or _TIMES.get(type(value), type(value)) is kind:
        return value
    conversion = _CONVERSIONS.get(kind)
    if conversion is None:
        raise ValueError(f"no value converts to {kind.__name__}")
    try:
        return conversion(value)
    except (TypeError, OverflowError, AttributeError, KeyError) as error:
        raise ValueError(f"no conversion to {kind.__name__}") from error


def _convert_to_text(value: Any) -> str:
    text = to_text(value)
    if text is None:
        raise ValueError("bytes have no text")
    return text


def _convert_to_integer(value: Any) -> int:
    number = int(value.strip()) if isinstance(value, str) else round(value)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise ValueError("more than 64 bits")
    return int(number)


def _convert_to_boolean(value: Any) -> bool:
    if type(value) in _NUMBERS:
        return bool(value)
    return {"true": True, "false": False}[value.strip().lower()]


def _convert_to_time(value: Any) -> Moment:
    return in_utc(parse_date_time(value))


_CONVERSIONS: dict[type, Callable[[Any], PropertyValue]] = {
    str: _convert_to_text,
    int: _convert_to_integer,
    float: float,
    bool: _convert_to_boolean,
    datetime: _convert_to_time,
    UUID: UUID,
}
