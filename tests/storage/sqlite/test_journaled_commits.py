"""Most commits are in the journal first, and move to the tables later: nothing is lost or changed on the way."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import storage.sqlite.free_space
import storage.sqlite.store
from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks import compaction
from storage.contract import StorageError, StorageFull, StoreUnusable
from storage.memory import MemoryStore
from storage.sqlite import commit_journal, disk_reserve, journaled_commits
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import entity, everything, message_ids, payload, row
from tests.support.background_store import BackgroundStore

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 256 << 10
"""In place of megabytes."""


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch):
    monkeypatch.setattr(commit_journal, "SEGMENT_BYTES", SEGMENT_BYTES)
    monkeypatch.setattr(commit_journal, "_EXTENSION_BYTES", 16 << 10)
    monkeypatch.setattr(journaled_commits, "PART_BYTES", 4 << 10)
    monkeypatch.setattr(journaled_commits, "FREED_MAX_BYTES", 64 << 10)


@pytest.fixture
def store(request, path: Path):
    """A store that has measured the space on its disk."""
    store = getattr(request, "param", SqliteStore)(path)
    store.open()
    store.commit([entity(1)])
    yield store
    store.close()


def sent(*numbers: int, size: int = 1024) -> MessagesStored:
    """As a client sends messages together."""
    return sent_together([payload(one, b"%d" % (one % 10) * size) for one in numbers])


def sent_together(bodies: Any) -> MessagesStored:
    first, count = row(bodies[0].id), len(bodies)
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
    payloads = SentPayloads(
        first.id, [one.body for one in bodies], [one.annotations for one in bodies]
    )
    return MessagesStored(rows, payloads)


def completed(*numbers: int) -> MessagesDeleted:
    return MessagesDeleted(numbers, numbers)


def stored_count(store: SqliteStore) -> int:
    """How many messages the tables have."""
    assert store._reader is not None
    rows = store._blocks.index(store._source(store._reader)).rows
    return sum(rows.get(number) is not None for number in range(1, rows.highest + 1))


def block_count(store: SqliteStore) -> int:
    assert store._writer is not None
    return int(store._writer.execute("SELECT count(*) FROM blocks").fetchone()[0])


def transactions_of(store: SqliteStore, records: list[Any]) -> int:
    texts: list[str] = []
    assert store._writer is not None
    store._writer.set_trace_callback(texts.append)
    store.commit(records)
    store._writer.set_trace_callback(None)
    return texts.count("COMMIT")


def copied(store: SqliteStore, folder: Path) -> SqliteStore:
    """A store on a copy of the files, as a kill at this moment leaves them. The next copy takes its place."""
    copy = SqliteStore(copied_files(store, folder))
    copy.open()
    return copy


def copied_files(store: SqliteStore, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for suffix in ("", "-wal", "-commits"):
        path = store.path.with_name(store.path.name + suffix)
        if path.exists():
            shutil.copy(path, folder / path.name)
    return folder / store.path.name


def test_a_small_commit_is_one_system_call(store, monkeypatch):
    """A message that is sent, and one that is completed. SQLite has nothing to do."""
    store.commit([sent(1)])
    calls: list[str] = []

    def counted(name: str, real: Any) -> Any:
        def count_and_call(*given: Any) -> Any:
            calls.append(name)
            return real(*given)

        return count_and_call

    monkeypatch.setattr(os, "pwrite", counted("write", os.pwrite))
    monkeypatch.setattr(os, "pwritev", counted("synced write", os.pwritev))
    monkeypatch.setattr(os, "fdatasync", counted("sync", os.fdatasync))
    assert 0 == transactions_of(store, [sent(2, size=10)])
    assert 0 == transactions_of(store, [completed(1)])
    assert ["synced write", "synced write"] == calls


def test_what_comes_and_goes_is_never_written_to_the_tables(store):
    """Not even when the segments are used again and again. Its sequence numbers are kept."""
    for number in range(1, 500):
        store.commit([sent(number)])
        store.commit([completed(number)])
        assert 0 == block_count(store)
    assert {(1, 0): 499} == store.load().sequence_numbers
    assert [] == message_ids(store)


def test_what_stays_moves_to_the_tables_in_parts(store):
    """While the other segment is written. A commit moves a little, so that nobody waits."""
    moved = [0]
    for number in range(1, 200):
        assert transactions_of(store, [sent(number)]) <= 2
        moved.append(stored_count(store))
        assert moved[-1] - moved[-2] <= 8
    entries = SEGMENT_BYTES // commit_journal.BLOCK_BYTES
    assert 2 * entries + 10 > 199 - moved[-1] > entries // 2
    assert list(range(1, 200)) == message_ids(store)


def test_copies_on_subscriptions_move_in_parts_too(store):
    """Their bodies count as those of messages that were sent to a queue do."""
    moved = [0]
    for number in range(1, 400, 2):
        copies = [row(number), row(number + 1, payload_id=number)]
        store.commit([MessagesStored(copies, [payload(number, b"x" * 1024)])])
        moved.append(stored_count(store))
        assert moved[-1] - moved[-2] <= 16
    assert moved[-1] > 0


def test_the_tables_are_not_far_behind_the_journal(store, monkeypatch):
    """So a backup of a running broker lacks little, and one of an idle broker nothing."""
    now_s = time.monotonic() + 1_000
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for number in range(1, 31):
        store.commit([sent(number, size=10)])
        now_s += 0.1
    assert 30 - 22 <= stored_count(store) <= 30 - 9
    store.commit([])
    assert 30 == stored_count(store)


def test_parts_of_messages_that_were_sent_together_are_dropped(store, tmp_path):
    """The rest of them move."""
    store.commit([sent(*range(1, 11))])
    store.commit([completed(2, 3, 10)])
    store.commit([completed(5)])
    expected = [1, 4, 6, 7, 8, 9]
    assert expected == sorted(store.read_payloads(range(1, 20)))
    copy = copied(store, tmp_path / "copy")
    assert expected == message_ids(copy) == sorted(copy.read_payloads(range(1, 20)))
    copy.close()
    assert expected == message_ids(store)
    assert len(expected) == stored_count(store)


@pytest.mark.parametrize("store", [SqliteStore, BackgroundStore], indirect=True)
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
            if kind < 0.45 or not alive:
                count = chance.choice((1, 1, 1, 2, 30))
                ids = range(last + 1, last + 1 + count)
                last = ids[-1]
                alive += ids
                size = chance.choice((0, 10, 1_000, 1_000, 5_000, 17_000 if count == 1 else 10))
                bodies: Any = [
                    payload(one, b"%d" % one * (size // 4), b"a" * (one % 3)) for one in ids
                ]
                if chance.random() < 0.7:
                    records.append(sent_together(bodies))
                else:
                    records.append(MessagesStored([row(one) for one in ids], bodies))
            elif kind < 0.85:
                some = alive[-50:] if chance.random() < 0.7 else alive
                gone = chance.sample(some, min(len(some), chance.choice((1, 1, 1, 2, 40))))
                alive = [one for one in alive if one not in gone]
                records.append(MessagesDeleted(gone, gone))
            elif kind < 0.95:
                changed = chance.sample(alive, min(len(alive), chance.choice((1, 1, 5))))
                records.append(MessagesUpdated([row(one, delivery_count=step) for one in changed]))
            elif kind < 0.96:
                records.append(SequenceNumbersSkipped([(2, 0, step + 1)]))
            elif kind < 0.98:
                records.append(SessionStateSet(1, f"s{step % 3}", b"%d" % step, step))
            elif kind < 0.99:
                records.append(MessageIdsSeen(1, [(f"id{step}", step), ("again", step)]))
                records.append(MessageIdsForgotten(1, step // 2))
            else:
                records.append(EntityDeleted(2))
        store.commit(records)
        plain.commit(records)
        if chance.random() < 0.02:
            wanted = chance.sample(range(1, last + 1), min(last, 20))
            assert plain.read_payloads(wanted) == store.read_payloads(wanted)
        if chance.random() < 0.005:
            assert everything(plain) == everything(store)
        if chance.random() < 0.02:
            copy = copied(store, tmp_path / "copy")
            assert everything(plain) == everything(copy)
            copy.close()
            assert not (tmp_path / "copy" / (store.path.name + "-commits")).exists()
            copy.open()
            assert everything(plain) == everything(copy)
            copy.close()
        if chance.random() < 0.003:
            store.close()
            store.open()
    assert everything(plain) == everything(store)


def fill(store: SqliteStore) -> None:
    """Both segments, so that the next commits move something."""
    for number in range(1, 101):
        store.commit([sent(number)])


@pytest.mark.parametrize("failing", ["BEGIN", "INSERT", "UPDATE", "COMMIT"])
def test_a_move_that_fails_leaves_everything_as_it_was(store, tmp_path, failing):
    """Its commit fails, and the next one moves the same again."""
    fill(store)
    for number in (101, 201, 301):
        for one in range(number, number + 90):
            store.commit([sent(one)])
        expected = message_ids(copied(store, tmp_path / "copy"))
        writer = store._writer
        store._writer = FailingConnection(writer, failing)
        for records in ([entity(5), sent(number + 95)], [sent(number + 95, size=200_000)]):
            with pytest.raises(StorageError, match="injected"):
                store.commit([*records, completed(number)])
        store._writer = writer
        assert expected == message_ids(copied(store, tmp_path / "copy"))
        store.commit([completed(number + 1)])
        expected.remove(number + 1)
        assert expected == message_ids(copied(store, tmp_path / "copy"))
    assert expected == message_ids(store)


class FailingConnection:
    """A connection on which statements that begin with a text fail."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        failing: str,
        error: sqlite3.Error | None = None,
    ) -> None:
        self._connection = connection
        self._failing = failing
        self._error = error or sqlite3.OperationalError("injected")

    def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
        if text.startswith(self._failing):
            raise self._error
        return self._connection.execute(text, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("failing", ["pwritev", "pwrite", "fdatasync"])
def test_a_commit_that_cannot_be_appended_leaves_everything_as_it_was(
    store, tmp_path, monkeypatch, failing, error
):
    """The next one is written to the tables, with all that is in the journal. Then the journal is used again."""
    store.commit([sent(1, 2, size=10)])
    expected = StorageFull if error in {errno.ENOSPC, errno.EDQUOT} else StorageError

    def fail(*_):
        raise OSError(error, "injected")

    store._journaled.journal._can_sync_writes = failing == "pwritev"
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fail)
        with pytest.raises(expected, match="injected"):
            store.commit([sent(3, size=10), completed(1)])
    assert {1, 2} == set(store.read_payloads([1, 2, 3]))
    copy = copied(store, tmp_path / "copy")
    if failing != "fdatasync":
        assert [1, 2] == message_ids(copy)
    copy.close()
    assert 1 == transactions_of(store, [completed(2)])
    copy = copied(store, tmp_path / "copy")
    assert [1] == message_ids(copy)
    copy.close()
    assert 0 == transactions_of(store, [sent(4, size=10)])
    assert [1, 4] == message_ids(store)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_commit_in_the_background_that_fails_leaves_everything_as_it_was(
    store, tmp_path, monkeypatch, error
):
    """As one that does not run in the background. The entry may be in the file, and is not read."""
    store.commit([sent(1, 2, size=10)])
    expected = StorageFull if error in {errno.ENOSPC, errno.EDQUOT} else StorageError
    background = store.background_commits
    assert background.begin([sent(3, size=10), completed(1)])
    end = background._writer.end
    with monkeypatch.context() as patched:
        patched.setattr(background, "_writer", FailedWriter(background._writer, error))
        with pytest.raises(expected, match=os.strerror(error)):
            background.end()
    with pytest.raises(RuntimeError):
        end()
    assert {1, 2} == set(store.read_payloads([1, 2, 3]))
    copy = copied(store, tmp_path / "copy")
    assert [1, 2] == message_ids(copy)
    copy.close()
    assert not background.begin([completed(2)])
    assert 1 == transactions_of(store, [completed(2)])
    assert background.begin([sent(4, size=10)])
    background.end()
    assert [1, 4] == message_ids(store)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_messages_are_completed_although_the_disk_is_full(store, monkeypatch, error):
    """What could not be written in the background is committed once more, to the tables."""
    store.commit([sent(1, 2, size=10)])
    background = store.background_commits
    assert background.begin([completed(1)])
    with monkeypatch.context() as patched:
        patched.setattr(background, "_writer", FailedWriter(background._writer, error))
        assert not background.end()
    assert [1, 2] == message_ids(store)
    store.commit([completed(1)])
    assert [2] == message_ids(store)


