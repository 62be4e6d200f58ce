"""A batch costs few statements: each is a moment in which the event loop may take the interpreter."""

from __future__ import annotations

import pytest

from broker.core.contract.records import (
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
)
from tests.storage.sample_records import everything, payload, row, stored


@pytest.fixture(autouse=True)
def _tables(without_journal):
    """Small batches are written to the tables, too."""


def statements_of(store, records) -> list[str]:
    """What a commit runs between its BEGIN and COMMIT: the verb and the table of each."""
    texts: list[str] = []
    store._writer.set_trace_callback(texts.append)
    store.commit(records)
    store._writer.set_trace_callback(None)
    begin, *between, commit = [text for text in texts if not text.startswith("PRAGMA")]
    assert ("BEGIN IMMEDIATE", "COMMIT") == (begin, commit)
    words = [text.replace("OR FAIL ", "").split() for text in between]
    made = [f"{verb} {table}" for verb, _, table, *_ in words]
    assert "UPDATE SET" == made.pop()  # the number of the commit
    return made


@pytest.mark.parametrize("count", [1, 2, 300, 2000])
def test_messages_and_bodies_take_one_statement(sqlite, count):
    """However many turns they came from, up to the size of a block."""
    single_turns = [stored([message_id]) for message_id in range(1, count + 1)]
    assert ["INSERT blocks", "INSERT sequence_numbers"] == statements_of(sqlite, single_turns)


def test_turns_that_alternate_are_drawn_together(sqlite):
    """Sends and completions of many turns come to one statement a kind."""
    sqlite.commit([stored(range(1, 101))])
    batch = [
        record
        for turn in range(1, 51)
        for record in (stored([100 + turn]), MessagesDeleted([turn], [turn]))
    ]
    assert [
        "INSERT blocks",
        "REPLACE dead_slots",
        "INSERT sequence_numbers",
    ] == statements_of(sqlite, batch)


def test_completing_all_messages_of_a_commit_deletes_their_block(sqlite):
    """Nothing is written but the deletion."""
    sqlite.commit([stored(range(1, 101))])
    gone = range(1, 101)
    assert ["DELETE blocks"] == statements_of(sqlite, [MessagesDeleted(gone, gone)])


def test_what_comes_and_goes_in_one_batch_is_never_written(sqlite):
    """Receive-and-delete with a waiting receiver costs no body on disk."""
    batch = [stored(range(1, 101)), MessagesDeleted(range(1, 101), range(1, 101))]
    assert ["INSERT sequence_numbers"] == statements_of(sqlite, batch)
    assert {} == everything(sqlite)["payloads"]


def test_scattered_deletes_take_a_statement_for_hundreds(sqlite):
    """Competing consumers complete in any order."""
    sqlite.commit([stored(range(1, 1001))])
    gone = range(1, 1001, 2)
    assert ["REPLACE dead_slots"] == statements_of(sqlite, [MessagesDeleted(gone, gone)])


def test_large_bodies_are_written_a_few_at_a_time(sqlite):
    """A statement holds its bodies in memory twice: four megabytes are not written at once."""
    bodies = [payload(number, b"x" * 500_000) for number in range(1, 9)]
    statements = statements_of(sqlite, [MessagesStored([], bodies)])
    assert ["INSERT payloads"] * 4 == statements


def test_many_bodies_are_divided_into_blocks(sqlite):
    """Reading one body reads its block, so a block is small: 300 KB take three of them."""
    bodies = [payload(number, b"x" * 1_000) for number in range(1, 301)]
    assert ["INSERT blocks"] * 3 == statements_of(sqlite, [MessagesStored([], bodies)])


def test_updates_and_message_ids_take_a_statement_each(sqlite):
    """The same holds for what abandoning and duplicate detection write."""
    sqlite.commit([stored(range(1, 101))])
    batch = [
        MessagesUpdated([row(message_id, delivery_count=1) for message_id in range(1, 101)]),
        *(MessageIdsSeen(1, [(f"id {number}", 5)]) for number in range(100)),
    ]
    assert [
        "REPLACE message_ids",
        "INSERT blocks",
        "REPLACE dead_slots",
        "INSERT sequence_numbers",
    ] == statements_of(sqlite, batch)
