"""Times and time spans with a precision of 100 nanoseconds, the ticks of .NET, and their XML texts.

Python has microseconds. A value that needs no more precision is a `datetime` or `timedelta`. Only a value with a fraction
of a microsecond has a type of its own, so equal values always have the same type. A time without a zone is UTC, and is
written without a zone.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from config.model.durations import parse_duration_ms

TICKS_PER_MICROSECOND = 10
TICKS_PER_SECOND = 10_000_000
_MICROSECOND = timedelta(microseconds=1)
_INT64_MAX = 2**63 - 1
_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class DateTimeTicks:
    """A time with a fraction of a microsecond."""

    moment: datetime
    extra: int
    """Ticks after `moment`, 1 to 9."""


@dataclass(frozen=True, slots=True, order=True)
class TimeSpanTicks:
    """A time span with a fraction of a microsecond."""

    span: timedelta
    extra: int
    """Ticks added to the span, 1 to 9, also to a negative one."""


Moment = datetime | DateTimeTicks
Span = timedelta | TimeSpanTicks


# --- as numbers: .NET's own ------------------------------------------------------------------------


def ticks_of_moment(moment: Moment) -> int:
    """Returns the ticks since the beginning of the year 1, UTC."""
    if isinstance(moment, DateTimeTicks):
        return ticks_of_moment(moment.moment) + moment.extra
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _YEAR_1) // _MICROSECOND * TICKS_PER_MICROSECOND


def moment_from_ticks(ticks: int) -> Moment:
    """The inverse of `ticks_of_moment`, in UTC. Raises `OverflowError` beyond the year 9999."""
    microseconds, extra = divmod(ticks, TICKS_PER_MICROSECOND)
    moment = _YEAR_1 + timedelta(microseconds=microseconds)
    return DateTimeTicks(moment, extra) if extra else moment


def ticks_of_span(span: Span) -> int:
    """Returns a time span in ticks."""
    if isinstance(span, TimeSpanTicks):
        return ticks_of_span(span.span) + span.extra
    return span // _MICROSECOND * TICKS_PER_MICROSECOND


def span_from_ticks(ticks: int) -> Span:
    """The inverse of `ticks_of_span`. Raises `OverflowError` beyond the range of Python."""
    microseconds, extra = divmod(ticks, TICKS_PER_MICROSECOND)
    span = timedelta(microseconds=microseconds)
    return TimeSpanTicks(span, extra) if extra else span


def in_utc(moment: Moment) -> Moment:
    """Returns the same moment with a zone; UTC if it has none."""
    if isinstance(moment, DateTimeTicks):
        if moment.moment.tzinfo is None:
            return replace(moment, moment=moment.moment.replace(tzinfo=UTC))
        return moment
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


# --- as texts: xs:dateTime, xs:duration, xs:double -------------------------------------------------

_FRACTION = re.compile(r"(?<=:\d\d)\.(\d+)", re.ASCII)
_DURATION = re.compile(
    r"(-?)P(?=[\dT])(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?",
    re.ASCII,
)
_DURATION_SECONDS = (365 * 86_400, 30 * 86_400, 7 * 86_400, 86_400, 3_600, 60, 1)
"""The ticks of a year, a month, a week and so on, without a calendar, as in .NET."""


def parse_date_time(text: str) -> Moment:
    """Returns a time, in UTC if it has a zone. Digits beyond a tick are rounded. Raises `ValueError`."""
    text = text.strip()
    found = _FRACTION.search(text)
    ticks = 0
    if found is not None:
        ticks = _rounded_ticks(found[1])
        text = text[: found.start()] + text[found.end() :]
    if "." in text:
        raise ValueError(f"{text!r} is not a time")
    moment = datetime.fromisoformat(text)
    zone = moment.tzinfo
    if zone is not None:
        moment = moment.astimezone(UTC)
    if not ticks:
        return moment
    precise = moment_from_ticks(ticks_of_moment(moment) + ticks)
    if zone is not None:
        return precise
    if isinstance(precise, DateTimeTicks):
        return replace(precise, moment=precise.moment.replace(tzinfo=None))
    return precise.replace(tzinfo=None)


def format_date_time(moment: Moment) -> str:
    """Returns the text of a time, with as many digits as needed, and `Z` if it has a zone."""
    plain = moment.moment if isinstance(moment, DateTimeTicks) else moment
    extra = moment.extra if isinstance(moment, DateTimeTicks) else 0
    if plain.tzinfo is not None:
        plain = plain.astimezone(UTC)
    text = plain.replace(microsecond=0, tzinfo=None).isoformat()
    text += _fraction_text(plain.microsecond * TICKS_PER_MICROSECOND + extra)
    return text if plain.tzinfo is None else f"{text}Z"


def parse_time_span(text: str) -> Span:
    """Returns a time span. Raises `ValueError`, also beyond the range of .NET's TimeSpan. Accepts `90s` as well."""
    text = text.strip()
    found = _DURATION.fullmatch(text)
    if found is None:
        return timedelta(milliseconds=parse_duration_ms(text))
    sign, *amounts, fraction = found.groups(default="0")
    seconds = sum(
        int(amount) * unit for amount, unit in zip(amounts, _DURATION_SECONDS, strict=True)
    )
    ticks = seconds * TICKS_PER_SECOND + _rounded_ticks(fraction)
    ticks = -ticks if sign == "-" else ticks
    if not -_INT64_MAX - 1 <= ticks <= _INT64_MAX:
        raise ValueError(f"{text!r} is too long for a time span")
    return span_from_ticks(ticks)


def format_time_span(span: Span) -> str:
    """Returns the text of a time span, with days and smaller units, which both Java and .NET read."""
    ticks = ticks_of_span(span)
    seconds, fraction = divmod(abs(ticks), TICKS_PER_SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if seconds or fraction or not (date or time):
        time += f"{seconds}{_fraction_text(fraction)}S"
    return ("-" if ticks < 0 else "") + f"P{date}" + (f"T{time}" if time else "")


def parse_double(text: str) -> float:
    """Returns a number. Raises `ValueError`. Accepts `Infinity` beside the `INF` of XML."""
    if "_" in text:  # Python allows it between digits
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def format_double(value: float) -> str:
    """Returns a number as XML Schema writes it: `INF`, `-INF`, `NaN`, or digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def _rounded_ticks(fraction: str) -> int:
    """Returns the ticks of the digits after the decimal point of seconds."""
    digits = fraction[:8].ljust(8, "0")  # one digit more than a tick has, for rounding
    return (int(digits) + 5) // 10


def _fraction_text(ticks: int) -> str:
    return f".{ticks:07}".rstrip("0") if ticks else ""
