"""Rows of messages as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.contract.records import MessageRow
from broker.core.messages.packed_rows import PackedRows, pack_rows, read_ids

NUMBER = st.integers(0, 2**63 - 1)
rows = st.lists(
    st.builds(
        MessageRow,
        NUMBER,
        NUMBER,
        st.integers(0, 2),
        NUMBER,
        NUMBER,
        NUMBER,
        st.none() | NUMBER,
        NUMBER,
        NUMBER,
        NUMBER,
        st.integers(0, 2),
        NUMBER,
        NUMBER,
        NUMBER,
        st.none() | st.text(max_size=5),
        st.none() | st.binary(max_size=5),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(rows, st.data())
def test_rows_come_back(packed, data):
    """Few of them, which are encoded one by one, and many, which are encoded as columns."""
    encoded = pack_rows(packed)
    unpacked = PackedRows(b"before" + encoded + b"after", 6)
    assert packed == unpacked.rows(0, len(packed))
    assert 6 + len(encoded) == unpacked.end
    assert [one.id for one in packed] == list(unpacked.ids())
    assert [one.id for one in packed] == list(read_ids(b"before" + encoded, 6))
    start = data.draw(st.integers(0, len(packed)))
    stop = data.draw(st.integers(start, len(packed)))
    assert packed[start:stop] == unpacked.rows(start, stop)
    dead = data.draw(st.integers(0, (1 << len(packed)) - 1))
    assert [one for at, one in enumerate(packed) if not dead >> at & 1] == unpacked.live_rows(dead)


def test_rows_of_an_unknown_format_are_refused():
    """A newer version may have written them."""
    with pytest.raises(ValueError, match="unknown format 9"):
        PackedRows(b"\x09\0\0\0\0")
