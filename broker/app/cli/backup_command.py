"""`peeklock backup`: copies the SQLite file of a running broker.

The broker first writes to the file what it has accepted. Then this process reads the file as it is at one moment, while
the broker goes on. The copy gets its name when it is complete and on the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.app.cli.control_client import NotReachable
from broker.app.exit_codes import ExitCode

if TYPE_CHECKING:
    from broker.app.cli.control_client import ControlClient

PAGES_PER_STEP = 4_096
"""The copy can be interrupted after so many pages."""
BUSY_TIMEOUT_S = 30.0
NOT_HERE = (
    "run this command on the machine of the broker and as its user; in a container: "
    "docker exec CONTAINER peeklock backup COPY"
)
_LEFTOVERS = ("-wal", "-commits", "-journal")
"""Files beside a database that belong to its content. A broker would add the content of old ones to a new copy."""


class BackupFailed(Exception):
    """There is no copy. The text names the cause and the fix."""

    def __init__(self, code: str, text: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.code = code
        self.exit_code = exit_code


class Copied(NamedTuple):
    """A copy that was made."""

    file: str
    copy: str
    size_bytes: int


def back_up(client: ControlClient, copy: Path, *, replaces: bool) -> Copied:
    """Copies the file of the broker. `replaces` allows an existing copy. Raises `BackupFailed`, and the errors of the
    client."""
    copy = copy.absolute()
    _check_target(copy, replaces=replaces)
    try:
        answer = client.request("POST", "/storage/flush", body={})
    except NotReachable as error:
        raise NotReachable(
            f"{error}; --url is the address of the broker's HTTP port. A broker that is stopped has everything in its "
            "file and, after a crash, in the -wal and -commits files beside it: copy these"
        ) from error
    source = _source(answer)
    size_bytes = _copy(source, copy)
    return Copied(str(source), str(copy), size_bytes)


def _check_target(copy: Path, *, replaces: bool) -> None:
    """Refuses a target before the broker is asked. Raises `BackupFailed`."""

    def refused(text: str) -> BackupFailed:
        return BackupFailed("wrong_argument", text, ExitCode.MISUSED)

    if copy.is_dir():
        raise refused(f"{copy} is a folder; name a file")
    if not copy.parent.is_dir():
        raise refused(f"there is no folder {copy.parent}; create it, or name a file elsewhere")
    if copy.exists() and not replaces:
        raise refused(f"{copy} exists; name another file, or replace it with --force")
    for suffix in _LEFTOVERS:
        beside = copy.with_name(copy.name + suffix)
        if beside.exists():
            raise refused(
                f"{beside} exists: a broker uses {copy}, or has not stopped in order; name another file, or delete "
                f"{beside.name} if no broker uses it"
            )


def _source(answer: dict[str, Any]) -> Path:
    """Returns the file of the broker, which this process can read. Raises `BackupFailed`."""
    match answer["kind"]:
        case "memory":
            raise BackupFailed(
                "no_file",
                "this broker keeps messages in memory only, so there is no file to copy; start it with "
                "--storage sqlite:///FILE to keep them",
            )
        case "postgresql":
            raise BackupFailed(
                "no_file",
                "this broker keeps messages in PostgreSQL; copy them with pg_dump --clean --if-exists --schema "
                f"{answer['database_schema']} (docs/operations.md#backup)",
            )
    source = Path(answer["file"])
    try:
        found = source.stat()
        with source.open("rb"):
            pass
    except OSError as error:
        raise BackupFailed(
            "file_not_readable",
            f"the file of the broker, {source}, cannot be read from here: {error.strerror}; {NOT_HERE}",
        ) from error
    if answer["file_id"] != f"{found.st_dev}:{found.st_ino}":
        raise BackupFailed(
            "file_not_readable",
            f"{source} is not the file of the broker, but another here; {NOT_HERE}",
        )
    return source


def _copy(source: Path, copy: Path) -> int:
    """Writes the copy under another name, and renames it. Returns its size. Raises `BackupFailed`."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{copy.name}.", dir=copy.parent)
    except OSError as error:
        raise _cannot_write(copy, error) from error
    os.close(handle)
    partial = Path(name)
    try:
        _copy_pages(source, partial)
        shutil.copymode(source, partial)
        size_bytes = partial.stat().st_size
        partial.replace(copy)
        _sync_folder(copy.parent)
    except sqlite3.Error as error:
        raise _explained(source, copy, error) from error
    except OSError as error:
        raise _cannot_write(copy, error) from error
    finally:
        for beside in (partial, partial.with_name(partial.name + "-journal")):
            beside.unlink(missing_ok=True)
    return size_bytes


def _copy_pages(source: Path, partial: Path) -> None:
    """Copies the file as it is now. A transaction keeps this state, or each commit of the broker would start the copy
    again."""
    with (
        closing(
            sqlite3.connect(
                f"{source.as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
            )
        ) as reader,
        closing(sqlite3.connect(partial, isolation_level=None)) as writer,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reader.backup(writer, pages=PAGES_PER_STEP)


def _sync_folder(folder: Path) -> None:
    """Makes the name durable, too, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _explained(source: Path, copy: Path, error: sqlite3.Error) -> BackupFailed:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_FULL:
        return _no_space(copy)
    return BackupFailed(
        "copy_failed",
        f"{source} cannot be copied to {copy}: {error}; check the disks of both files",
    )


def _cannot_write(copy: Path, error: OSError) -> BackupFailed:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _no_space(copy)
    return BackupFailed(
        "copy_failed",
        f"{copy} cannot be written: {error.strerror}; check the permissions of its folder, or name a file elsewhere",
    )


def _no_space(copy: Path) -> BackupFailed:
    return BackupFailed(
        "no_space",
        f"there is no space for {copy}; free space on its disk, or name a file on another disk",
    )
