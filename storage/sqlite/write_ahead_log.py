"""The -wal file beside a SQLite database: its length, what of it is not in the database yet, and what was not synced.

SQLite writes the file. The layout of it and of its index, the -shm file, is documented
(https://sqlite.org/walformat.html).
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEPT_BYTES = 256 << 10
"""The file is not shorter than this while space is scarce. So messages can be completed on a full disk, even if another
program takes the space of the reserve: what was copied into the database is overwritten."""
FileId = tuple[int, int]
"""Device and inode."""

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_INDEX_HEADER = struct.Struct("=IIIBBHI")
"""The start of the -shm file: version, unused, change counter, initialised, checksum byte order,
page size, and the number of the last committed frame."""
_LAST_FRAME = struct.Struct("=16xI76xI")
"""The last committed frame, and behind two copies of the header the last frame that is in the database file."""
_LARGEST_PAGE_BYTES = 65_536


def file_id(path: Path) -> FileId:
    """Returns the id of a file, which differs for another file of the same name."""
    found = path.stat()
    return found.st_dev, found.st_ino


class WriteAheadLog:
    """The log of one database."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-wal")
        self._index_path = database.with_name(database.name + "-shm")
        self._index_file = -1
        self._index: mmap.mmap | None = None

    def open_index(self) -> None:
        """Maps the index into memory. Called when SQLite has opened the database."""
        self.close_index()
        self._index_file = os.open(self._index_path, os.O_RDONLY)
        size_bytes = mmap.PAGESIZE
        self._index = mmap.mmap(self._index_file, size_bytes, access=mmap.ACCESS_READ)

    def close_index(self) -> None:
        """Called when SQLite has closed the database, and not before: closing any descriptor of a file ends all
        locks of the process on that file, and SQLite has locks on the index."""
        if self._index is not None:
            self._index.close()
            self._index = None
        if self._index_file >= 0:
            os.close(self._index_file)
            self._index_file = -1

    def keep_space(self) -> None:
        """Allocates the space that the file keeps, as zeros behind its content, if there is so much.

        SQLite ends a log with the first frame that is not valid, and has no locks on this file. Called by the writing
        thread: where the file system cannot allocate, the C library writes zeros, and nothing may be written meanwhile.
        """
        with suppress(OSError, AttributeError):  # macOS cannot allocate
            if self.size_bytes >= KEPT_BYTES:
                return
            file = os.open(self.path, os.O_WRONLY)
            try:
                os.posix_fallocate(file, 0, KEPT_BYTES)
            finally:
                os.close(file)

    @property
    def size_bytes(self) -> int:
        """The length of the log."""
        return self.path.stat().st_size

    @property
    def uncopied_frames(self) -> int:
        """How many pages in the log are not in the database file yet. Needs no system call."""
        if self._index is None:
            return 0
        last_frame: int
        last_copied_frame: int
        last_frame, last_copied_frame = _LAST_FRAME.unpack_from(self._index)
        return max(0, last_frame - last_copied_frame)

    def discard_uncommitted(self) -> None:
        """Removes the frames of a failed transaction.

        If the sync at the end of a commit fails, its frames are in the file, complete and marked as committed. The
        next start would read them as durable, although the commit failed and the disk may not have them. Called by
        the writing thread, right after the failure.
        """
        if self._index is None:
            return
        with suppress(OSError):
            *_, initialised, _, page_bytes, last_frame = _INDEX_HEADER.unpack_from(self._index)
            if not initialised:
                return
            frame_bytes = _FRAME_HEADER_BYTES + (
                _LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes
            )
            end = _LOG_HEADER_BYTES + last_frame * frame_bytes if last_frame else 0
            size_bytes = self.size_bytes
            if size_bytes > end:
                kept_bytes = min(size_bytes, max(end, KEPT_BYTES))
                if not self._erase(end, kept_bytes):
                    kept_bytes = end
                os.truncate(self.path, kept_bytes)

    def _erase(self, start: int, end: int) -> bool:
        """Overwrites a part of the file with zeros. If it was cut off instead, another program could take its space.
        Returns whether the disk has the zeros."""
        with suppress(OSError):
            file = os.open(self.path, os.O_WRONLY)
            try:
                is_erased = os.pwrite(file, bytes(end - start), start) == end - start
                os.fsync(file)
                return is_erased
            finally:
                os.close(file)
        return False
