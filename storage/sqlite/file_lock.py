"""An operating system lock on a file beside the store, so that only one process uses it.

The file contains the process id of the owner. It is never removed: otherwise two processes could lock two files of one
name. The lock of a killed process ends with it.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class HeldElsewhere(Exception):
    """Another process has the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"locked by process {holder}")
        self.holder = holder
        """The process id of the owner, if it could write it."""


class FileLock:
    """A lock on a path. Raises `OSError` if the file cannot be created."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Acquires the lock, or raises `HeldElsewhere`."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise HeldElsewhere(holder or "unknown") from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Releases the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
