"""The -wal file beside a SQLite database: how long it is, and how to cut off what was not synced.

Owns reading and cutting that file; SQLite alone writes to it. The layout is the documented one of
SQLite's write-ahead log (https://sqlite.org/walformat.html).
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FileId = tuple[int, int]
"""Device and inode."""

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_INDEX_HEADER = struct.Struct("=IIIBBHI")
"""The start of the -shm file: version, unused, change counter, initialised, checksum byte order,
page size, and the number of the last committed frame."""
_LARGEST_PAGE_BYTES = 65_536


def file_id(path: Path) -> FileId:
    """Tell one file from another of the same name."""
    found = path.stat()
    return found.st_dev, found.st_ino


class WriteAheadLog:
    """The log of one database."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-wal")
        self._index_path = database.with_name(database.name + "-shm")

    @property
    def size_bytes(self) -> int:
        """How long the log is."""
        return self.path.stat().st_size

    def discard_uncommitted(self) -> None:
        """Cut off the frames of a transaction that failed.

        When the sync at the end of a commit fails, its frames are in the file, whole and marked as
        committed. The next start would take them for durable, although no answer was given and
        the disk may not have them. Called by the thread that writes, right after the failure.
        """
        with suppress(OSError, struct.error):
            with self._index_path.open("rb") as index:
                header = index.read(_INDEX_HEADER.size)
            *_, initialised, _, page_bytes, last_frame = _INDEX_HEADER.unpack(header)
            if not initialised:
                return
            frame_bytes = _FRAME_HEADER_BYTES + (
                _LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes
            )
            end = _LOG_HEADER_BYTES + last_frame * frame_bytes if last_frame else 0
            if self.size_bytes > end:
                os.truncate(self.path, end)
