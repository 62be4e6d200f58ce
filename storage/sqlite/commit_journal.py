"""The journal: a file beside the database to which most commits are written, before they move to the tables.

Appending a commit to a file costs half of a transaction of SQLite. The journal has two segments. When one is full, the
commits of the other are in the tables, and it is written from its beginning. This module knows entries of bytes;
`journal_entries.py` says what is in them, and `journaled_commits.py` when they move.

An entry:

| content | |
|---|---|
| uint64 | its number; the next entry has the next number |
| uint32 | length of the content |
| uint32 | CRC-32 of the id of the store, of the two numbers above and of the content |
| bytes | the content |
| bytes | zeros, up to the end of a block of 4 KiB |

The file bypasses the page cache if its file system allows that, and such writes must have whole blocks. They take a fifth
less time, and the kernel can write them while the broker prepares the answers. Brokers up to version 6 of the schema wrote entries without
zeros between them.

What follows the last entry of a segment has an older number or no valid checksum. The database has the number of the last
entry that is in the tables, and the id of the store, so that a journal of another database is not read.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

from storage.contract import StoreUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from storage.native.compiled import SyncedWriter

SEGMENT_BYTES = 8 << 20
ENTRY_MAX_BYTES = 2 << 20
"""A larger commit is written to the tables at once: it would be written twice."""
_EXTENSION_BYTES = 128 << 10
_EXTENSION_MAX_BYTES = 1 << 20
"""So many zeros are written ahead: as many as the segment has already, within these limits. So a journal that is used
little stays short, and few commits wait for zeros. Overwriting is half the work of appending, because the file system
need not change its metadata."""
BLOCK_BYTES = 4096
"""Direct writes are aligned to this. Sectors of disks have 512 or 4,096 bytes."""
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Errors of a system or a file system that cannot bypass the page cache, or write and sync with one call."""
_HEAD = struct.Struct("<QII")
_NUMBERS = struct.Struct("<QI")


