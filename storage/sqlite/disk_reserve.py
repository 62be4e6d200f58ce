"""Disk space that new messages may not use, so that stored messages can always be completed.

A file beside the store occupies the space. New messages are accepted while the file has all its space and as much again
is free. If the disk is full, the file is deleted, and no new messages are accepted until there is space for it again.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RESERVE_MAX_BYTES = 16 << 20
"""Enough for the log of a transaction that moves all commits of the journal to the tables."""
RESERVE_SHARE = 16
"""The largest fraction of a small disk that is reserved."""
_STAT_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the blocks of the file system are."""


class DiskReserve:
    """The reserve of one store. Used by the thread that measures the space, and by the one that commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_reserved = False
        self._lock = threading.Lock()
        """Held while the file is created or deleted."""
        self.size_bytes = 0
        """The size of the reserve, whether it is held or not. Known when the disk is measured."""

    def reserve(self) -> None:
        """Creates or completes the reserve if there is space for it. One that is complete is held also on a full disk."""
        with self._lock:
            free_bytes = self.measure_free_bytes()
            missing_bytes = self.size_bytes - self._measure_allocated_bytes()
            self._is_reserved = missing_bytes <= 0 or (
                free_bytes >= self.size_bytes + missing_bytes and self._allocate()
            )

    def _measure_allocated_bytes(self) -> int:
        """Measures the file, which can be incomplete: a process was killed before it had allocated all of it, an older
        broker reserved less, or the file is a copy with holes.

        A file system that compresses says that zeros occupy nothing, and one that writes later may say so for a while.
        There, each start allocates the file again, and does so only if there is space for a new one.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return 0
        return min(found.st_size, found.st_blocks * _STAT_BLOCK_BYTES)

    def _allocate(self) -> bool:
        """Allocates what the file does not have. Returns whether that succeeded; if not, there is no file."""
        try:
            self._path.touch()
            with self._path.open("r+b") as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, self.size_bytes)
                except OSError as error:
                    if error.errno != errno.EOPNOTSUPP:
                        raise
                    file.write(bytes(self.size_bytes))  # glibc does this itself, musl does not
        except OSError:
            self._delete()
            return False
        return True

    def release(self) -> None:
        """Releases the reserve, because the disk is full, for operations that free space."""
        with self._lock:
            self._is_reserved = False
            self._delete()

    def _delete(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def measure_is_low(self, free_inside_bytes: int = 0, log_bytes: int = 0) -> bool:
        """Measures the disk. Returns whether so little space is left that no new messages should be accepted.

        `free_inside_bytes` is free space inside the file of the store: new messages are written there without
        growing the file, and only the log needs space on the disk. `log_bytes` is what the log has of it now.
        """
        if not self._is_reserved:
            self.reserve()
        free_bytes = self.measure_free_bytes()
        if self._is_reserved and free_bytes >= self.size_bytes:
            return False
        return (
            free_inside_bytes < 2 * self.size_bytes or free_bytes + log_bytes < self.size_bytes // 2
        )

    def measure_free_bytes(self) -> int:
        """Measures the disk. Returns the free space, without the reserve."""
        disk = os.statvfs(self._path.parent)
        self.size_bytes = min(RESERVE_MAX_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_SHARE)
        return disk.f_bavail * disk.f_frsize

    @property
    def held_bytes(self) -> int:
        """The size of the reserve. 0 if it is released."""
        return self.size_bytes if self._is_reserved else 0
