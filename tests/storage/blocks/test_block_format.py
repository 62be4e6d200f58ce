"""Blocks as bytes: what goes in comes out, whole and in parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks.block_format import (
    SentMessages,
    StoredBlock,
    encode_block,
    encode_sent_block,
)
from tests.storage.sample_records import payload, row

rows = st.lists(
    st.builds(
        row,
        st.integers(1, 10**9),
        entity_id=st.integers(1, 3),
        sub_queue=st.integers(0, 2),
        sequence_number=st.integers(1, 10**12),
        time_to_live_ms=st.none() | st.integers(0, 10**9),
        session_id=st.sampled_from([None, "", "a", "für"]),
        changes=st.none() | st.binary(max_size=3),
        payload_id=st.integers(1, 50),
    ),
    max_size=60,
    unique_by=lambda one: one.id,
)
payloads = st.lists(
    st.builds(payload, st.integers(1, 10**9), st.binary(max_size=30), st.binary(max_size=4)),
    max_size=60,
    unique_by=lambda one: one.id,
)


@settings(deadline=None)
@given(rows, payloads)
def test_a_block_holds_what_was_put_into_it(new_rows, new_payloads):
    """Rows in any order, because each queue has its own section; bodies in theirs."""
    encoded = encode_block(new_rows, new_payloads)
    block = StoredBlock(encoded.entries)
    found = block.live_rows(0)
    assert sorted(new_rows) == sorted(found)
    assert [one.id for one in found] == list(encoded.ids) == list(block.ids())
    assert list(encoded.payload_ids) == [one.id for one in new_payloads]
    assert list(encoded.payload_ids) == list(block.payload_ids(block.ids()))
    assert [tuple(one) for one in new_payloads] == block.live_payloads(encoded.payloads, 0)
    sizes = [len(one.body) + len(one.annotations) for one in new_payloads]
    for found_sizes in (encoded.payload_sizes, block.payload_sizes()):
        each = [found_sizes] * len(sizes) if isinstance(found_sizes, int) else list(found_sizes)
        assert sizes == each


@settings(deadline=None)
@given(rows, payloads, st.data())
def test_only_what_is_alive_is_returned(new_rows, new_payloads, data):
    """A bit for each dead slot."""
    encoded = encode_block(new_rows, new_payloads)
    block = StoredBlock(encoded.entries)
    dead_rows = data.draw(st.integers(0, (1 << len(new_rows)) - 1))
    dead_payloads = data.draw(st.integers(0, (1 << len(new_payloads)) - 1))
    everything = block.live_rows(0)
    assert [one for at, one in enumerate(everything) if not dead_rows >> at & 1] == block.live_rows(
        dead_rows
    )
    alive = [tuple(one) for at, one in enumerate(new_payloads) if not dead_payloads >> at & 1]
    assert alive == block.live_payloads(encoded.payloads, dead_payloads)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 40), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_messages_that_were_sent_together_are_encoded_as_their_rows_are(sends, data):
    """Whole and in part, in one queue and in several, with and without sessions and annotations."""
    pieces: list[SentMessages] = []
    first_id = 10
    for entity_id, count, has_sessions, has_annotations in sends:
        session_ids = [None, *["a", "b"] * count][:count] if has_sessions else None
        sizes = list(range(count))
        new_rows = SentRows(
            first_id, entity_id, 0, first_id, 7, 5, None, 0, [4] * count, sizes, session_ids
        )
        bodies = [b"x" * size for size in sizes]
        annotations = [b"y"] * count if has_annotations else None
        start = data.draw(st.integers(0, count - 1))
        stop = data.draw(st.integers(start + 1, count))
        pieces.append((new_rows, SentPayloads(first_id, bodies, annotations), start, stop))
        first_id += count + data.draw(st.integers(0, 1))
    encoded = encode_sent_block(pieces)
    block = StoredBlock(encoded.entries)
    expected_rows = [row for rows, _, start, stop in pieces for row in rows[start:stop]]
    expected = [tuple(one) for _, bodies, start, stop in pieces for one in bodies[start:stop]]
    assert sorted(expected_rows) == sorted(block.live_rows(0))
    assert sorted(expected) == sorted(block.live_payloads(encoded.payloads, 0))
    assert list(encoded.ids) == list(block.ids())
    assert list(encoded.payload_ids) == list(block.payload_ids(block.ids()))


def test_messages_of_one_send_take_a_few_bytes_each():
    """Most of their fields are equal or rise evenly."""
    sent = [row(number, enqueued_time_ms=5, size=300) for number in range(1, 501)]
    bodies = [payload(number, b"x" * 300) for number in range(1, 501)]
    assert len(encode_block(sent, bodies).entries) < 200


def test_each_of_two_busy_queues_has_a_section_of_its_own():
    """A start reads the messages of a queue together, although a commit has those of many queues."""
    mixed = [row(number, entity_id=1 + number % 2) for number in range(1, 101)]
    sections = StoredBlock(encode_block(mixed, ()).entries).sections()
    assert [50, 50] == [section.count for section in sections]
    assert [{2}, {1}] == [
        {one.entity_id for one in section.rows(0, section.count)} for section in sections
    ]


def test_a_copy_for_each_of_many_queues_shares_a_section():
    """A section of its own would cost more than the message."""
    copies = [row(number, entity_id=number, payload_id=1) for number in range(1, 101)]
    assert 1 == len(StoredBlock(encode_block(copies, [payload(1)]).entries).sections())


def test_a_block_of_a_newer_format_is_refused():
    """It may contain what this version does not understand."""
    entries = encode_block([row(1)], [payload(1)]).entries
    with pytest.raises(ValueError, match="unknown format 2"):
        StoredBlock(b"\x02" + entries[1:])
