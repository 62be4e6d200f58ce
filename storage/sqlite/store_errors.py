"""Translates errors of SQLite and of the operating system into `StorageError`s that name the cause and the fix.

Knows which of them mean that the disk is full. What happens then is decided by the store.
"""

from __future__ import annotations

import errno
import sqlite3
from typing import TYPE_CHECKING

from storage.contract import StorageError, StorageFull, StoreUnusable

if TYPE_CHECKING:
    from pathlib import Path

NOT_PERMITTED = "cannot be written; check the permissions of the file and its folder"
NO_ROOM = "has no room to grow; free space on its disk"
_DAMAGED = "is damaged or no SQLite file; move it and its -wal file away, or put a good copy back"

_CAUSES: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_FULL: (StorageFull, NO_ROOM),
    sqlite3.SQLITE_IOERR_SHMSIZE: (StorageFull, NO_ROOM),
    sqlite3.SQLITE_CORRUPT: (StoreUnusable, _DAMAGED),
    sqlite3.SQLITE_NOTADB: (StoreUnusable, _DAMAGED),
    sqlite3.SQLITE_CANTOPEN: (StoreUnusable, NOT_PERMITTED),
    sqlite3.SQLITE_READONLY: (StoreUnusable, NOT_PERMITTED),
    sqlite3.SQLITE_PERM: (StoreUnusable, NOT_PERMITTED),
    sqlite3.SQLITE_BUSY: (StorageError, "is being written by another program; close that one"),
    sqlite3.SQLITE_IOERR: (StorageError, "cannot be read or written; check its disk"),
}

_SQLITE_CODES: dict[int | None, int] = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EROFS: sqlite3.SQLITE_READONLY,
}
"""What SQLite would say to an error of the journal's file."""


class TranslatedErrors:
    """A context. Errors of SQLite and of the system leave it as `StorageError`s."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            cause, sentence = (
                _CAUSES.get(code) or _CAUSES.get(code & 0xFF) or (StorageError, "failed")
            )
            raise cause(f"{self._path} {sentence} ({error})") from error
        if isinstance(error, OSError):  # of the journal
            code = _SQLITE_CODES.get(error.errno, sqlite3.SQLITE_IOERR)
            cause, sentence = _CAUSES[code]
            raise cause(f"{self._path} {sentence} ({error})") from error
        if isinstance(error, OverflowError | UnicodeEncodeError):
            raise StorageError(f"{self._path} cannot hold a value ({error})") from error


def is_disk_full(error: BaseException) -> bool:
    """Returns whether an error of SQLite, of the system or of the store means that the disk is full."""
    if isinstance(error, OSError):
        return _SQLITE_CODES.get(error.errno) == sqlite3.SQLITE_FULL
    if isinstance(error, StorageFull):
        return True
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
