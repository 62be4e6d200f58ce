"""Records as bytes: all that was written is read, and what the tables could not hold is refused before."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    RulesDeleted,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.sqlite.commit_journal import ENTRY_MAX_BYTES
from storage.sqlite.journal_entries import BODY_MAX_BYTES, decode_records, encode_records
from tests.storage.sample_records import entity, payload, row, stored

ROWS = SentRows(5, 1, 0, 9, 12, 1_700, 60_000, 61_700, [1, 2], [10, 11], ["a", None])
PAYLOADS = SentPayloads(5, [b"one", b"two"], [b"", b"x"])
SENT = MessagesStored(ROWS, PAYLOADS)
RECORDS: list[Any] = [
    stored([1]),
    stored([2, 3], session_id="für", state=2, changes=b"changed", scheduled_enqueue_time_ms=99),
    MessagesStored([row(4, payload_id=1, entity_id=2)], []),
    MessagesStored([], [payload(9, b"", b"annotations")]),
    MessagesUpdated([row(1, delivery_count=3, sub_queue=1)]),
    MessagesDeleted([1], []),
    MessagesDeleted([2, 3], [1, 2, 3]),
    SessionStateSet(3, "session \x00 für", b"state", 1_700),
    SessionStateSet(3, "s", b"", 1_700),
    SessionStateSet(3, "s", None, 1_700),
    MessageIdsSeen(4, [('id " für', 5), ("", 1 << 60)]),
    MessageIdsForgotten(4, 17),
    MessageIdsDeleted(4, ['id " für', ""]),
    SequenceNumbersSkipped([(1, 0, 5), (2, 1, 1 << 40)]),
]


def plain(records):
    """Rows and ids as lists, for a comparison."""
    return [
        type(record)(
            *[list(one) if not isinstance(one, str | bytes | int | None) else one for one in record]
        )
        for record in records
    ]


def test_every_kind_of_record_is_read_as_it_was_written():
    """Alone, and together in one entry."""
    for records in ([[one] for one in [*RECORDS, SENT]], [[*RECORDS, SENT]]):
        for some in records:
            content = encode_records(some)
            assert content is not None
            assert plain(some) == plain(decode_records(content))


def test_messages_that_were_sent_are_read_as_rows():
    """One alone has a shorter way, with the same bytes."""
    one = MessagesStored(ROWS.part(0, 1), PAYLOADS.part(0, 1))
    (read,) = decode_records(encode_records([one]) or b"")
    assert (list(one.rows), list(one.payloads)) == (read.rows, read.payloads)


@pytest.mark.parametrize(
    "record",
    [
        entity(1),
        EntityDeleted(1),
        RulesDeleted(1, [2]),
        MessagesStored([row(1)], [payload(1, bytes(BODY_MAX_BYTES + 1))]),
        MessagesStored(
            SentRows(1, 1, 0, 1, 1, 1, None, 0, [0], [5], None),
            SentPayloads(1, [bytes(BODY_MAX_BYTES)], [b"x"]),
        ),
        stored(range(1, 5_000)),
        SessionStateSet(1, "s", bytes(ENTRY_MAX_BYTES), 1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_large_and_rare_records_go_to_the_tables(record):
    assert encode_records([record]) is None
    assert encode_records([stored([7]), record]) is None


@pytest.mark.parametrize(
    "record",
    [
        SessionStateSet(1, "\ud800", b"", 1),
        SessionStateSet(1, "s", b"", 1 << 63),
        MessageIdsSeen(1, [("\ud800", 1)]),
        MessageIdsSeen(1, [("a", 1 << 63)]),
        MessageIdsForgotten(1, 1 << 63),
        MessageIdsDeleted(1, ["\ud800"]),
        SequenceNumbersSkipped([(1, 0, 1 << 63)]),
        MessagesDeleted([1 << 63], []),
        stored([1], session_id="\ud800"),
        MessagesUpdated([row(1, expires_at_ms=1 << 64)]),
    ],
)
def test_values_that_the_tables_cannot_hold_are_refused(record):
    """Otherwise, the journal could not be moved to the tables."""
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        encode_records([record])


@pytest.mark.parametrize("cut", [1, 5, 9, 20])
def test_a_damaged_entry_is_reported(cut):
    content = encode_records([MessagesDeleted([1, 2], [1, 2])]) or b""
    for damaged in (content[:-cut], b"\x09" + content[1:]):
        with pytest.raises((ValueError, IndexError, struct.error)):
            decode_records(damaged)
