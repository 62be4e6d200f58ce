"""AMQP values as JSON can express them, for the data plane and the control API.

The two differ only in how they write times and durations. Names in types, such as symbols, become text.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.codec import plain

if TYPE_CHECKING:
    from collections.abc import Callable


class JsonTimes(NamedTuple):
    """How an API writes times and durations."""

    time: Callable[[datetime], object]
    duration: Callable[[timedelta], object]


def json_value(value: Any, times: JsonTimes) -> Any:
    """Returns a decoded AMQP value for JSON: ids as text, binary as base64."""
    match plain(value):
        case None | bool() | str() as same:
            return same
        case int() as number:
            return int(number)
        case float() as number:
            return number if number - number == 0 else str(number)  # JSON has no infinity
        case datetime() as moment:
            return times.time(moment)
        case timedelta() as duration:
            return times.duration(duration)
        case bytes() as binary:
            return b64encode(binary).decode()
        case dict() as entries:
            return {
                str(json_value(key, times)): json_value(one, times) for key, one in entries.items()
            }
        case list() as items:
            return [json_value(one, times) for one in items]
        case other:
            return str(other)
