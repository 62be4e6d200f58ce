"""Values of message properties and filter parameters that JSON and YAML cannot express, such as UUIDs.

Text, numbers and booleans are written as such. Other values are a mapping with the type as its only name:
`{uuid: ...}`. A written value is read as the same value.
"""

from __future__ import annotations

import base64
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Plain = bool | int | float | str


_READERS: Mapping[str, Callable[[str], object]] = {
    "datetime": parse_date_time,
    "duration": parse_time_span,
    "uuid": UUID,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "number": parse_double,  # for values such as infinity, which JSON cannot express
}
_NULL = "null"
_WRITERS: Mapping[type, tuple[str, Callable[..., str]]] = {
    datetime: ("datetime", format_date_time),
    DateTimeTicks: ("datetime", format_date_time),
    timedelta: ("duration", format_time_span),
    TimeSpanTicks: ("duration", format_time_span),
    UUID: ("uuid", str),
    bytes: ("binary", lambda value: base64.b64encode(value).decode()),
}

ALLOWED = "text, a number, true or false, {null: } or one of " + ", ".join(
    f"{{{name}: ...}}" for name in _READERS
)


def read_typed(members: Mapping[str, object]) -> object:
    """Returns the value of such a mapping. Raises `ValueError`."""
    if members == {_NULL: None}:
        return None
    ((name, text),) = members.items() if len(members) == 1 else (("", None),)
    reader = _READERS.get(name)
    if reader is None or not isinstance(text, str):
        raise ValueError(ALLOWED)
    return reader(text)


def write_value(value: object) -> Plain | dict[str, str] | dict[str, None]:
    """Returns a value as a file has it. Raises `TypeError` if it cannot be written."""
    if value is None:
        return {_NULL: None}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": format_double(value)}
    # Integers and texts from AMQP have types of their own; a file has the plain types.
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    for kind, (name, write) in _WRITERS.items():
        if isinstance(value, kind):
            return {name: write(value)}
    raise TypeError(type(value).__name__)