class FailedWriter:
    """A writer whose write has failed."""

    def __init__(self, writer: Any, error_number: int) -> None:
        self._writer = writer
        self._error_number = error_number

    def end(self) -> int:
        self._writer.end()
        return self._error_number


def test_a_kill_during_a_commit_in_the_background_leaves_all_of_it_or_nothing(store, tmp_path):
    """Nobody was told of it."""
    background = store.background_commits
    begun_count = 0
    for number in range(1, 100):
        before = set(range(1, number))
        if not background.begin(
            [sent(number, size=100)]
        ):  # the journal has to be opened or extended
            store.commit([sent(number, size=100)])
            continue
        begun_count += 1
        path = copied_files(store, tmp_path / "copy")
        background.end()
        copy = SqliteStore(path)
        copy.open()
        assert set(message_ids(copy)) in (before, before | {number})
        copy.close()
    assert begun_count > 30


def test_what_moves_commits_first_is_not_begun_in_the_background(store):
    """Moving takes long, and the event loop would wait for it."""
    background = store.background_commits
    begun_count = 0
    for number in count(1):
        if background.begin([sent(number)]):
            begun_count += 1
            background.end()
        elif transactions_of(store, [sent(number)]):
            break
    assert begun_count > 10
    assert list(range(1, number + 1)) == message_ids(store)


