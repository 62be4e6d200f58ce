"""Times and time spans to 100 nanoseconds: their XML texts, and .NET's numbers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.model.ticks import (
    DateTimeTicks,
    TimeSpanTicks,
    format_date_time,
    format_double,
    format_time_span,
    moment_from_ticks,
    parse_date_time,
    parse_double,
    parse_time_span,
    span_from_ticks,
    ticks_of_moment,
    ticks_of_span,
)

SECOND = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
MICROSECOND = SECOND.replace(microsecond=123456)
LAST_TICK = 3_155_378_975_999_999_999
"""9999-12-31T23:59:59.9999999Z, DateTime.MaxValue."""


@pytest.mark.parametrize(
    ("text", "moment", "written"),
    [
        ("2024-01-02T03:04:05Z", SECOND, None),
        ("2024-01-02T03:04:05.1234567Z", DateTimeTicks(MICROSECOND, 7), None),
        ("2024-01-02T03:04:05.123456Z", MICROSECOND, None),
        ("2024-01-02T03:04:05.5Z", SECOND.replace(microsecond=500_000), None),
        ("2024-01-02T03:04:05.0000001Z", DateTimeTicks(SECOND, 1), None),
        ("2024-01-02T03:04:05.12345670Z", DateTimeTicks(MICROSECOND, 7), ".1234567Z"),
        ("2024-01-02T03:04:05.12345674Z", DateTimeTicks(MICROSECOND, 7), ".1234567Z"),
        ("2024-01-02T03:04:05.12345665Z", DateTimeTicks(MICROSECOND, 7), ".1234567Z"),
        ("2024-01-02T03:04:04.99999999Z", SECOND, "05Z"),
        ("2024-01-02T05:04:05.1234567+02:00", DateTimeTicks(MICROSECOND, 7), ".1234567Z"),
        (
            "2024-01-02T03:04:05.1234567",
            DateTimeTicks(MICROSECOND.replace(tzinfo=None), 7),
            None,
        ),
        ("2024-01-02T03:04:05", SECOND.replace(tzinfo=None), None),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC), None),
        ("9999-12-31T23:59:59.9999999Z", moment_from_ticks(LAST_TICK), None),
    ],
)
def test_a_time_is_read_and_written_to_the_tick(text, moment, written):
    """With or without a zone, with as many digits as it has."""
    assert moment == parse_date_time(text)
    assert format_date_time(moment).endswith(written or text)
    assert moment == parse_date_time(format_date_time(moment))


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("PT1.1234567S", 11_234_567),
        ("-PT1.1234567S", -11_234_567),
        ("PT0S", 0),
        ("PT0.0000001S", 1),
        ("-PT0.0000001S", -1),
        ("P1DT2H3M4.5S", 937_845_000_000),
        ("P10675199DT2H48M5.4775807S", 2**63 - 1),
        ("-P10675199DT2H48M5.4775808S", -(2**63)),
    ],
)
def test_a_time_span_is_read_and_written_to_the_tick(text, ticks):
    """From the shortest that .NET has to the longest."""
    span = parse_time_span(text)
    assert ticks == ticks_of_span(span)
    assert text == format_time_span(span)


def test_other_forms_of_a_time_span_are_read():
    """Units that SDKs do not write, and the short form of config files."""
    assert timedelta(days=365 + 30 + 7) == parse_time_span("P1Y1M1W")
    assert timedelta(seconds=90) == parse_time_span("90s")


@pytest.mark.parametrize(
    "text", ["", "long", "P", "PT", "P10675200D", "PT1.S", "+PT1S", "PT" + "9" * 5000 + "S"]
)
def test_what_is_no_time_span_is_refused(text):
    """Or is longer than .NET's longest."""
    with pytest.raises(ValueError):
        parse_time_span(text)


@pytest.mark.parametrize("text", ["", "tomorrow", "2024-01-02T03:04:05.Z", "2024-13-02T03:04:05Z"])
def test_what_is_no_time_is_refused(text):
    """The text is refused when it is parsed."""
    with pytest.raises(ValueError):
        parse_date_time(text)


@given(st.integers(0, LAST_TICK))
def test_every_tick_is_a_time(ticks):
    """And reads back from its text."""
    moment = moment_from_ticks(ticks)
    assert ticks == ticks_of_moment(moment)
    assert moment == parse_date_time(format_date_time(moment))
    assert isinstance(moment, DateTimeTicks) is bool(ticks % 10)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_every_number_of_ticks_is_a_time_span(ticks, others):
    """With one form for each, in the order of their length."""
    span = span_from_ticks(ticks)
    assert ticks == ticks_of_span(span)
    assert span == parse_time_span(format_time_span(span))
    assert isinstance(span, TimeSpanTicks) is bool(ticks % 10)
    one: Any = span
    other: Any = span_from_ticks(others)
    if type(one) is type(other):
        assert (ticks < others) is (one < other)


@pytest.mark.parametrize(
    ("text", "value"),
    [("INF", math.inf), ("-INF", -math.inf), ("1.5", 1.5), ("1e+300", 1e300), ("-0.0", -0.0)],
)
def test_a_double_is_written_as_xml_does(text, value):
    """Infinities too."""
    assert text == format_double(value)
    assert value == parse_double(text)


def test_not_a_number_is_a_double():
    """`NaN`, which equals nothing."""
    assert "NaN" == format_double(parse_double("NaN"))
    assert math.inf == parse_double(" Infinity ")
    with pytest.raises(ValueError):
        parse_double("1_000")
