"""Nearly full disks: what the room of a store allows can be stored, and everything can be deleted again."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

import storage.sqlite.free_space
from broker.core.contract.records import (
    EntityDeleted,
    EntityStored,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    SessionStateSet,
)
from broker.core.contract.turn import Turn
from broker.core.queues.duplicate_window import DeletedMessageIds
from storage.contract import StorageFull
from storage.sqlite.free_space import SMALL_STATE_BYTES
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import message_ids, payload, row, stored
from tests.support.small_disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.contract import Room


@contextmanager
def store_on_small_disk(folder: Path, size_bytes: int) -> Iterator[SqliteStore]:
    with small_disk(folder, size_bytes):
        store = SqliteStore(folder / "peeklock.db")
        store.open()
        store.commit([stored([1])])
        store.commit([MessagesDeleted([1], [1])])
        yield store
        store.close()


def leave_free(store: SqliteStore, size_bytes: int) -> None:
    """Another program fills the disk except for so many bytes."""
    disk = os.statvfs(store.path.parent)
    with store.path.with_name("another program").open("wb") as file:
        file.write(bytes(disk.f_bavail * disk.f_frsize - size_bytes))


def message(number: int, size_bytes: int) -> MessagesStored:
    return MessagesStored([row(number)], [payload(number, bytes(size_bytes))])


# --- the room that a store says it has -------------------------------------------------------------


@pytest.mark.parametrize("disk_kibibytes", [8_000, 12_288, 20_000, 32_768, 100_000])
@pytest.mark.parametrize("share", [1, 2, 7, 30])
def test_what_the_room_allows_can_be_stored(tmp_path, disk_kibibytes, share):
    """A part of the room at a time, until it is small. Then everything can be deleted, and there is room again."""
    with store_on_small_disk(tmp_path, disk_kibibytes << 10) as store:
        numbers = []
        for number in range(2, 500):
            if not store.measure_room() or store.room.message_bytes < 20_000:
                break
            store.commit([message(number, store.room.message_bytes // share)])
            numbers.append(number)
        else:
            pytest.fail("the disk never filled")
        assert numbers == message_ids(store)
        for number in numbers:
            store.commit([MessagesDeleted([number], [number])])
        assert store.measure_room()
        again_bytes = store.room.message_bytes
        assert again_bytes >= 20_000
        store.commit([message(1_000, again_bytes)])
        assert [1_000] == message_ids(store)


def test_the_log_of_a_commit_has_to_fit_on_the_disk(tmp_path):
    """However much space is free inside the file."""
    with store_on_small_disk(tmp_path, 64 << 20) as store:
        numbers = range(2, 22)
        for number in numbers:
            store.commit([message(number, 1 << 20)])
        store.commit([MessagesDeleted(numbers, numbers)])
        leave_free(store, 6 << 20)
        assert store.measure_room()
        room_bytes = store.room.message_bytes
        assert 4 << 20 < room_bytes < 6 << 20
        with pytest.raises(StorageFull, match="has no room"):
            store.commit([message(30, 8 << 20)])
        assert [] == message_ids(store)
        store.commit([message(31, room_bytes)])
        assert [31] == message_ids(store)


def test_room_for_messages_leaves_the_reserve_alone(tmp_path):
    """Small session states may use it: a receiver may need to set one before it completes a message."""
    with store_on_small_disk(tmp_path, 32 << 20) as store:
        leave_free(store, 400_000)
        assert not store.measure_room()
        assert store.room.message_bytes == 0
        assert store.room.state_bytes > SMALL_STATE_BYTES * 0.9


def test_small_session_states_are_set_until_the_reserve_is_used(tmp_path):
    """Every state that the room allows is stored. When there is no room any more, messages can still be deleted."""
    with store_on_small_disk(tmp_path, 16 << 20) as store:
        for number in range(2, 12):
            store.commit([message(number, 100_000)])
        store.maintain()
        leave_free(store, 100_000)
        assert not store.measure_room()
        count = 0
        for number in range(200):
            if store.room.state_bytes < 60_000:
                break
            store.commit([SessionStateSet(1, f"session {number}", bytes(60_000), 0)])
            count += 1
        else:
            pytest.fail("the disk never filled")
        assert count > 5
        assert count == len(store.load().session_states)
        for number in range(2, 12):
            store.commit([MessagesDeleted([number], [number])])
        assert [] == message_ids(store)


def test_a_session_state_that_fills_the_disk_is_refused(tmp_path):
    """The log could not be copied into the file."""
    with store_on_small_disk(tmp_path, 48 << 20) as store:
        leave_free(store, 4 << 20)
        with pytest.raises(StorageFull, match="has no room"):
            store.commit([SessionStateSet(1, "session", bytes(8 << 20), 0)])
        assert [] == store.load().session_states


def test_copies_without_new_bodies_may_use_the_reserve(tmp_path):
    """A scheduled message of a topic becomes active although the disk is full."""
    with store_on_small_disk(tmp_path, 32 << 20) as store:
        store.commit([message(2, 1_000)])
        leave_free(store, 0)
        copies = [row(number, payload_id=2) for number in range(10, 5_000)]
        store.commit([MessagesStored(copies, ()), MessagesDeleted([2], [])])
        assert [copy.id for copy in copies] == message_ids(store)


def take_all(store: SqliteStore) -> None:
    """Another program takes all space of the disk."""
    with store.path.with_name("another program").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(65_536)):
            pass


@pytest.mark.parametrize(
    ("disk_mebibytes", "size_bytes", "count"),
    [
        (16, 1_000, 500),
        (16, 100_000, 50),
        (16, 1_000_000, 4),
        (300, 1_000, 500),
        (300, 100_000, 99),
    ],
)
def test_messages_can_be_completed_if_another_program_takes_the_reserve(
    tmp_path, disk_mebibytes, size_bytes, count
):
    """It takes all space before each commit. The log is not shorter than what a completion needs, and is overwritten."""
    with store_on_small_disk(tmp_path, disk_mebibytes << 20) as store:
        numbers = range(2, 2 + count)
        for number in numbers:
            store.commit([message(number, size_bytes)])
        for number in numbers:
            take_all(store)
            store.commit([MessagesDeleted([number], [number])])
        assert [] == message_ids(store)


def test_what_a_killed_broker_has_left_of_its_reserve_is_completed(tmp_path):
    """An empty file would free nothing when the disk is full."""
    with small_disk(tmp_path, 64 << 20):
        (tmp_path / "peeklock.db.reserve").touch()
        store = SqliteStore(tmp_path / "peeklock.db")
        store.open()
        for number in range(2, 400):
            store.commit([message(number, 2_000)])
        take_all(store)
        copies = [row(number, payload_id=2) for number in range(1_000, 6_000)]
        store.commit([MessagesStored(copies, ()), MessagesDeleted(range(2, 400), [])])
        assert [copy.id for copy in copies] == message_ids(store)
        store.close()


def test_what_a_failed_commit_has_left_in_the_log_is_not_read_again(tmp_path):
    """The log keeps its length, and has zeros instead."""
    with store_on_small_disk(tmp_path, 16 << 20) as store:
        store.commit([message(2, 1_000)])
        end = store._log.size_bytes
        with store._log.path.open("r+b") as file:
            content = file.read()
            used_bytes = len(content.rstrip(b"\0"))
            file.seek(used_bytes)
            file.write(b"a frame that does not count")
        store._log.discard_uncommitted()
        assert content == store._log.path.read_bytes()
        assert end == store._log.size_bytes
        store.commit([message(3, 1_000)])
        assert [2, 3] == message_ids(store)


def test_an_entity_that_has_seen_many_message_ids_can_be_deleted_on_a_full_disk(tmp_path):
    """In parts. All ids in one transaction would need more space than the reserve has."""
    with store_on_small_disk(tmp_path, 28 << 20) as store:
        names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(50_000)]
        store.commit([EntityStored(1, "ns", "queue", "q", "{}", 0, 0)])
        for start in range(0, len(names), 1_000):
            seen = [(name, 1) for name in names[start : start + 1_000]]
            store.commit([MessageIdsSeen(1, seen)])
        take_all(store)
        deleted = DeletedMessageIds()
        deleted.add(1, names)
        store.commit([EntityDeleted(1)])
        is_left = True
        while is_left:
            turn = Turn()
            is_left = deleted.do_part(1, turn)
            store.commit(turn.records)
        assert ([], []) == (store.load().entities, list(store.load().message_ids))


# --- beside commits --------------------------------------------------------------------------------


def meanwhile(store: SqliteStore, act: Callable[[], None]) -> None:
    """Does something while the next measurement is made."""
    space = store._space
    room_with = space._room_with

    def room_with_slowly(free_bytes: int) -> Room:
        room = room_with(free_bytes)
        del space._room_with
        act()
        return room

    space._room_with = room_with_slowly  # type: ignore[method-assign]


def test_what_a_commit_has_measured_meanwhile_stays(tmp_path):
    """The room without its messages would be too large."""
    with store_on_small_disk(tmp_path, 32 << 20) as store:
        before = store.room
        meanwhile(store, lambda: store.commit([message(2, 1 << 20)]))
        assert store.measure_room()
        assert store.room.message_bytes < before.message_bytes


def test_blocks_are_not_written_again_if_the_disk_became_full_meanwhile(tmp_path):
    """The answer of the disk is older than that."""
    with store_on_small_disk(tmp_path, 32 << 20) as store:
        meanwhile(store, store._space.release_reserve)
        assert store.measure_room()
        assert not store._space.may_rewrite
        assert store.measure_room()
        assert store._space.may_rewrite


def test_nothing_is_committed_inline_while_the_disk_does_not_answer(sqlite, monkeypatch):
    """A commit could take as long, and the event loop would wait for it."""
    monkeypatch.setattr(storage.sqlite.free_space, "HANGS_S", 0.0)
    found = []
    meanwhile(sqlite, lambda: found.append(sqlite.commits_inline))
    assert sqlite.commits_inline
    sqlite.measure_room()
    assert ([False], True) == (found, sqlite.commits_inline)


# --- commits that another program leaves no space for -----------------------------------------------


def fill_disk(store: SqliteStore) -> range:
    """Stores large messages while there is room. Returns their ids."""
    for number in range(1, 200):
        try:
            store.commit([MessagesStored([row(number)], [payload(number, b"x" * 100_000)])])
        except StorageFull:
            return range(1, number)
    pytest.fail("the disk never filled")


@pytest.mark.parametrize("disk_kibibytes", range(11_000, 12_100, 50))
def test_messages_of_a_full_disk_can_be_completed(tmp_path, disk_kibibytes):
    """Whatever the log and the file had when the disk became full."""
    with small_disk(tmp_path, disk_kibibytes << 10):
        store = SqliteStore(tmp_path / "peeklock.db")
        store.open()
        accepted = fill_disk(store)
        assert list(accepted) == message_ids(store)
        for number in accepted:
            store.commit([MessagesDeleted([number], [number])])
        assert [] == message_ids(store)
        store.commit([stored([200])])
        assert [200] == message_ids(store)
        store.close()


def test_a_disk_that_cannot_be_asked_for_its_room_takes_messages(sqlite, monkeypatch):
    """Also if the room was scarce when it was last known."""

    def fail(path):
        raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr(storage.sqlite.free_space, "FREE_PLENTY_BYTES", 1 << 60)
    sqlite.commit([stored([1])])
    monkeypatch.setattr(os, "statvfs", fail)
    sqlite.commit([stored([2])])
    monkeypatch.undo()
    assert [1, 2] == message_ids(sqlite)


def test_a_store_on_a_disk_that_cannot_be_asked_for_its_room_is_opened(tmp_path, monkeypatch):
    """The reserve is created when the disk can be asked."""
    monkeypatch.setattr(os, "statvfs", lambda path: (path / "missing").stat())
    store = SqliteStore(tmp_path / "peeklock.db")
    store.open()
    assert store.measure_room()
    before_bytes = store._space.reserved_bytes
    monkeypatch.undo()
    assert store.measure_room()
    assert 0 == before_bytes < store._space.reserved_bytes
    store.close()


def test_a_commit_of_most_of_the_free_space_is_refused(tmp_path, monkeypatch):
    """Also while space was not scarce before it: its log could not be copied into the file."""
    monkeypatch.setattr(storage.sqlite.free_space, "FREE_PLENTY_BYTES", 8 << 20)
    with small_disk(tmp_path, 32 << 20):
        store = SqliteStore(tmp_path / "peeklock.db")
        store.open()
        store.commit([stored([1])])
        assert store._space.is_plenty
        bodies = [payload(number, b"x" * 100_000) for number in range(2, 200)]
        with pytest.raises(StorageFull, match="has no room to grow"):
            store.commit([MessagesStored([row(body.id) for body in bodies], bodies)])
        assert [1] == message_ids(store)
        store.commit([MessagesDeleted([1], [1])])
        few = bodies[:100]
        store.commit([MessagesStored([row(body.id) for body in few], few)])
        for body in few:
            store.commit([MessagesDeleted([body.id], [body.id])])
        assert [] == message_ids(store)
        store.close()
