"""Room on the disk that new messages may not use, so that old ones can always be completed.

A file that only takes up room is kept beside the store. As long as it is there and as much again is
free, all is well; when the disk is full it is given up, and nothing new is taken in until there is
room for it once more.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RESERVE_MAX_BYTES = 8 << 20
RESERVE_SHARE = 16
"""Of a small disk no more than this fraction is set aside."""


class DiskReserve:
    """The reserve of one store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_taken = False

    def take(self) -> None:
        """Set the reserve aside, if there is room for it."""
        self._is_taken = self._path.exists()
        size_bytes = self._size_bytes()
        if self._is_taken or self.free_bytes < 2 * size_bytes:
            return
        with suppress(OSError), self._path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            self._is_taken = True

    def give_up(self) -> None:
        """The disk is full: let what makes room have the reserve."""
        self._is_taken = False
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def is_low(self, free_inside_bytes: int = 0) -> bool:
        """Whether so little is left that nothing new should be taken in.

        `free_inside_bytes` is room inside the store's own file: new messages go there without the
        file growing, and of the disk only the log needs some.
        """
        if not self._is_taken:
            self.take()
        size_bytes = self._size_bytes()
        if self._is_taken and self.free_bytes >= size_bytes:
            return False
        return free_inside_bytes < 2 * size_bytes or self.free_bytes < size_bytes // 2

    @property
    def free_bytes(self) -> int:
        """What is free on the disk, the reserve aside."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def _size_bytes(self) -> int:
        disk = os.statvfs(self._path.parent)
        return min(RESERVE_MAX_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_SHARE)
