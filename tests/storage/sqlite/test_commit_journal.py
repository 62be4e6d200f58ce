"""The file of the journal: what was appended is read, and nothing else is, whatever else the file has."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from storage.contract import StoreUnusable
from storage.sqlite import commit_journal
from storage.sqlite.commit_journal import BLOCK_BYTES, CommitJournal

if TYPE_CHECKING:
    from pathlib import Path

STORE = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch):
    monkeypatch.setattr(commit_journal, "SEGMENT_BYTES", 32 * BLOCK_BYTES)
    monkeypatch.setattr(commit_journal, "_EXTENSION_BYTES", 4 * BLOCK_BYTES)


@pytest.fixture
def journal(tmp_path: Path):
    database = tmp_path / "peeklock.db"
    database.touch()
    journal = CommitJournal(database)
    journal.begin(STORE, 0)
    yield journal
    journal.close()


def append(journal: CommitJournal, content: bytes) -> int:
    """As `JournaledCommits` does, with everything before the old segment moved. Returns the number of the entry."""
    if journal.is_full_with(len(content)):
        journal.switch()
    assert journal.make_room(len(content))
    journal.append(content)
    return journal.last_number


def test_entries_are_read_in_their_order(journal):
    """Over both segments; those that have moved are not read."""
    contents = [b"%d" % number * 100 for number in range(1, 41)]
    for number, content in enumerate(contents, 1):
        assert number == append(journal, content)
    old = journal.old_last_number
    assert 0 < old < 40
    for after in (0, 1, old - 1, old, old + 1, 39, 40):
        found = journal.read(STORE, after)
        assert list(enumerate(contents[after:], after + 1)) == found


def test_a_segment_that_is_used_again_has_no_old_entries(journal):
    """Those behind the new ones are complete, and older."""
    for number in range(1, 200):
        append(journal, b"x" * (number * 97 % 10_000))
        expected = list(range(journal.old_last_number + 1, number + 1))
        assert expected == [one for one, _ in journal.read(STORE, journal.old_last_number)]


def test_an_entry_that_is_cut_off_anywhere_is_no_entry(journal, tmp_path):
    """And neither is one with a different byte. The ones before it are."""
    first, second = b"one" * 20, b"two" * 20
    append(journal, first)
    append(journal, second)
    good = journal.path.read_bytes()
    start = BLOCK_BYTES
    other = CommitJournal(tmp_path / "copy")
    for position in range(start, start + 16 + len(second)):
        torn = good[:position] + bytes(len(good) - position)
        changed = good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]
        for content in (torn, changed, good[:position]):
            if content != good:
                other.path.write_bytes(content)
                assert [(1, first)] == other.read(STORE, 0)
    other.path.write_bytes(good)
    assert [(1, first), (2, second)] == other.read(STORE, 0)


def test_a_journal_of_another_store_is_not_read(journal):
    append(journal, b"content")
    assert [] == journal.read(b"another store", 0)


def test_a_missing_entry_is_reported(journal):
    """The later segment was begun when the earlier one was complete, so the file is damaged."""
    for _ in range(40):
        append(journal, b"x" * 200)
    data = bytearray(journal.path.read_bytes())
    data[100] ^= 1
    journal.path.write_bytes(data)
    with pytest.raises(StoreUnusable, match="is damaged: commit"):
        journal.read(STORE, journal.old_last_number - 5)


def test_no_file_has_no_entries(tmp_path):
    assert [] == CommitJournal(tmp_path / "nothing").read(STORE, 7)


def test_the_file_is_overwritten_and_not_extended_by_each_entry(journal):
    """Extending costs twice as much: the file system has to change its metadata in each sync."""
    lengths = set()
    for _ in range(8):
        append(journal, b"x" * 20)
        lengths.add(journal.path.stat().st_size)
    assert len(lengths) <= 2


@pytest.mark.parametrize("failing", ["pwritev", "pwrite", "fdatasync"])
def test_an_entry_that_fails_is_no_entry(journal, monkeypatch, failing):
    """Also if the disk has it: its head is erased, and its number is not used again."""
    append(journal, b"one")
    real = getattr(os, failing)
    calls = 0

    def fail_once(*arguments):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.EIO, "injected")
        return real(*arguments)

    journal._can_sync_writes = failing == "pwritev"
    monkeypatch.setattr(os, failing, fail_once)
    with pytest.raises(OSError, match="injected"):
        journal.append(b"two")
    assert [(1, b"one")] == journal.read(STORE, 0)
    assert (1, 2, True) == (
        journal.last_number,
        journal.last_used_number,
        journal.has_unfinished_entry,
    )
    journal.begin(STORE, journal.last_used_number)
    assert 3 == append(journal, b"three")
    assert [(3, b"three")] == journal.read(STORE, 2)


def test_an_entry_that_is_interrupted_after_its_sync_is_no_entry(journal, monkeypatch):
    """The file has it, so that its number is not used again. Otherwise a start would read it after later commits."""

    class Interrupted(list[int]):
        def __setitem__(self, *_: object) -> None:
            raise MemoryError

    append(journal, b"one")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_length_bytes", Interrupted(journal._length_bytes))
        with pytest.raises(MemoryError):
            journal.append(b"two")
    assert (1, 2, True) == (
        journal.last_number,
        journal.last_used_number,
        journal.has_unfinished_entry,
    )


def test_a_short_write_is_continued(journal, monkeypatch):
    """The rest of it is written and synced."""
    synced: list[int] = []
    real, real_synced = os.pwrite, os.pwritev
    content = b"content" * 2_000
    assert journal.make_room(len(content))

    def block_of(data: memoryview) -> memoryview:
        return data[:BLOCK_BYTES]

    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, block_of(data), at))
    monkeypatch.setattr(
        os,
        "pwritev",
        lambda file, parts, at, flags: real_synced(file, [block_of(parts[0])], at, flags),
    )
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal.append(content)
    assert [(1, content)] == journal.read(STORE, 0)
    assert 1 == len(synced)


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_sync_a_write_gets_two_calls(journal, monkeypatch, error):
    """The page cache is tried first: perhaps only direct writes are refused."""
    synced: list[int] = []
    asked: list[int] = []
    assert journal.make_room(1)
    tries = 1 + journal.is_direct

    def unsupported(file, parts, at, flags):
        asked.append(flags)
        raise OSError(error, "unsupported")

    monkeypatch.setattr(os, "pwritev", unsupported)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    for number in range(1, 4):
        append(journal, b"%d" % number)
        assert number == len(synced)
    assert [os.RWF_DSYNC] * tries == asked
    assert 3 == len(journal.read(STORE, 0))


@pytest.mark.parametrize("refused", ["open", "pwrite", "pwritev"])
def test_a_file_system_that_always_uses_the_page_cache_has_a_journal_as_well(
    journal, monkeypatch, refused
):
    """Some refuse the flag, and some the first write: of zeros, or of an entry if a killed broker has left enough space."""
    if refused == "pwritev":
        journal.path.write_bytes(bytes(64 * BLOCK_BYTES))
    real = getattr(os, refused)

    def refuse_direct(first, second, *rest):
        flags = second if refused == "open" else fcntl.fcntl(first, fcntl.F_GETFL)
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "injected")
        return real(first, second, *rest)

    monkeypatch.setattr(os, refused, refuse_direct)
    for number in range(1, 4):
        append(journal, b"%d" % number)
    assert not journal.is_direct
    assert [(1, b"1"), (2, b"2"), (3, b"3")] == journal.read(STORE, 0)


def test_a_journal_of_an_older_broker_is_read(journal):
    """Its entries follow each other without zeros. This broker has written before and after them."""
    append(journal, b"of this broker" * 1_000)
    append(journal, b"last")
    packed = bytearray(journal.path.read_bytes())
    position = 0
    for number, content in ((11, b"older" * 1_000), (12, b""), (13, b"x" * 5_000), (14, b"y")):
        numbers = struct.pack("<QI", number, len(content))
        entry = numbers + struct.pack("<I", crc32(content, crc32(numbers, crc32(STORE)))) + content
        packed[position : position + len(entry)] = entry
        position += len(entry)
    journal.path.write_bytes(packed)
    assert [11, 12, 13, 14] == [number for number, _ in journal.read(STORE, 10)]
    journal.begin(STORE, 14)
    append(journal, b"of this broker")
    assert [(15, b"of this broker")] == journal.read(STORE, 14)


def test_a_disk_without_room_has_no_entries(journal, monkeypatch):
    """Zeros are written before the entry, so the entry itself needs no space."""

    def full(*_):
        raise OSError(errno.ENOSPC, "injected")

    monkeypatch.setattr(os, "pwrite", full)
    assert not journal.make_room(100)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_who_may_read_the_database_may_read_the_journal(journal, tmp_path, mode):
    """And nobody else: it has the same messages."""
    (tmp_path / "peeklock.db").chmod(mode)
    append(journal, b"one")
    assert mode == stat.S_IMODE(journal.path.stat().st_mode)


def test_the_name_of_the_file_is_durable_before_an_entry_is(journal, monkeypatch):
    """Also if it could not be synced at first, and if a process was killed before it had synced it."""
    real, synced = os.fsync, []

    def fail_once(file: int) -> None:
        synced.append(file)
        if len(synced) == 1:
            raise OSError(errno.EIO, "injected")
        real(file)

    monkeypatch.setattr(os, "fsync", fail_once)
    assert not journal.make_room(100)
    assert journal.path.exists()
    assert journal.make_room(100)
    assert 2 == len(synced)
    journal.close()
    assert journal.make_room(100)
    assert 3 == len(synced)


def test_a_deleted_or_replaced_file_is_noticed(journal):
    assert journal.is_in_place
    append(journal, b"one")
    assert journal.is_in_place
    journal.path.rename(journal.path.with_name("elsewhere"))
    assert not journal.is_in_place
    journal.path.write_bytes(b"")
    assert not journal.is_in_place