def test_other_records_are_not_begun_in_the_background(store):
    """They are written to the tables, and do not stay in memory."""
    background = store.background_commits
    store.commit([sent(1)])
    for records in ([entity(7)], [sent(2, size=200_000)], []):
        assert not background.begin(records)
        assert () == background._records
    store.commit([entity(7)])


@pytest.mark.parametrize("examines", ["commit", "examine"])
def test_a_commit_in_the_background_does_not_examine_the_disk(store, monkeypatch, examines):
    """That takes long on a slow disk, so the owner decides when it is done: by another commit, or while a small one is written."""
    background = store.background_commits
    store.commit([sent(1)])
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 60.0)
    store._examine_from_s = 0.0
    assert background.begin([sent(2)])
    background.end()
    assert background.examination_is_due
    if examines == "commit":
        store.commit([sent(3)])
    else:
        background.examine()
    assert not background.examination_is_due


@pytest.mark.parametrize("caller_waits", [False, True])
def test_a_commit_in_the_background_is_durable_at_its_end(store, tmp_path, caller_waits):
    """Whether the kernel announces it, or the caller waits for it."""
    background = store.background_commits
    store.commit([sent(1)])
    for number in range(2, 12):
        if not background.begin([sent(number, size=10)], caller_waits=caller_waits):
            store.commit([sent(number, size=10)])
            continue
        assert background.end()
        copy = copied(store, tmp_path / "copy")
        assert list(range(1, number + 1)) == message_ids(copy)
        copy.close()
    assert not background.needs_thread