class CommitJournal:
    """The journal of one database. Used by one thread at a time."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-commits")
        self._database = database
        self._file = -1
        self.is_direct = False
        """Whether writes bypass the page cache."""
        self._buffer = mmap.mmap(-1, _entry_bytes(ENTRY_MAX_BYTES))
        """The entry that is written, at an address that such a write needs. Its pages take memory when they are used."""
        self._can_sync_writes = hasattr(os, "RWF_DSYNC")
        self._store_checksum = 0
        self._segment = 0
        """The segment that is written."""
        self._length_bytes = [0, 0]
        """How much of each segment has entries that count."""
        self._written_bytes = [0, 0]
        """How much of each segment is part of the file. The rest of it is not allocated."""
        self._last_numbers = [0, 0]
        """The number of the last entry of each segment."""
        self.last_number = 0
        """The number of the last entry."""
        self._entry_bytes = 0
        """The length of the entry that is being written."""
        self.has_unfinished_entry = False
        """An entry is being written, or could not be written. It has a number of its own, because it may be in the file
        in either case. If it could not be written, nothing more is written until all entries are in the tables."""

    # --- reading -------------------------------------------------------------------------------

    def read(self, store_id: bytes, after: int) -> list[tuple[int, bytes]]:
        """Returns number and content of the entries after a number, in their order. Raises `StoreUnusable` if one is
        missing before another, and `OSError`."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        checksum = crc32(store_id)
        segments = [
            _entries(content, start, checksum, after)
            for start in range(0, 2 * SEGMENT_BYTES, SEGMENT_BYTES)
        ]
        entries = sorted(entry for segment in segments for entry in segment)
        for expected, (number, _) in enumerate(entries, after + 1):
            if number != expected:
                raise StoreUnusable(
                    f"{self.path} is damaged: commit {expected} is missing; put a good copy of it and of the "
                    "database back, or move it away to lose its commits"
                )
        return entries

    # --- writing -------------------------------------------------------------------------------

    def begin(self, store_id: bytes, last_number: int) -> None:
        """All entries are in the tables, up to this number. The next one is the first of a segment."""
        self._store_checksum = crc32(store_id)
        self.last_number = last_number
        self.has_unfinished_entry = False
        self._segment = 0
        self._length_bytes = [0, 0]
        self._last_numbers = [0, 0]

    def is_full_with(self, size_bytes: int) -> bool:
        """Returns whether an entry of this size has to go to the other segment."""
        return self._length_bytes[self._segment] + _entry_bytes(size_bytes) > SEGMENT_BYTES

    @property
    def is_half_full(self) -> bool:
        """Whether half of the segment that is written now has entries."""
        return self._length_bytes[self._segment] * 2 > SEGMENT_BYTES

    @property
    def old_last_number(self) -> int:
        """The number of the last entry in the segment that is not written now."""
        return self._last_numbers[1 - self._segment]

    def switch(self) -> None:
        """Writes the other segment from its beginning. All its entries are in the tables."""
        self._segment = 1 - self._segment
        self._length_bytes[self._segment] = 0

    def fits(self, size_bytes: int) -> bool:
        """Returns whether an entry of this size can be written now, without more space on the disk."""
        needed_bytes = self._length_bytes[self._segment] + _entry_bytes(size_bytes)
        return needed_bytes <= self._written_bytes[self._segment]

    def make_room(self, size_bytes: int) -> bool:
        """Makes sure that an entry of this size can be written without more space on the disk. Returns whether that
        succeeded. It is not durable before the next entry is."""
        if self.fits(size_bytes):
            return True
        try:
            if self._file < 0:
                self._open()
                if self.fits(size_bytes):
                    return True
            self._extend(self._length_bytes[self._segment] + _entry_bytes(size_bytes))
        except OSError:
            return False
        return self.fits(size_bytes)

    def append(self, content: bytes) -> None:
        """Writes an entry durably, after `make_room`. Raises `OSError`: then it is not an entry."""
        entry = self._begin_entry(content)
        try:
            self._write_synced(entry, self._position)
        except BaseException:
            self._erase(self._position)
            raise
        self._end_entry()

    def begin_append(self, content: bytes, writer: SyncedWriter, *, caller_waits: bool) -> bool:
        """Begins to write an entry. Nothing else is written until `end_append`. Returns False, and begins nothing, if
        there is no room for it. `caller_waits` says that `end_append` follows as soon as it can."""
        if not self.fits(len(content)):
            return False
        entry = self._begin_entry(content)
        writer.begin(self._file, entry, self._position, self.is_direct, caller_waits)
        return True

    def erase_entry(self) -> None:
        """The entry that was being written is not to be read, although the disk may have it."""
        self._erase(self._position)

    def end_append(self, error_number: int) -> None:
        """The writer has ended, with this error or 0. Raises `OSError`: then it is not an entry."""
        if error_number:
            self._erase(self._position)
            raise OSError(error_number, os.strerror(error_number))
        self._end_entry()

    def _begin_entry(self, content: bytes) -> memoryview:
        """Returns the bytes of the next entry."""
        number = self.last_number + 1
        length = len(content)
        checksum = crc32(content, crc32(_NUMBERS.pack(number, length), self._store_checksum))
        end, size_bytes = _HEAD.size + length, _entry_bytes(length)
        buffer = self._buffer
        _HEAD.pack_into(buffer, 0, number, length, checksum)
        buffer[_HEAD.size : end] = content
        buffer[end:size_bytes] = bytes(size_bytes - end)
        self._entry_bytes = size_bytes
        self.has_unfinished_entry = True  # until the entry is durable, whatever interrupts that
        return memoryview(buffer)[:size_bytes]

    def _end_entry(self) -> None:
        self._length_bytes[self._segment] += self._entry_bytes
        self.last_number += 1
        self._last_numbers[self._segment] = self.last_number
        self.has_unfinished_entry = False

    @property
    def _position(self) -> int:
        """Where in the file the next entry begins."""
        return self._segment * SEGMENT_BYTES + self._length_bytes[self._segment]

    @property
    def last_used_number(self) -> int:
        """The number of the last entry, or of the one after it that could not be written."""
        return self.last_number + self.has_unfinished_entry

    @property
    def is_in_place(self) -> bool:
        """Whether the file was not deleted or replaced while it is open."""
        if self._file < 0:
            return True
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        return False

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._written_bytes = [0, 0]

    def delete(self) -> None:
        """Closes and deletes the file. All its entries are in the tables. Keeps a file that somebody has put in its
        place: it may have other entries."""
        with suppress(OSError):
            if self.is_in_place:
                self.path.unlink(missing_ok=True)
        self.close()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            file = os.open(self.path, flags | os.O_DIRECT, 0o600)
            self.is_direct = True
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            file = os.open(self.path, flags, 0o600)
            self.is_direct = False
        try:
            size_bytes = os.fstat(file).st_size
            if not size_bytes:
                self._allow_as_the_database(file)
            # A process that was killed may have created the file, and not have synced its name.
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        whole_bytes = size_bytes - size_bytes % BLOCK_BYTES
        self._written_bytes = [
            min(whole_bytes, SEGMENT_BYTES),
            max(0, min(whole_bytes - SEGMENT_BYTES, SEGMENT_BYTES)),
        ]

    def _allow_as_the_database(self, file: int) -> None:
        """Who may read the database may read the journal, and nobody else: it has the same messages. SQLite does the
        same with its log."""
        found = self._database.stat()
        os.fchmod(file, stat.S_IMODE(found.st_mode))
        if os.geteuid() == 0:
            os.fchown(file, found.st_uid, found.st_gid)

    def _extend(self, needed_bytes: int) -> None:
        start = self._segment * SEGMENT_BYTES
        written_bytes = self._written_bytes[self._segment]
        ahead_bytes = min(max(written_bytes, _EXTENSION_BYTES), _EXTENSION_MAX_BYTES)
        end = min(max(needed_bytes, written_bytes + ahead_bytes), SEGMENT_BYTES)
        zeros = memoryview(mmap.mmap(-1, end - written_bytes))
        try:
            _write(self._file, zeros, start + written_bytes)
        except OSError as error:
            if not self.is_direct or error.errno not in _UNSUPPORTED:
                raise
            self._use_page_cache()
            _write(self._file, zeros, start + written_bytes)
        self._written_bytes[self._segment] = end

    def _use_page_cache(self) -> None:
        """Some file systems can be asked to bypass it, and then refuse to write."""
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self.is_direct = False

    def _write_synced(self, data: memoryview, position: int) -> None:
        """Writes bytes durably: with one system call, if the system has it."""
        if self._can_sync_writes:
            try:
                if os.pwritev(self._file, (data,), position, os.RWF_DSYNC) == len(data):
                    return
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                if self.is_direct:
                    self._use_page_cache()
                    self._write_synced(data, position)
                    return
                self._can_sync_writes = False
        _write(self._file, data, position)
        os.fdatasync(self._file)

    def _erase(self, position: int) -> None:
        """Erases the head of an entry that is not durable. The next start would read it if the disk has it."""
        with suppress(OSError):
            self._write_synced(memoryview(mmap.mmap(-1, BLOCK_BYTES)), position)


