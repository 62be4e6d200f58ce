"""What can happen to a file: other processes, damage, other versions, full disks, many threads."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import storage.blocks.compaction
import storage.sqlite.checkpoints
import storage.sqlite.free_space
import storage.sqlite.store
from broker.core.contract.records import (
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    PayloadRow,
)
from storage.contract import StorageError, StorageFull, StoreUnusable
from storage.sqlite.batch import SqlBatch
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import entity, everything, message_ids, payload, row, stored

ROOT = Path(__file__).parents[3]


@contextmanager
def keeper(role: str, path: Path):
    """Another process at work on the file; killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.store_process", role, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def refusal(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(StoreUnusable) as refused:
        SqliteStore(path).open()
    sentence = str(refused.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


# --- one process ------------------------------------------------------------------------------


def test_a_file_held_by_another_process_is_refused(path):
    """The refusal names the file and the process; once that one is killed, the file is free."""
    with keeper("hold", path) as holder:
        assert "held\n" == holder.stdout.readline()
        assert f"in use by process {holder.pid}; stop that one" in refusal(path)
    store = SqliteStore(path)
    store.open()
    store.close()


def test_a_file_can_be_opened_once_in_a_process(sqlite):
    """Two stores on one file would each think they own it."""
    assert "in use by this process" in refusal(sqlite.path)


def test_a_closed_file_can_be_opened_by_others(sqlite):
    """Closing gives the file up, and leaves no log behind."""
    sqlite.commit([stored([1])])
    sqlite.close()
    assert not sqlite.path.with_name("peeklock.db-wal").exists()
    other = SqliteStore(sqlite.path)
    other.open()
    assert [1] == message_ids(other)
    other.close()


def test_a_store_that_is_not_open_says_so(path):
    """Instead of failing somewhere inside."""
    store = SqliteStore(path)
    with pytest.raises(StorageError, match="is not open"):
        store.commit([stored([1])])
    with pytest.raises(StorageError, match="is not open"):
        store.read_payloads([1])
    with pytest.raises(StorageError, match="is not open"):
        store.load()
    assert not path.exists()


# --- files that cannot be used ----------------------------------------------------------------


def test_a_symbolic_link_names_the_file_behind_it(sqlite, tmp_path):
    """SQLite puts its log beside the file, and not beside the link. So do the broker's own files, and the lock is the
    same."""
    sqlite.commit([entity(1), stored([1])])
    link = tmp_path / "link.db"
    link.symlink_to(sqlite.path)
    with pytest.raises(StoreUnusable, match="in use by this process"):
        SqliteStore(link).open()
    sqlite.close()
    linked = SqliteStore(link)
    linked.open()
    linked.commit([stored([2])])
    linked.close()
    sqlite.open()
    assert [1, 2] == message_ids(sqlite)
    assert link.is_symlink()


def test_missing_folders_are_made(tmp_path):
    """A first start needs no preparation."""
    store = SqliteStore(tmp_path / "not" / "there yet" / "peeklock.db")
    store.open()
    store.commit([stored([1])])
    store.close()
    assert store.path.exists()


def test_a_file_that_is_no_database_is_refused(path):
    """And left as it is."""
    path.write_bytes(b"Dear diary, " * 500)
    assert "is damaged or no SQLite file" in refusal(path)
    assert path.read_bytes().startswith(b"Dear diary")


def test_a_damaged_file_is_refused(path):
    """A header alone does not make a database."""
    store = SqliteStore(path)
    store.open()
    store.commit([stored(range(1, 2000))])
    store.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xa5" * 3996
    path.write_bytes(content)
    assert "is damaged or no SQLite file" in refusal(path)


def test_damage_found_while_loading_is_reported(path):
    """Not every damage shows on opening; it never passes for an empty queue."""
    store = SqliteStore(path)
    store.open()
    store.commit([stored(range(1, 2000))])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        _open_and_load(path)


def _open_and_load(path: Path) -> None:
    store = SqliteStore(path)
    try:
        store.open()
        message_ids(store)
    finally:
        store.close()


def test_a_file_of_another_program_is_refused(path):
    """The broker must not add tables to it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.commit()
    assert "belongs to another program" in refusal(path)


def test_a_newer_file_is_refused(path):
    """An older broker does not touch what a newer one wrote."""
    store = SqliteStore(path)
    store.open()
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.commit()
    assert "has schema version 99" in refusal(path)


def test_a_folder_in_the_place_of_the_file_is_refused(path):
    """With the same clear sentence as any file that cannot be written."""
    path.mkdir()
    assert "cannot be written" in refusal(path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    """There is a file at the path of the folder."""
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(tmp_path / "file" / "peeklock.db")


def test_a_file_on_read_only_media_is_refused():
    """Nothing can be made under /proc, not even by root."""
    assert "cannot be written" in refusal(Path("/proc/peeklock.db"))


def test_a_refused_file_is_given_up(path):
    """After a failed start the same process can try again."""
    path.write_bytes(b"Dear diary, " * 500)
    store = SqliteStore(path)
    with pytest.raises(StoreUnusable):
        store.open()
    path.unlink()
    store.open()
    store.close()


# --- a batch that fails -----------------------------------------------------------------------


def forbid_growth(store: SqliteStore, *, extra_pages: int) -> None:
    """Limits the size of the file, as a full disk does."""
    assert store._writer is not None
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + extra_pages}")


def allow_growth(store: SqliteStore) -> None:
    assert store._writer is not None
    store._writer.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_refuses_the_whole_batch_and_the_store_lives_on(sqlite):
    """Nothing of the batch is written, what was there can be read and deleted, room may return."""
    sqlite.commit([stored(range(1, 101))])
    before = everything(sqlite)
    forbid_growth(sqlite, extra_pages=5)
    large = MessagesStored([row(101)], [payload(101, b"x" * 200_000)])
    batch = [MessagesDeleted([1], [1]), MessagesUpdated([row(2, state=1)]), large]
    with pytest.raises(StorageFull, match="has no room to grow; free space"):
        sqlite.commit(batch)
    assert before == everything(sqlite)
    sqlite.commit([MessagesDeleted([3], [3])])
    allow_growth(sqlite)
    sqlite.commit(batch)
    sqlite.close()
    sqlite.open()
    assert [2, *range(4, 102)] == message_ids(sqlite)


def test_a_batch_that_contradicts_the_file_is_refused_whole(sqlite):
    """A message that is stored twice is a bug, and must be reported."""
    sqlite.commit([stored([1])])
    before = everything(sqlite)
    with pytest.raises(StorageError):
        sqlite.commit([stored([2, 3]), MessagesUpdated([row(1, state=1)]), stored([1])])
    assert before == everything(sqlite)
    sqlite.commit([stored([2, 3])])
    assert [1, 2, 3] == message_ids(sqlite)


@pytest.mark.parametrize("unstorable", [{"sequence_number": 2**63}, {"session_id": "\ud800"}])
def test_a_value_sqlite_cannot_hold_fails_the_batch(sqlite, unstorable):
    """As a storage error, which the server knows how to handle, and without half a batch."""
    with pytest.raises(StorageError):
        sqlite.commit([stored([1]), MessagesStored([row(2, **unstorable)], [])])
    assert [] == message_ids(sqlite)


# --- kills ------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["write", "rewrite"])
def test_a_killed_process_leaves_whole_batches_and_all_it_acknowledged(path, role):
    """Killed again and again in the middle of its work, on one file."""
    from tests.storage.store_process import KEPT_BATCHES, batch_of

    acknowledged = 0
    for commits in (1, 3, 30, 80):
        with keeper(role, path) as writer:
            for _ in range(commits):
                acknowledged = int(writer.stdout.readline())
            writer.kill()  # while it works on the next one
            rest = writer.stdout.read()  # `communicate` would lose what is buffered already
            acknowledged = max([acknowledged, *map(int, rest.splitlines())])
        store = SqliteStore(path)
        store.open()
        found = everything(store)
        store.close()
        ids = [message.id for message in found["messages"]]
        last = max(ids) // len(batch_of(0))
        assert last in {acknowledged, acknowledged + 1}
        kept = range(max(1, last - KEPT_BATCHES + 1), last + 1)
        assert [message_id for number in kept for message_id in batch_of(number)] == ids
        assert {message_id: (b"%d" % message_id * 200, b"") for message_id in ids} == found[
            "payloads"
        ]
        assert max(ids) == found["sequence_numbers"][1, 0]


def test_what_was_committed_is_in_the_log_when_commit_returns(sqlite, tmp_path):
    """A copy of the files, taken without closing, is what a power cut would leave."""
    sqlite.commit([stored(range(1, 11))])
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in sqlite.path.parent.glob("peeklock.db*"):
        if not file.name.endswith(("-shm", ".lock")):
            (copy / file.name).write_bytes(file.read_bytes())
    other = SqliteStore(copy / "peeklock.db")
    other.open()
    assert list(range(1, 11)) == message_ids(other)
    other.close()


# --- threads and growth -----------------------------------------------------------------------


def test_payloads_can_be_read_while_commits_run(sqlite, monkeypatch):
    """A reader in another thread finds every stored body, also if a commit writes its block again meanwhile."""
    monkeypatch.setattr(storage.blocks.compaction, "SMALL_BLOCKS_MAX", 2)
    monkeypatch.setattr(storage.sqlite.checkpoints, "LOG_FRAMES", 50)
    kept = range(1000, 1050)
    for number in kept:
        sqlite.commit([stored([number])])
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                found = sqlite.read_payloads(range(1, 2000))
                assert set(kept) <= set(found)
                assert {(b"hello", b"")} == set(found.values())
        except BaseException as failure:  # noqa: BLE001 (asserted below)
            failures.append(failure)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 300):
        gone = range(number - 5, number - 4)
        sqlite.commit([stored([number]), MessagesDeleted(gone, gone)])
        if sqlite.maintenance_is_due:
            sqlite.maintain()
    stop.set()
    reader.join()
    assert [] == failures
    assert [*range(295, 300), *kept] == message_ids(sqlite)


def test_a_log_that_grew_long_is_folded_into_the_file(sqlite, monkeypatch):
    """It is truncated, so that its space can be used for something else."""
    monkeypatch.setattr(storage.sqlite.checkpoints, "LONGEST_LOG_BYTES", 200_000)
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    log = sqlite.path.with_name("peeklock.db-wal")
    sizes = []
    for number in range(1, 60):
        sqlite.commit([MessagesStored([row(number)], [payload(number, b"x" * 20_000)])])
        sizes.append(log.stat().st_size)
        if sqlite.maintenance_is_due:
            sqlite.maintain()
    assert max(sizes[1:]) < 300_000  # the first one has what was written to create the tables
    assert 59 == len(message_ids(sqlite))


PIECE = 1 << 20


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7])
def test_a_large_body_is_stored_as_it_is(sqlite, size):
    """Whether it is written at once or in pieces, also beside others in one commit."""
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    rows = [row(number) for number in (1, 2, 3)]
    payloads = [payload(1, body), payload(2, b"small"), PayloadRow(3, body[::-1], b"notes")]
    sqlite.commit([MessagesStored(rows, payloads)])
    sqlite.close()
    sqlite.open()
    expected = {1: (body, b""), 2: (b"small", b""), 3: (body[::-1], b"notes")}
    assert expected == sqlite.read_payloads([1, 2, 3])
    sqlite.commit([MessagesDeleted([1, 3], [1, 3])])
    assert {2: (b"small", b"")} == sqlite.read_payloads([1, 2, 3])


def test_a_large_body_whose_commit_fails_is_not_stored(sqlite, monkeypatch):
    """Not even a piece of it. The next commit is as before."""
    body = bytes(PIECE + 1)
    write = SqlBatch.write

    def fail_late(batch, records) -> None:
        write(batch, records)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(SqlBatch, "write", fail_late)
        with pytest.raises(StorageError):
            sqlite.commit([MessagesStored([row(1)], [payload(1, body)])])
    assert {} == sqlite.read_payloads([1])
    sqlite.commit([MessagesStored([row(1)], [payload(1, body)])])
    assert {1: (body, b"")} == sqlite.read_payloads([1])


def test_the_commit_of_a_large_body_does_not_copy_the_log(sqlite):
    """Its clients, and those behind it, would wait for the copy. Maintenance copies the log."""
    sqlite.commit([stored([1])])
    sqlite.maintain()
    before = sqlite.path.stat().st_size
    sqlite.commit([MessagesStored([row(2)], [payload(2, bytes(80 * PIECE))])])
    assert before == sqlite.path.stat().st_size
    assert sqlite.maintenance_is_due
    sqlite.maintain()
    assert sqlite.path.stat().st_size > 80 * PIECE


def test_an_outsider_that_reads_does_not_hold_up_commits(sqlite, monkeypatch):
    """Another program reads the file in a transaction that it does not end."""
    monkeypatch.setattr(storage.sqlite.checkpoints, "LONGEST_LOG_BYTES", 50_000)
    monkeypatch.setattr(storage.sqlite.store, "EXAMINE_INTERVAL_S", 0.0)
    sqlite.commit([stored([1])])
    with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as outsider:
        outsider.execute("BEGIN")
        assert (1,) == outsider.execute("SELECT count(*) FROM blocks").fetchone()
        sqlite.commit([MessagesStored([row(2)], [payload(2, b"x" * 100_000)])])
        assert sqlite.maintenance_is_due
        sqlite.maintain()
        sqlite.commit([stored([3])])
        assert (1,) == outsider.execute("SELECT count(*) FROM blocks").fetchone()
    assert [1, 2, 3] == message_ids(sqlite)


def test_a_load_left_half_read_does_not_hold_the_file(sqlite):
    """A start that fails half-way must be able to close."""
    sqlite.commit([stored(range(1, 2000))])
    sqlite.commit([stored(range(2000, 4000))])
    packed = iter(sqlite.load().packed_messages)
    assert 1999 == next(packed)[0].count
    del packed
    sqlite.close()
    assert not sqlite.path.with_name("peeklock.db-wal").exists()


def test_a_drained_file_is_smaller_after_the_next_start(sqlite, monkeypatch):
    """A backlog long gone does not occupy the disk for ever."""
    monkeypatch.setattr(storage.sqlite.store, "DRAINED_BYTES", 2_000_000)
    sqlite.commit([MessagesStored([row(1)], [payload(1, b"x" * 9_000_000)]), stored([2])])
    sqlite.commit([MessagesDeleted([1], [1])])
    sqlite.close()
    large = sqlite.path.stat().st_size
    sqlite.open()
    assert [2] == message_ids(sqlite)
    sqlite.close()
    assert sqlite.path.stat().st_size < large / 4


def test_a_store_that_is_opened_again_commits_to_its_new_log_file(sqlite):
    """Closing folds the log away; the log of the next opening is another file, and its own."""
    for number in range(1, 4):
        sqlite.commit([entity(number, f"q{number}")])
        sqlite.close()
        taken = sqlite.path.with_name(f"taken-{number}")  # so that no inode is used twice
        taken.touch()
        sqlite.open()
    assert 3 == len(sqlite.load().entities)