def test_nothing_is_begun_in_the_background_while_space_is_scarce(store):
    """What a commit deletes has to free space at once, and the disk is examined after each commit."""
    store.commit([sent(1)])
    store._space.is_plenty = False
    assert not store.background_commits.begin([completed(1)])


def test_closing_moves_everything_to_the_tables(store):
    """The database file is complete without the journal, which is deleted."""
    store.commit([sent(1)])
    store.commit([completed(1), sent(2)])
    assert store._journaled.journal.path.exists()
    store.close()
    assert not store._journaled.journal.path.exists()
    store.open()
    assert 1 == stored_count(store)
    assert [2] == message_ids(store)


def test_deletions_free_space_before_much_is_deleted(store):
    """A deleted block occupies its table until its deletion moves."""
    for number in range(1, 21):
        store.commit([sent(*range(number * 100, number * 100 + 100), size=100)])
    store.load()
    store.commit([entity(2)])
    for number in range(1, 21):
        store.commit([completed(*range(number * 100, number * 100 + 100))])
        assert stored_count(store) <= (20 - number) * 100 + 700
    assert stored_count(store) <= 700


def test_deletions_that_are_due_stay_due_as_time_passes(store):
    """What was noted a second ago is older, and fewer."""
    store._move_from_s = float("inf")
    for number in range(1, 21):
        store.commit([sent(*range(number * 100, number * 100 + 100), size=100)])
    store.load()
    for number in range(1, 11):
        store.commit([completed(*range(number * 100, number * 100 + 100))])
    store._journaled.note_time()
    for number in range(5_000, 5_020):
        store.commit([sent(number)])
    assert stored_count(store) <= 1_300


