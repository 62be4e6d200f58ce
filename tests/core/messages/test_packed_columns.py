"""Columns of numbers and texts as bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.core.messages.packed_columns import (
    Column,
    TextColumn,
    packed_byte_strings,
    packed_column,
    packed_texts,
    unset_positions,
)

byte_strings = st.binary(max_size=5) | st.integers(254, 258).map(bytes)
"""Short ones, and some whose length is or is not one byte."""
INT64 = st.integers(-(2**63), 2**63 - 1)


def rising(first: int, steps: list[int]) -> tuple[int, ...]:
    values = [first]
    for step in steps:
        values.append(values[-1] + step)
    return tuple(values)


columns = st.one_of(
    st.lists(INT64, min_size=1, max_size=40).map(tuple),
    st.lists(st.none() | INT64, min_size=1, max_size=40).map(tuple),
    st.lists(st.integers(0, 300), min_size=1, max_size=40).map(tuple),
    st.builds(rising, st.integers(0, 2**40), st.lists(st.integers(0, 70_000), max_size=40)),
    st.builds(
        lambda first, step, count: tuple(range(first, first + step * count, step)),
        st.integers(-(2**40), 2**40),
        st.sampled_from([-3, -1, 1, 1000]),
        st.integers(1, 40),
    ),
)


@settings(deadline=None)
@given(columns, st.binary(max_size=3), st.data())
def test_a_column_holds_its_values(values, before, data):
    """Whole and in parts, wherever it begins."""
    column = Column(before + packed_column(values) + b"after", len(before), len(values))
    assert values == tuple(column.values(0, len(values)))
    assert len(before) + len(packed_column(values)) == column.end
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert values[start:stop] == tuple(column.values(start, stop))


@settings(deadline=None)
@given(columns)
def test_what_is_said_about_a_column_is_true(values):
    """The shortcuts of a start rely on it."""
    column = Column(packed_column(values), 0, len(values))
    if column.is_equal:
        assert 1 == len(set(values))
    if column.is_zero_or_none:
        assert not any(values)
    if None not in values:
        if column.is_consecutive:
            assert list(range(values[0], values[0] + len(values))) == list(values)
        assert values[0] == column.first
        assert column.least <= min(values)
        assert sum(values) == column.total()


@pytest.mark.parametrize("values", [(2**63,), (1, 2**63), (0, 2**70), (-(2**63) - 1, 0)])
def test_a_number_of_more_than_64_bits_is_refused(values):
    """No database holds it."""
    with pytest.raises(OverflowError):
        packed_column(values)


@settings(deadline=None)
@given(st.lists(st.none() | byte_strings, min_size=1, max_size=40), st.data())
def test_a_column_of_byte_strings_holds_its_values(texts, data):
    """None and empty ones are different."""
    packed = packed_byte_strings(texts)
    column = TextColumn(b"x" + packed, 1, len(texts))
    assert texts == list(column.values(0, len(texts)))
    assert 1 + len(packed) == column.end
    assert (set(texts) == {None}) == column.is_none
    start = data.draw(st.integers(0, len(texts)))
    assert texts[start:] == list(column.values(start, len(texts)))


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=40))
@example(["a" * 127, "b"])
@example(["a" * 128, "b"])
@example(["a", "ä"])
def test_texts_are_stored_as_their_bytes(texts):
    """One form for both, so that both are read in the same way."""
    encoded = [None if text is None else text.encode() for text in texts]
    assert packed_byte_strings(encoded) == packed_texts(texts)


@settings(deadline=None)
@given(st.integers(0, 2**70))
def test_unset_bits_are_found(bits):
    """Of the first seventy."""
    bits &= (1 << 70) - 1
    assert [at for at in range(70) if not bits >> at & 1] == list(unset_positions(bits, 70))
