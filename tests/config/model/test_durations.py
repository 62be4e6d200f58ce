"""Durations are read in every form that SDKs and people use, and written in the one all read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.model.definitions import UNLIMITED_MS
from config.model.durations import UNLIMITED, finer_ticks_of, format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "PT0S"),
        (5_000, "PT5S"),
        (60_000, "PT1M"),
        (60_000, "PT60S"),
        (90_000, "PT1M30S"),
        (1_500, "PT1.5S"),
        (3_600_000, "PT1H"),
        (14 * 86_400_000, "P14D"),
        (86_400_000 + 3_600_000, "P1DT1H"),
        (7 * 86_400_000, "P1W"),
        (395 * 86_400_000, "P1Y1M"),
        (30_000, "30s"),
        (250, "250ms"),
        (300_000, "5m"),
        (7_200_000, "2 h"),
        (86_400_000, "1d"),
        (UNLIMITED_MS, "unlimited"),
        (UNLIMITED_MS, UNLIMITED),
        (UNLIMITED_MS, "P10675199DT2H48M5.477539S"),
        (UNLIMITED_MS, "P99999999D"),
        (UNLIMITED_MS, "99999999999999d"),
    ],
)
def test_a_duration_is_read(duration_ms, text):
    """ISO 8601 and the short form; what reaches the longest time span is unlimited."""
    assert duration_ms == parse_duration_ms(text)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "1", "PT1", "PT-5S", "-PT5S", "P1DT", "5 minutes", "PT1.5M", "1S"]
)
def test_what_is_no_duration_is_refused(text):
    """Neither form bends: a number without a unit would be anybody's guess."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT0S", 0),
        ("PT1M", 60_000),
        ("PT0.5S", 500),
        ("P1DT1S", 86_401_000),
        ("P14D", 14 * 86_400_000),
        (UNLIMITED, UNLIMITED_MS),
    ],
)
def test_a_duration_is_written_in_days_and_smaller(text, duration_ms):
    """Java and .NET read no years, months or weeks."""
    assert text == format_duration(duration_ms)


@given(st.integers(0, UNLIMITED_MS - 1_001))
def test_what_is_written_is_read_back(duration_ms):
    """No millisecond is lost on the way."""
    assert duration_ms == parse_duration_ms(format_duration(duration_ms))


@pytest.mark.parametrize(
    ("text", "duration_ms", "ticks"),
    [
        ("PT1.1234567S", 1_123, 4_567),
        ("PT0.0000001S", 0, 1),
        ("P1DT0.001S", 86_400_001, 0),
        ("PT1.12345678S", 1_123, 4_567),
        ("PT1M", 60_000, 0),
        ("90s", 90_000, 0),
    ],
)
def test_what_is_finer_than_a_millisecond_is_read_and_written(text, duration_ms, ticks):
    """In the units of .NET; what is finer still is cut off."""
    assert (duration_ms, ticks) == (parse_duration_ms(text), finer_ticks_of(text))
    written = format_duration(duration_ms, ticks)
    assert (duration_ms, ticks) == (parse_duration_ms(written), finer_ticks_of(written))
