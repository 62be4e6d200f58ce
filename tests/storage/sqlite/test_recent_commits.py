"""Small commits are rows of their own, and move to the tables later: nothing is lost or changed on the way."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import storage.sqlite.store
from broker.core.contract.records import (
    EntityDeleted,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks import compaction
from storage.contract import StorageError, StoreUnusable
from storage.memory import MemoryStore
from storage.sqlite.recent_commits import PART_BYTES, PARTS_MAX
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import entity, everything, message_ids, payload, row

if TYPE_CHECKING:
    from pathlib import Path

SLOTS = 256


@pytest.fixture
def store(path: Path):
    """A store that has measured the space on its disk."""
    store = SqliteStore(path)
    store.open()
    store.commit([entity(1)])
    yield store
    store.close()


def sent(number: int, size: int = 1024) -> MessagesStored:
    return MessagesStored([row(number)], [payload(number, b"%d" % (number % 10) * size)])


def sent_together(ids: range, bodies: Any) -> tuple[SentRows, SentPayloads]:
    """The same as sends of clients record it."""
    count = len(ids)
    first = row(ids[0])
    rows = SentRows(
        first.id,
        first.entity_id,
        first.sub_queue,
        first.sequence_number,
        first.enqueue_sequence_number,
        first.enqueued_time_ms,
        None,
        0,
        [0] * count,
        [5] * count,
        None,
    )
    return rows, SentPayloads(
        first.id, [one.body for one in bodies], [one.annotations for one in bodies]
    )


def completed(*numbers: int) -> MessagesDeleted:
    return MessagesDeleted(numbers, numbers)


def table_count(store: SqliteStore, table: str) -> int:
    assert store._writer is not None
    return int(store._writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def copied(store: SqliteStore, folder: Path) -> SqliteStore:
    """A store on a copy of the files, as a kill at this moment leaves them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for suffix in ("", "-wal"):
        name = store.path.name + suffix
        shutil.copy(store.path.with_name(name), folder / name)
    copy = SqliteStore(folder / store.path.name)
    copy.open()
    return copy


def test_a_small_commit_writes_one_page(store):
    """A message that is sent, and one that is completed. A page is four kilobytes of the log."""
    for number in range(1, 50):
        before = store._log.uncopied_frames
        store.commit([sent(number)])
        assert before + 1 == store._log.uncopied_frames
        store.commit([completed(number)])
        assert before + 2 == store._log.uncopied_frames


def test_what_comes_and_goes_is_never_written_to_the_tables(store):
    """Not even when the rows are used up, again and again. Its sequence numbers are kept."""
    texts: list[str] = []
    store._writer.set_trace_callback(texts.append)
    for number in range(1, 2 * SLOTS):
        store.commit([sent(number)])
        store.commit([completed(number)])
    store._writer.set_trace_callback(None)
    moves = [text for text in texts if "INTO sequence_numbers" in text]
    assert 3 <= len(moves) <= 4
    # Only the commit that finds no free row writes its own message.
    assert len([text for text in texts if "INTO blocks" in text]) <= len(moves)
    assert {(1, 0): 2 * SLOTS - 1} == store.load().sequence_numbers
    assert [] == message_ids(store)


def test_what_stays_moves_to_the_tables_when_the_rows_are_used_up(store):
    """In the commit that finds no free row, together with its own changes."""
    for number in range(1, SLOTS):
        store.commit([sent(number)])
    assert 0 == table_count(store, "blocks")
    store.commit([sent(SLOTS)])
    assert SLOTS == table_count(store, "blocks")
    assert list(range(1, SLOTS + 1)) == message_ids(store)


def test_a_commit_of_several_parts_is_found_after_a_kill(store, tmp_path):
    """Larger than a row; a commit of more rows than that is written to the tables."""
    store.commit([sent(1, 3 * PART_BYTES)])
    assert 0 == table_count(store, "blocks")
    store.commit([sent(2)])
    copy = copied(store, tmp_path / "copy")
    assert everything(store) == everything(copy)
    copy.close()
    store.commit([sent(3, PARTS_MAX * PART_BYTES)])
    assert 3 == table_count(store, "blocks")
    store.commit([sent(4, 100_000)])  # a body of its own
    store.commit([completed(4)])
    assert [1, 2, 3] == message_ids(store)
    assert {1, 2, 3} == set(store.read_payloads(range(1, 10)))