def test_large_bodies_are_deleted_soon(store, monkeypatch):
    """Each counts as much, because its size is not known."""
    monkeypatch.setattr(journaled_commits, "LARGE_BODY_BYTES", 20 << 10)
    numbers = range(1, 10)
    for number in numbers:
        store.commit([sent(number, size=200_000)])
    for number in numbers:
        store.commit([completed(number)])
    store.commit([sent(10, size=10)])
    (count,) = store._writer.execute("SELECT count(*) FROM payloads").fetchone()
    assert 3 <= len(numbers) - count <= 8
    store.commit([])
    assert (0,) == store._writer.execute("SELECT count(*) FROM payloads").fetchone()


def test_many_deletions_move_in_parts(store, monkeypatch):
    """They are short in the journal, and long work in the tables."""
    monkeypatch.setattr(journaled_commits, "PENDING_MAX_BYTES", 32 << 10)
    for start in range(1, 4_000, 400):
        store.commit([sent(*range(start, start + 400), size=1)])
    store.load()
    before = stored_count(store)
    assert 4_000 == before
    for start in range(1, 4_000, 40):
        store.commit([completed(*range(start, start + 40))])
        after = stored_count(store)
        assert before - after <= 120
        before = after
    assert before < 1_000


def rows_in(store: SqliteStore, table: str) -> int:
    assert store._writer is not None
    return int(store._writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_many_seen_message_ids_move_in_parts(store):
    """A record has the ids of a whole batch. The tables put each into another page."""
    moved = [0]
    for batch in range(100):
        seen = [(f"{number}", batch) for number in range(batch * 100, batch * 100 + 100)]
        store.commit([MessageIdsSeen(1, seen)])
        moved.append(rows_in(store, "message_ids"))
        assert moved[-1] - moved[-2] <= 300
    assert moved[-1] > 0


def test_large_session_states_move_in_parts(store):
    """They are counted with their size."""
    moved = [0]
    for number in range(100):
        store.commit([SessionStateSet(1, f"{number}", b"x" * 8_000, 5)])
        moved.append(rows_in(store, "session_states"))
        assert moved[-1] - moved[-2] <= 5
    assert moved[-1] > 0


def test_nearly_full_disks_get_no_journal(store, monkeypatch):
    """A completion has to free space at once."""
    store.commit([sent(1)])
    monkeypatch.setattr(storage.sqlite.free_space, "FREE_PLENTY_BYTES", 1 << 60)
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    store._examine_from_s = 0.0
    store.commit([sent(2)])
    for number in range(3, 6):
        store.commit([sent(number)])
        assert number == stored_count(store)
    store.commit([completed(1)])
    assert 4 == stored_count(store)


def test_nearly_full_disks_get_the_space_of_the_journal(store, tmp_path, monkeypatch):
    """Its commits are in the tables, which need the space. The journal is used again when there is plenty."""
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    plenty_bytes = storage.sqlite.free_space.FREE_PLENTY_BYTES
    for number in range(1, 90, 3):
        monkeypatch.setattr(storage.sqlite.free_space, "FREE_PLENTY_BYTES", plenty_bytes)
        store._examine_from_s = 0.0
        store.commit([sent(number)])
        store.commit([sent(number + 1), completed(number)])
        assert store._journaled.journal.path.exists()
        monkeypatch.setattr(storage.sqlite.free_space, "FREE_PLENTY_BYTES", 1 << 60)
        store._examine_from_s = 0.0
        store.commit([sent(number + 2)])
        store.commit([completed(number + 2)])
        assert not store._journaled.journal.path.exists()
        copy = copied(store, tmp_path / "copy")
        assert list(range(2, number + 2, 3)) == message_ids(copy)
        copy.close()


def test_a_full_disk_has_room_for_what_is_in_the_journal(store, monkeypatch):
    """If another program fills the disk at once: the reserve is enough for the log of the transaction that moves all of
    it, and the journal's own space for the tables. Half of the second segment is written before the first moves."""
    monkeypatch.undo()
    assert disk_reserve.RESERVE_MAX_BYTES >= commit_journal.SEGMENT_BYTES * 1.75
    assert storage.sqlite.free_space.FREE_PLENTY_BYTES >= (
        disk_reserve.RESERVE_SHARE * disk_reserve.RESERVE_MAX_BYTES
    )


def test_a_disk_that_fills_up_gets_the_space_of_the_journal(store, monkeypatch):
    """Also if it is full before anybody has seen that space is scarce."""
    store.commit([sent(1)])
    store.commit(())
    assert store._journaled.journal.path.exists()
    writer = store._writer
    full = sqlite3.OperationalError("injected")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    store._writer = FailingConnection(writer, "COMMIT", full)
    with pytest.raises(StorageFull, match="injected"):
        store.commit([sent(2), entity(2)])
    store._writer = writer
    assert not store._journaled.journal.path.exists()
    store.commit([sent(2)])
    assert [1, 2] == message_ids(store)


def test_a_journal_that_is_deleted_while_the_broker_runs_is_reported(store, monkeypatch):
    """What would be appended to it is lost at the next start."""
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    store.commit([sent(1)])
    store._examine_from_s = 0.0
    store._journaled.journal.path.unlink()
    with pytest.raises(StoreUnusable, match="deleted or replaced"):
        store.commit([sent(2)])


def test_a_journal_that_was_put_in_the_place_of_another_is_not_deleted(store):
    """Somebody has put a copy back while the broker ran, which stops then. The copy may have commits that are nowhere
    else."""
    store.commit([sent(1)])
    path = store._journaled.journal.path
    path.unlink()
    path.write_bytes(b"a copy")
    store.close()
    assert b"a copy" == path.read_bytes()


def test_a_file_that_cannot_be_opened_keeps_its_journal(store, tmp_path):
    """A start that fails must not delete commits that are nowhere else."""
    store.commit([sent(1)])
    folder = tmp_path / "damaged"
    folder.mkdir()
    shutil.copy(store._journaled.journal.path, folder)
    (folder / store.path.name).write_bytes(b"no database" * 500)
    other = SqliteStore(folder / store.path.name)
    with pytest.raises(StoreUnusable):
        other.open()
    for suffix in ("", "-wal"):
        shutil.copy(store.path.with_name(store.path.name + suffix), folder)
    other.open()
    assert [1] == message_ids(other)
    other.close()


@pytest.mark.parametrize(
    ("error", "fix"), [(errno.EIO, "check its disk"), (errno.EACCES, "check the permissions")]
)
def test_a_start_that_cannot_read_the_journal_keeps_it(store, tmp_path, monkeypatch, error, fix):
    """Also that of a new database, whose tables have no commit of the journal yet."""
    store.commit([sent(1)])
    other = SqliteStore(copied_files(store, tmp_path / "copy"))
    read, calls = commit_journal.CommitJournal.read, 0

    def fail_once(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(error, "injected")
        return read(*given)

    monkeypatch.setattr(commit_journal.CommitJournal, "read", fail_once)
    with pytest.raises(StoreUnusable, match=fix):
        other.open()
    other.open()
    assert [1] == message_ids(other)
    other.close()


def test_a_start_that_fails_keeps_what_another_process_has_committed(store, tmp_path, monkeypatch):
    """Although the same store was open before, and had nothing in its journal then."""
    other = copied(store, tmp_path / "copy")
    other.close()
    store.commit([sent(1)])
    copied_files(store, tmp_path / "copy")

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(storage.sqlite.store, "migrate", fail)
        with pytest.raises(StoreUnusable, match="injected"):
            other.open()
    other.open()
    assert [1] == message_ids(other)
    other.close()


def test_a_journal_that_is_gone_when_it_has_to_be_read_again_is_reported(store, monkeypatch):
    """A commit has failed, so the journal is read again. What was in it must not be forgotten."""
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 60.0)
    store.commit([entity(2)])
    missing = f"-commits was deleted.*commit {store._journaled.journal.last_number + 1} is missing"
    store.commit([sent(1)])
    store.commit([sent(2)])
    path = store._journaled.journal.path
    elsewhere = path.rename(path.with_name("elsewhere"))
    store._journaled.journal._can_sync_writes = False
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _no_sync)
        with pytest.raises(StorageError, match="injected"):
            store.commit([sent(3)])
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=missing):
            store.commit([sent(4)])
    elsewhere.rename(path)
    assert [1, 2] == message_ids(store)


