"""Parses and formats durations: ISO 8601 (`PT1M30S`, `P14D`), or short (`90s`).

Everywhere else durations are milliseconds. The longest time span of the SDKs, and `unlimited`, are `UNLIMITED_MS`.
"""

from __future__ import annotations

import re

from config.model.definitions import UNLIMITED_MS

UNLIMITED = "P10675199DT2H48M5.4775807S"
"""The longest time span of .NET, which every SDK sends and understands as "never"."""

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
# Without a calendar, as in .NET.
_MONTH_MS = 30 * _DAY_MS
_YEAR_MS = 365 * _DAY_MS

_ISO_8601 = re.compile(
    r"P(?=[\dT])(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?",
    re.ASCII,
)
_ISO_UNITS_MS = (
    _YEAR_MS,
    _MONTH_MS,
    7 * _DAY_MS,
    _DAY_MS,
    _HOUR_MS,
    _MINUTE_MS,
    _SECOND_MS,
)

_SHORT = re.compile(r"(\d+)\s*(ms|s|m|h|d)", re.ASCII)
_SHORT_UNITS_MS = {"ms": 1, "s": _SECOND_MS, "m": _MINUTE_MS, "h": _HOUR_MS, "d": _DAY_MS}


def parse_duration_ms(text: str) -> int:
    """Returns the milliseconds of a duration. Raises `ValueError`."""
    text = text.strip()
    if text.lower() == "unlimited":
        return UNLIMITED_MS
    if short := _SHORT.fullmatch(text):
        return min(int(short[1]) * _SHORT_UNITS_MS[short[2]], UNLIMITED_MS)
    iso = _ISO_8601.fullmatch(text)
    if iso is None:
        raise ValueError(f"{text!r} is not a duration")
    *amounts, fraction = iso.groups(default="0")
    total_ms = int(fraction.ljust(3, "0")[:3]) + sum(
        int(amount) * unit_ms for amount, unit_ms in zip(amounts, _ISO_UNITS_MS, strict=True)
    )
    # The Python SDK rounds the longest time span down by some microseconds.
    return UNLIMITED_MS if total_ms >= UNLIMITED_MS - _SECOND_MS else total_ms


def finer_ticks_of(text: str) -> int:
    """Returns the part of a duration that is finer than milliseconds, in the 100 ns ticks of .NET."""
    iso = _ISO_8601.fullmatch(text.strip())
    return 0 if iso is None else int((iso[8] or "").ljust(7, "0")[3:7])


def format_duration(duration_ms: int, finer_ticks: int = 0) -> str:
    """Returns ISO 8601 with days and smaller units, which both Java and .NET read."""
    if duration_ms >= UNLIMITED_MS:
        return UNLIMITED
    days, rest_ms = divmod(duration_ms, _DAY_MS)
    hours, rest_ms = divmod(rest_ms, _HOUR_MS)
    minutes, rest_ms = divmod(rest_ms, _MINUTE_MS)
    seconds, milliseconds = divmod(rest_ms, _SECOND_MS)
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if milliseconds or finer_ticks:
        time += f"{seconds}.{milliseconds:03}{finer_ticks:04}".rstrip("0") + "S"
    elif seconds or not (date or time):
        time += f"{seconds}S"
    return f"P{date}" + (f"T{time}" if time else "")
