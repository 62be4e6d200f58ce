"""AMQP values in the JSON of the data plane and the control API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from protocol.codec import Described, Symbol, Timestamp, UInt
from protocol.http.amqp_json import JsonTimes, json_value

TIMES = JsonTimes(datetime.isoformat, timedelta.total_seconds)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        (Symbol("symbol"), "symbol"),
        (UInt(7), 7),
        (1.5, 1.5),
        (b"\0\1", "AAE="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Timestamp(1000), "1970-01-01T00:00:01+00:00"),
        (datetime(2026, 2, 3, tzinfo=UTC), "2026-02-03T00:00:00+00:00"),
        (timedelta(seconds=90), 90.0),
        ({Symbol("a"): [UInt(1), b"\0"]}, {"a": [1, "AA=="]}),
        ({1: None, b"\0": 2}, {"1": None, "AA==": 2}),
    ],
)
def test_a_value_has_a_form_in_json(value, expected):
    written = json_value(value, TIMES)
    assert expected == written
    assert written == json.loads(json.dumps(written, allow_nan=False))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_text(value):
    """Parsers refuse `Infinity` and `NaN`."""
    assert [str(value)] == json_value([value], TIMES)


def test_a_described_value_of_an_unknown_type_is_written_without_its_descriptor():
    assert 1 == json_value(Described(Symbol("unknown"), UInt(1)), TIMES)