def _no_sync(_: int) -> None:
    raise OSError(errno.EIO, "injected")


@pytest.mark.parametrize("records", [(), (sent(3, size=10), entity(2))])
def test_a_failure_right_after_a_transaction_changes_nothing(store, monkeypatch, records):
    """The tables know which commits they have. Nothing moves twice."""
    store.commit([sent(1, 2, size=10)])

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(store._blocks, "apply", fail)
        with pytest.raises(MemoryError):
            store.commit(records)
    store.commit([completed(2)])
    store.commit([sent(4)])
    assert {1, 3, 4} - ({3} if not records else set()) == set(message_ids(store))


def test_an_older_copy_of_the_database_is_not_joined_with_later_commits(store, tmp_path):
    """Commits of the journal may follow one that only the tables have. The older copy does not have that."""
    store.commit([sent(1)])
    older = copied_files(store, tmp_path / "older")
    store.commit([sent(2)])
    alone = copied_files(store, tmp_path / "alone")
    store.commit([entity(2)])
    store.commit([sent(3)])
    journal = store._journaled.journal.path
    shutil.copy(journal, older.with_name(journal.name))
    with pytest.raises(StoreUnusable, match=r"-commits is damaged: commit \d+ is missing; put a"):
        SqliteStore(older).open()
    assert [1, 2] == message_ids(opened(SqliteStore(alone)))
    assert [1, 2, 3] == message_ids(copied(store, tmp_path / "newest"))


def opened(store: SqliteStore) -> SqliteStore:
    store.open()
    return store


def test_a_journal_of_another_database_is_not_read(store, tmp_path):
    """The database was deleted, and its journal was not."""
    store.commit([sent(1)])
    folder = tmp_path / "new"
    folder.mkdir()
    shutil.copy(store._journaled.journal.path, folder)
    new = SqliteStore(folder / store.path.name)
    new.open()
    assert [] == message_ids(new)
    new.close()


def test_the_journal_is_used_again_after_everything_was_loaded(store):
    store.commit([sent(7)])
    store.commit([completed(7)])
    store.load()
    assert 0 == transactions_of(store, [sent(8)])
