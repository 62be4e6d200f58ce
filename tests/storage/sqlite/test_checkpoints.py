"""The write-ahead log is copied into the database file beside commits, and stays short."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import storage.sqlite.checkpoints
import storage.sqlite.store
from broker.core.contract.records import MessagesDeleted, MessagesStored
from storage.contract import StorageError, StoreUnusable
from storage.sqlite.checkpoints import FEW_FRAMES
from storage.sqlite.free_space import PAGE_BYTES
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import payload, row, stored

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_FRAMES = 200
"""In place of thousands."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_journal: None):
    """Every commit is written to the log."""
    del without_journal
    monkeypatch.setattr(storage.sqlite.checkpoints, "LOG_FRAMES", LOG_FRAMES)
    store = SqliteStore(tmp_path / "peeklock.db")
    store.open()
    yield store
    store.close()


def _log_bytes(store: SqliteStore) -> int:
    return store.path.with_name(store.path.name + "-wal").stat().st_size


def _commit_until_due(store: SqliteStore, number: int) -> int:
    """Returns the number of the next message."""
    while not store.maintenance_is_due:
        store.commit([stored([number])])
        number += 1
    return number


def test_commits_leave_the_database_file_alone(store: SqliteStore):
    """Nobody waits for a checkpoint: commits only say that one is due."""
    before = store.path.read_bytes()
    _commit_until_due(store, 1)
    assert before == store.path.read_bytes()
    store.maintain()
    assert before != store.path.read_bytes()
    assert not store.maintenance_is_due


def test_the_log_begins_again_after_a_checkpoint(store: SqliteStore):
    """Its file does not grow any more."""
    number = _commit_until_due(store, 1)
    longest_bytes = _log_bytes(store)
    for _ in range(5):
        store.maintain()
        number = _commit_until_due(store, number)
    assert _log_bytes(store) <= longest_bytes + FEW_FRAMES * PAGE_BYTES


def test_the_next_commit_copies_what_was_committed_during_a_checkpoint(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    """Under constant load a checkpoint is never quite done, and the log would grow for ever."""
    number = _commit_until_due(store, 1)
    longest_bytes = _log_bytes(store)
    copy = storage.sqlite.checkpoints._copy

    def copy_and_commit(connection: sqlite3.Connection) -> None:
        nonlocal number
        copy(connection)
        if connection is not store._writer:
            store.commit([stored([number])])
            number += 1

    monkeypatch.setattr(storage.sqlite.checkpoints, "_copy", copy_and_commit)
    for _ in range(5):
        store.maintain()
        assert store._log.uncopied_frames
        number = _commit_until_due(store, number)
    assert _log_bytes(store) <= longest_bytes + 2 * FEW_FRAMES * PAGE_BYTES


def test_commits_and_reads_go_on_during_checkpoints(store: SqliteStore):
    """Each in its own thread, as in the broker; the log stays short, and nothing is lost."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def maintain() -> None:
        try:
            while not stop.is_set():
                if store.maintenance_is_due:
                    store.maintain()
                store.read_payloads([1])
        except BaseException as failure:  # noqa: BLE001 (asserted below)
            failures.append(failure)

    thread = threading.Thread(target=maintain)
    thread.start()
    for number in range(1, 1_500):
        gone = [number - 20] if number > 20 else []
        store.commit([stored([number]), MessagesDeleted(gone, gone)])
    stop.set()
    thread.join()
    assert [] == failures
    assert set(range(1_480, 1_500)) == store.read_payloads(range(1, 1_500)).keys()
    assert _log_bytes(store) < 1_500 * 3 * PAGE_BYTES / 2


def test_a_program_that_reads_for_long_does_not_make_every_commit_start_a_checkpoint(
    store: SqliteStore,
):
    """The log cannot be copied meanwhile. Trying again and again would only cost time."""
    store.commit([stored([1])])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as outsider:
        outsider.execute("BEGIN")
        outsider.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        number = _commit_until_due(store, 2)
        store.maintain()
        store.commit([stored([number])])
        assert not store.maintenance_is_due
        number = _commit_until_due(store, number + 1)
    store.maintain()
    assert store._log.uncopied_frames <= FEW_FRAMES


def test_a_failed_commit_does_not_end_the_locks_of_sqlite(store: SqliteStore):
    """Another program that opens the file then would take it for unused, and clear its index."""
    store.commit([stored([1])])
    index = store.path.with_name(store.path.name + "-shm")

    def locks() -> list[str]:
        inode = f":{index.stat().st_ino} "
        lines = Path("/proc/locks").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if inode in line]

    before = locks()
    assert before
    with pytest.raises(StorageError, match="stored twice"):
        store.commit([stored([2]), MessagesStored([row(1)], [payload(1)])])
    assert before == locks()


def test_the_files_are_examined_now_and_then_and_not_in_every_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    """System calls about files and disks take time, and hardly ever say something new."""
    now_s = 0.0
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def count_and_call(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            return function(*arguments, **named)

        return count_and_call

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for name in ("stat", "statvfs"):
        monkeypatch.setattr(os, name, counted(name))
    store.commit([stored([1])])
    assert {"stat", "statvfs"} <= set(calls)
    calls.clear()
    for number in range(2, 12):
        store.commit([stored([number])])
    assert [] == calls
    now_s += storage.sqlite.store.EXAMINE_INTERVAL_S
    store.path.rename(store.path.with_name("elsewhere.db"))
    with pytest.raises(StoreUnusable, match="deleted or replaced"):
        store.commit([stored([12])])


def test_a_reader_does_not_delay_the_end_for_long(store: SqliteStore):
    """The log cannot be emptied while somebody reads it, but what is in it is durable."""
    store.commit([stored([1])])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM blocks").fetchall()
        store.commit([stored([2])])
        began_s = time.monotonic()
        store.close()
        assert time.monotonic() - began_s < 5
    store.open()