def _entry_bytes(size_bytes: int) -> int:
    """Returns the length of an entry whose content has this length."""
    return _block_start(_HEAD.size + size_bytes)


def _block_start(position: int) -> int:
    """Returns where the next block begins, or this position if one begins here."""
    return (position + BLOCK_BYTES - 1) & -BLOCK_BYTES


def _entries(
    content: bytes, start: int, store_checksum: int, after: int
) -> list[tuple[int, bytes]]:
    """Returns the entries of a segment after a number. The first entry that is not valid ends the segment, and so does
    one that does not follow the one before."""
    found: list[tuple[int, bytes]] = []
    end = min(start + SEGMENT_BYTES, len(content))
    position, previous = start, 0
    while True:
        for begin in (position, _block_start(position)):  # of an older broker, and of this one
            entry = _entry_at(content, begin, end, store_checksum)
            if entry is not None and (not previous or entry[0] == previous + 1):
                break
        else:
            return found
        previous, length = entry[0], len(entry[1])
        if previous > after:
            found.append(entry)
        position = begin + _HEAD.size + length


def _entry_at(
    content: bytes, start: int, end: int, store_checksum: int
) -> tuple[int, bytes] | None:
    """Returns number and content of the entry at a position, or None if there is none."""
    if start + _HEAD.size > end:
        return None
    number, length, checksum = _HEAD.unpack_from(content, start)
    start += _HEAD.size
    if not number or start + length > end:
        return None
    entry = content[start : start + length]
    numbers = _NUMBERS.pack(number, length)
    return (number, entry) if checksum == crc32(entry, crc32(numbers, store_checksum)) else None


def _write(file: int, data: memoryview, position: int) -> None:
    """Writes all bytes. Raises `OSError`."""
    while data:
        written = os.pwrite(file, data, position)
        data = data[written:]
        position += written
