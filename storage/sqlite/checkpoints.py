"""Checkpoints: copies the write-ahead log into the database file, beside commits.

SQLite would do this inside the commit that makes the log long enough, and the clients of that commit would wait. So
another thread does it, with a connection of its own. It copies what was committed when it begins. Commits go on
meanwhile, so a few pages are left each time. The next commit copies those, and begins the log again.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.sqlite.write_ahead_log import KEPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.sqlite.write_ahead_log import WriteAheadLog

LOG_FRAMES = 4_000
"""So many pages are left in the log before a checkpoint copies them: pages that change often are copied once."""
FEW_FRAMES = 32
"""What a commit may copy by itself. It takes about as long as the commit."""
PASSES_MAX = 4
"""How often a checkpoint copies what was committed during its previous pass."""
LONGEST_LOG_BYTES = 64 << 20
"""A longer log is truncated even if payload reads must wait for it."""
SHORT_LOG_BYTES = KEPT_BYTES
"""A shorter log is not truncated to free space."""
TRUNCATE_WAIT_MS = 50
"""How long truncating the log waits for a gap between two commits."""


class Checkpoints:
    """The checkpoints of one database."""

    def __init__(self, log: WriteAheadLog, connect: Callable[[], sqlite3.Connection]) -> None:
        self._log = log
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        """Held during a checkpoint. SQLite would skip a second one at the same time."""
        self._frames_left = 0
        """Pages that the last checkpoint left, perhaps because another program reads the file. Written with the lock."""
        self._may_restart_log = False
        self.log_is_too_long = False
        """The log has to be truncated."""

    def open(self) -> None:
        """Opens the connection."""
        self._connection = self._connect()
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._frames_left = 0
        self.log_is_too_long = False

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def is_due(self) -> bool:
        """Whether `run` should be called. Needs no system call."""
        return self._log.uncopied_frames >= self._frames_left + LOG_FRAMES or self.log_is_too_long

    def run(self, reader_lock: threading.Lock) -> None:
        """Copies the log, and truncates it if it is too long. Commits and reads may run at the same time."""
        with self._lock:
            if self._connection is None:
                return
            for _ in range(PASSES_MAX):
                _copy(self._connection)
                if self._log.uncopied_frames <= FEW_FRAMES:
                    break
            if self.log_is_too_long:
                self.log_is_too_long = False
                with reader_lock:  # payload reads may follow each other without a gap
                    self._connection.execute(f"PRAGMA busy_timeout = {TRUNCATE_WAIT_MS}")
                    with suppress(sqlite3.Error):
                        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    self._connection.execute("PRAGMA busy_timeout = 0")
            self._frames_left = self._log.uncopied_frames
            self._may_restart_log = True

    def shorten_log(self, free_bytes: int, reader_lock: threading.Lock) -> None:
        """Copies the log if it is long for the space that there is for copying it, and truncates it. Called after a
        commit. Raises `OSError`."""
        # Checkpoints keep the log short, unless a huge transaction made it long at once, or payload reads
        # follow each other without a gap.
        log_bytes = self._log.size_bytes
        if log_bytes >= LONGEST_LOG_BYTES:
            self.log_is_too_long = True
        if log_bytes * 2 >= free_bytes:
            # The disk is filling up. The log is copied and truncated at once, while the database file can still
            # grow by its content. Later there would be no space for it, and messages could not be completed.
            if log_bytes > SHORT_LOG_BYTES:
                self.log_is_too_long = True
            self.run(reader_lock)

    def restart_log(self, writer: sqlite3.Connection) -> None:
        """Copies the few pages that the last checkpoint left. Called before a commit, which then begins
        the log again."""
        if self._may_restart_log:
            self._may_restart_log = False
            if 0 < self._log.uncopied_frames <= FEW_FRAMES:
                _copy(writer)

    def copy_after_failure(self, writer: sqlite3.Connection) -> None:
        """Copies the log after a failed commit. If the disk is full, the log must start again from its beginning:
        there is no other space."""
        with self._lock:
            _copy(writer)
            self._frames_left = min(self._frames_left, self._log.uncopied_frames)


def _copy(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # what is in the log is durable
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
