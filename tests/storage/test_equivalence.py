"""Whatever is committed, a file or a database holds what plain dictionaries hold.

The memory store applies records one by one; the other stores draw them together into few
statements. All must come to the same, and a reopened one to the same again.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    RuleRow,
    RulesDeleted,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks import block_batch, compaction
from storage.memory import MemoryStore
from storage.postgres.store import PostgresStore
from storage.sqlite.store import SqliteStore
from storage.urls import store_for
from tests.storage.sample_records import entity, everything, payload, row
from tests.support.stored_blocks import unpack_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.contract import Store
    from tests.support.postgres_server import PostgresServer

ENTITIES = st.integers(1, 3)
IDS = st.integers(1, 40)
SESSIONS = st.sampled_from([None, "", "a", "b"])

rows = st.builds(
    row,
    IDS,
    entity_id=ENTITIES,
    sub_queue=st.integers(0, 2),
    time_to_live_ms=st.none() | st.integers(0, 5),
    delivery_count=st.integers(0, 3),
    sequence_number=st.integers(1, 60),
    payload_id=IDS,
    session_id=SESSIONS,
    changes=st.none() | st.binary(max_size=3),
)
payloads = st.builds(payload, IDS, st.binary(max_size=4), st.binary(max_size=2))
times = st.integers(1, 20)


@st.composite
def sent(draw) -> MessagesStored:
    """Messages that were sent together, as most records of a broker are."""
    count = draw(st.integers(1, 8))
    first_id, number = draw(IDS), draw(st.integers(1, 60))
    live_ms = draw(st.none() | st.integers(0, 5))

    def each(values):
        return draw(st.lists(values, min_size=count, max_size=count))

    return MessagesStored(
        SentRows(
            first_id,
            draw(ENTITIES),
            draw(st.integers(0, 2)),
            number,
            draw(st.just(number) | st.integers(1, 60)),
            draw(times),
            live_ms,
            0 if live_ms is None else draw(times),
            each(st.integers(0, 300)),
            each(st.integers(0, 9)),
            draw(st.none()) if draw(st.booleans()) else each(SESSIONS),
        ),
        SentPayloads(
            first_id,
            each(st.binary(max_size=6)),
            None if draw(st.booleans()) else each(st.binary(max_size=2)),
        ),
    )


records = st.one_of(
    sent(),
    st.builds(MessagesStored, st.lists(rows, max_size=20), st.lists(payloads, max_size=20)),
    st.builds(MessagesUpdated, st.lists(rows, max_size=5)),
    st.builds(MessagesDeleted, st.lists(IDS, max_size=20), st.lists(IDS, max_size=20)),
    st.builds(SessionStateSet, ENTITIES, st.sampled_from("ab"), st.none() | st.binary(), times),
    st.builds(
        MessageIdsSeen, ENTITIES, st.lists(st.tuples(st.sampled_from("abcd"), times), max_size=4)
    ),
    st.builds(MessageIdsForgotten, ENTITIES, times),
    st.builds(MessageIdsDeleted, ENTITIES, st.lists(st.sampled_from("abcd"), max_size=4)),
    st.builds(entity, ENTITIES, st.sampled_from(["x", "y"])),
    st.builds(EntityDeleted, ENTITIES),
    st.builds(
        lambda *row: RulesStored([RuleRow(*row)]),
        ENTITIES,
        st.integers(1, 4),
        st.sampled_from(["{}", '{"a":1}']),
    ),
    st.builds(RulesDeleted, ENTITIES, st.lists(st.integers(1, 4), max_size=3)),
    st.builds(
        SequenceNumbersSkipped,
        st.lists(st.tuples(ENTITIES, st.integers(0, 2), st.integers(1, 60)), max_size=3),
    ),
    st.builds(NamespaceStored, st.sampled_from("mn"), st.sampled_from(["{}", '{"a":1}'])),
    st.builds(NamespaceDeleted, st.sampled_from("mn")),
)


def by_id(store: Store) -> dict[str, Any]:
    """All it holds. Numbers may repeat here, so the order of messages says nothing."""
    found = everything(store)
    found["messages"].sort(key=lambda message: message.id)
    return found


def legal(store: MemoryStore, batch: list[Any]) -> list[Any]:
    """The batch without what a broker never says: storing or updating what it should not.

    What is there follows the batch record by record, in a scratch store that takes it all.
    """
    kept: list[Any] = []
    for record in batch:
        match record:
            case MessagesStored(SentRows() as new_rows, new_payloads):
                if not set(new_rows.ids).isdisjoint({*store._messages, *store._payloads}):
                    continue
            case MessagesStored(new_rows, new_payloads):
                record = MessagesStored(
                    absent(new_rows, store._messages), absent(new_payloads, store._payloads)
                )
            case MessagesUpdated(changed):
                record = MessagesUpdated([one for one in changed if one.id in store._messages])
        store.commit([record])
        kept.append(record)
    return kept


def absent(candidates, present) -> list[Any]:
    first = {candidate.id: candidate for candidate in reversed(candidates)}
    return [candidate for key, candidate in first.items() if key not in present]


BATCHES = st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(BATCHES)
def test_a_file_and_dictionaries_hold_the_same(batches):
    """After every commit, and after reopening."""
    compare(batches)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=20))
def test_a_file_whose_blocks_are_written_again_all_the_time_holds_the_same(batches):
    """With limits so low that nearly every commit writes old blocks again, divides new ones, and has large bodies."""
    with low_limits():
        compare(batches, reopen_every=3)


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[PostgresStore]:
    """A schema for all examples: its tables are emptied before each."""
    store = store_for(postgres_server.url())
    assert isinstance(store, PostgresStore)
    store.open()
    yield store
    store.close()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BATCHES)
def test_a_database_and_dictionaries_hold_the_same(database, batches):
    """After every third commit, when the ownership was taken again."""
    compare_with(database, batches)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=12))
def test_a_database_whose_blocks_are_written_again_all_the_time_holds_the_same(database, batches):
    """As a file."""
    with low_limits():
        compare_with(database, batches)


def compare_with(store: PostgresStore, batches: list[list[Any]]) -> None:
    """Commits batches to a schema and to dictionaries."""
    store.close()
    with closing(store.database.connect()) as connection:
        tables = connection.execute(
            "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = %s "
            "AND tablename NOT IN ('ownership', 'heartbeat', 'peeklock_version')",
            [store.database.schema],
        ).fetchone()
        assert tables is not None
        connection.execute(f"TRUNCATE {tables[0]}".encode())
    expected, scratch = MemoryStore(), MemoryStore()
    assert store.try_acquire()
    for number, batch in enumerate(batches, 1):
        batch = legal(scratch, batch)
        expected.commit(batch)
        store.commit(batch)
        if number % 3 == 0 or number == len(batches):
            store.release()
            assert store.try_acquire()
            assert by_id(expected) == by_id(store)


@contextmanager
def low_limits() -> Iterator[None]:
    """Limits of blocks that random batches reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "DEAD_MAX_BYTES", 0)
        patch.setattr(compaction, "SMALL_BLOCKS_MAX", 2)
        patch.setattr(compaction, "REWRITE_BLOCKS", 3)
        patch.setattr(block_batch, "BLOCK_MAX_ROWS", 5)
        patch.setattr(block_batch, "BLOCK_MAX_BYTES", 9)
        patch.setattr(block_batch, "LARGE_PAYLOAD_BYTES", 4)
        yield


def damaged_blocks(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return unpack_blocks(database)


def compare(batches: list[list[Any]], reopen_every: int = 0) -> None:
    """Commits batches to a file and to dictionaries."""
    with TemporaryDirectory() as folder:
        expected, scratch = MemoryStore(), MemoryStore()
        store = SqliteStore(Path(folder) / "peeklock.db")
        store.open()
        try:
            for number, batch in enumerate(batches, 1):
                batch = legal(scratch, batch)
                expected.commit(batch)
                store.commit(batch)
                if reopen_every and number % reopen_every == 0:
                    store.close()
                    assert [] == damaged_blocks(store.path)
                    store.open()
                assert by_id(expected) == by_id(store)
            store.close()
            store.open()
            assert by_id(expected) == by_id(store)
        finally:
            store.close()
