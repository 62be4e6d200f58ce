"""Times and time spans to 100 nanoseconds, the ticks of .NET, and their XML texts.

Python counts microseconds. A value that needs no more is a plain `datetime` or `timedelta`; only one
with a tenth of a microsecond in it is a type of its own, so that equal values always have the same
type. A moment without a zone counts as UTC and is written without one, as it came.
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
    """A moment between two microseconds."""

    moment: datetime
    extra: int
    """Ticks after the moment, 1 to 9."""


@dataclass(frozen=True, slots=True, order=True)
class TimeSpanTicks:
    """A time span between two numbers of microseconds."""

    span: timedelta
    extra: int
    """Ticks on top of the span, 1 to 9; for a negative one too."""


Moment = datetime | DateTimeTicks
Span = timedelta | TimeSpanTicks


# --- as numbers: .NET's own ------------------------------------------------------------------------


def ticks_of_moment(moment: Moment) -> int:
    """Ticks since the beginning of the year 1, UTC."""
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
    """A time span in ticks."""
    if isinstance(span, TimeSpanTicks):
        return ticks_of_span(span.span) + span.extra
    return span // _MICROSECOND * TICKS_PER_MICROSECOND


def span_from_ticks(ticks: int) -> Span:
    """The inverse of `ticks_of_span`. Raises `OverflowError` beyond what Python knows."""
    microseconds, extra = divmod(ticks, TICKS_PER_MICROSECOND)
    span = timedelta(microseconds=microseconds)
    return TimeSpanTicks(span, extra) if extra else span


def in_utc(moment: Moment) -> Moment:
    """The same moment with a zone: one without counts as UTC."""
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
"""Of a year, a month, a week and so on: no calendar is involved, as in .NET."""


def parse_date_time(text: str) -> Moment:
    """Raises `ValueError`. One with a zone comes out in UTC; digits beyond a tick are rounded."""
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
    """With as many digits as it takes, and `Z` unless it came without a zone."""
    plain = moment.moment if isinstance(moment, DateTimeTicks) else moment
    extra = moment.extra if isinstance(moment, DateTimeTicks) else 0
    if plain.tzinfo is not None:
        plain = plain.astimezone(UTC)
    text = plain.replace(microsecond=0, tzinfo=None).isoformat()
    text += _fraction_text(plain.microsecond * TICKS_PER_MICROSECOND + extra)
    return text if plain.tzinfo is None else f"{text}Z"


def parse_time_span(text: str) -> Span:
    """Raises `ValueError`, also for what .NET's TimeSpan cannot hold. Reads `90s` and the like too."""
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
    """In days and smaller, the only units that Java and .NET both read."""
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
    """Raises `ValueError`. Takes `Infinity` beside XML's `INF`."""
    if "_" in text:  # Python allows it between digits
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def format_double(value: float) -> str:
    """As XML Schema writes it: `INF`, `-INF`, `NaN`, or digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def _rounded_ticks(fraction: str) -> int:
    """Of the digits after a second's point."""
    digits = fraction[:8].ljust(8, "0")  # one more than a tick has: it decides
    return (int(digits) + 5) // 10


def _fraction_text(ticks: int) -> str:
    return f".{ticks:07}".rstrip("0") if ticks else ""