@pytest.mark.parametrize("seed", range(4))
def test_kills_at_any_moment_leave_what_was_committed(store, tmp_path, monkeypatch, seed):
    """Compared with plain dictionaries, over all kinds of records, moves, rewriting and openings."""
    monkeypatch.setattr(compaction, "SMALL_BLOCKS_MAX", 40)
    monkeypatch.setattr(compaction, "DEAD_MAX_BYTES", 20_000)
    chance = random.Random(seed)
    plain = MemoryStore()
    plain.open()
    plain.commit([entity(1)])
    alive: list[int] = []
    last = 0
    for step in range(800):
        records: list[Any] = []
        for _ in range(chance.choice((1, 1, 1, 3))):
            kind = chance.random()
            if kind < 0.5 or not alive:
                count = chance.choice((1, 1, 1, 2, 30))
                ids = range(last + 1, last + 1 + count)
                last = ids[-1]
                alive += ids
                size = chance.choice((0, 10, 1_000, 1_000, 5_000, 17_000 if count == 1 else 10))
                bodies: Any = [
                    payload(one, b"%d" % one * (size // 4), b"a" * (one % 3)) for one in ids
                ]
                rows: Any = [row(one) for one in ids]
                if chance.random() < 0.5:
                    rows, bodies = sent_together(ids, bodies)
                records.append(MessagesStored(rows, bodies))
            elif kind < 0.85:
                gone = chance.sample(alive, min(len(alive), chance.choice((1, 1, 1, 2, 40))))
                alive = [one for one in alive if one not in gone]
                records.append(MessagesDeleted(gone, gone))
            elif kind < 0.97:
                changed = chance.sample(alive, min(len(alive), chance.choice((1, 1, 5))))
                records.append(MessagesUpdated([row(one, delivery_count=step) for one in changed]))
            elif kind < 0.98:
                records.append(SequenceNumbersSkipped([(2, 0, step + 1)]))
            elif kind < 0.99:
                records.append(SessionStateSet(1, "session", b"%d" % step, step))
            else:
                records.append(EntityDeleted(2))
        store.commit(records)
        plain.commit(records)
        if chance.random() < 0.01:
            assert everything(plain) == everything(store)
        if chance.random() < 0.005:
            copy = copied(store, tmp_path / "copy")
            assert everything(plain) == everything(copy)
            copy.close()
            copy.open()
            assert everything(plain) == everything(copy)
            copy.close()
        if chance.random() < 0.003:
            store.close()
            store.open()
    assert everything(plain) == everything(store)


@pytest.mark.parametrize("failing", ["UPDATE recent_commits", "COMMIT", "INSERT"])
def test_a_commit_that_fails_leaves_recent_commits_as_they_were(store, tmp_path, failing):
    """Whether it would have been a row, or have moved all rows to the tables."""
    for number in range(1, SLOTS - 12):
        store.commit([sent(number)])
    for number in range(1, 20, 2):
        store.commit([sent(1_000 + number), completed(number)])
        store.commit([sent(2_000 + number)])  # if that one has moved the rows
        before = everything(store)
        writer = store._writer
        store._writer = FailingConnection(writer, failing)
        batch = [sent(5_000 + number, 20_000), completed(number + 1)]
        for records in ([sent(5_000 + number)], batch):
            if failing == "INSERT" and records is not batch:
                continue
            with pytest.raises(StorageError):
                store.commit(records)
        store._writer = writer
        assert before == everything(store)
    copy = copied(store, tmp_path / "copy")
    assert before == everything(copy)
    copy.close()


class FailingConnection:
    """A connection on which statements that begin with a text fail. A transaction without BEGIN fails as well."""

    def __init__(self, connection: sqlite3.Connection, failing: str) -> None:
        self._connection = connection
        self._failing = failing

    def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
        is_alone = text.startswith("UPDATE recent") and not self._connection.in_transaction
        if text.startswith(self._failing) or (is_alone and self._failing == "COMMIT"):
            raise sqlite3.OperationalError("injected")
        return self._connection.execute(text, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_backup_of_an_open_store_has_recent_commits(store, tmp_path):
    """SQLite's own backup copies the rows as well."""
    for number in range(1, 20):
        store.commit([sent(number)])
    store.commit([completed(3, 4)])
    path = tmp_path / "backup.db"
    with closing(sqlite3.connect(store.path)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    backup = SqliteStore(path)
    backup.open()
    assert everything(store) == everything(backup)
    backup.close()


def test_closing_moves_everything_to_the_tables(store):
    store.commit([sent(1)])
    store.commit([completed(1), sent(2)])
    store.close()
    store.open()
    assert (1, False) == (table_count(store, "blocks"), store._recent.has_some)
    assert [2] == message_ids(store)


def test_deletions_free_space_before_much_is_deleted(store):
    """A deleted block occupies its table until the changes move."""
    for number in range(1, 21):
        ids = range(number * 100, number * 100 + 100)
        store.commit(
            [MessagesStored([row(one) for one in ids], [payload(one, b"x" * 1_000) for one in ids])]
        )
    for number in range(1, 21):
        store.commit([completed(*range(number * 100, number * 100 + 100))])
        assert table_count(store, "blocks") <= 20 - number + 11
    assert table_count(store, "blocks") <= 11


def test_nearly_full_disks_get_no_recent_commits(store, monkeypatch):
    """A completion has to free space at once."""
    monkeypatch.setattr(storage.sqlite.store, "FREE_PLENTY_BYTES", 1 << 60)
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    store._examine_from_s = 0.0
    store.commit([sent(1)])
    for number in range(2, 5):
        store.commit([sent(number)])
        assert number == table_count(store, "blocks")
    store.commit([completed(1)])
    assert 3 == table_count(store, "blocks")


def test_a_damaged_row_is_reported(store):
    """It never passes for an empty queue."""
    store.commit([sent(1)])
    (part,) = store._writer.execute("SELECT part FROM recent_commits WHERE slot = 1").fetchone()
    for damaged in (part[:10] + b"\x07" + part[11:], part[:12] + b"\x05\0\0\0" + part[16:]):
        store._writer.execute("UPDATE recent_commits SET part = ? WHERE slot = 1", (damaged,))
        store._recent.forget()
        with pytest.raises(StoreUnusable, match="a recent commit is damaged"):
            store.load()
    store._writer.execute("UPDATE recent_commits SET part = ? WHERE slot = 1", (part,))
    assert [1] == message_ids(store)
