"""The -wal file beside a SQLite database: returns its length, and truncates what was not synced.

Only SQLite writes to the file. Its layout is documented (https://sqlite.org/walformat.html).
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
    """Returns the id of a file, which differs for another file of the same name."""
    found = path.stat()
    return found.st_dev, found.st_ino


class WriteAheadLog:
    """The log of one database."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-wal")
        self._index_path = database.with_name(database.name + "-shm")

    @property
    def size_bytes(self) -> int:
        """The length of the log."""
        return self.path.stat().st_size

    def discard_uncommitted(self) -> None:
        """Truncates the frames of a failed transaction.

        If the sync at the end of a commit fails, its frames are in the file, complete and marked as committed. The
        next start would read them as durable, although the commit failed and the disk may not have them. Called by
        the writing thread, right after the failure.
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
