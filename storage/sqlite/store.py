"""The SQLite store: opens, writes and reads one file.

`batch.py` writes the statements of a commit. A commit is one transaction in the write-ahead log, which is synced before
it returns. If the process is killed at any moment, the file can be opened again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    EntityStored,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceStored,
    RuleRow,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from storage.blocks.single_messages import single_messages
from storage.blocks.stored_blocks import StoredBlocks
from storage.contract import Snapshot, StorageError, StorageFull, StoreUnusable
from storage.migration_scripts import read_migrations
from storage.sqlite.batch import SqlBatch
from storage.sqlite.block_source import SqliteBlockSource
from storage.sqlite.checkpoints import Checkpoints
from storage.sqlite.disk_reserve import DiskReserve
from storage.sqlite.file_lock import FileLock, HeldElsewhere
from storage.sqlite.migrations import migrate, schema_version
from storage.sqlite.recent_commits import RecentCommits, SequenceNumbers
from storage.sqlite.write_ahead_log import FileId, WriteAheadLog, file_id
from storage.statements import Statements, sql_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from broker.core.contract.records import Record
    from broker.core.messages.packed_rows import PackedRows
    from storage.blocks.block_batch import BlockChanges

APPLICATION_ID = 0x5065656B
"""Written by the first migration."""
BUSY_TIMEOUT_MS = 10_000
"""How long to wait for another program, such as a shell, that reads the file."""
CLOSE_WAIT_MS = 500
"""How long to wait for readers when the store is closed: another program, or a read that failed."""
LONGEST_LOG_BYTES = 64 << 20
"""A longer log is truncated even if payload reads must wait for it."""
SHORT_LOG_BYTES = 256 << 10
"""A shorter log is not truncated to free space."""
EXAMINE_INTERVAL_S = 0.02
"""A commit examines the files and the disk if the last examination was this long ago."""
EXAMINE_FRAMES = 256
"""Or if the log has grown by so many pages: a fast client fills a small disk in less time."""
DRAINED_BYTES = 64 << 20
"""A file with less than this in use and more than this free is compacted when it is opened."""

FREE_PLENTY_BYTES = 256 << 20
"""With more than this free on the disk, the free space inside the file is not measured."""
PAGE_BYTES = 4096

_MESSAGE_KINDS: frozenset[type[Record]] = frozenset(
    {MessagesStored, MessagesUpdated, MessagesDeleted, SequenceNumbersSkipped}
)
"""Records that change only blocks and sequence numbers."""

_PRAGMAS = (
    f"page_size = {PAGE_BYTES}",
    "auto_vacuum = NONE",
    "synchronous = FULL",
    "fullfsync = ON",  # macOS, where fsync alone does not flush the cache of the drive
    # `checkpoints.py` is sooner. A commit of the largest message must not copy the log itself.
    f"wal_autocheckpoint = {4 * LONGEST_LOG_BYTES // PAGE_BYTES}",
    "cache_size = -16384",
    "temp_store = MEMORY",  # so that no temporary folder is needed
    "secure_delete = OFF",  # some builds overwrite deleted content with zeros
)
_CHECKPOINT_PRAGMAS = ("synchronous = FULL", "fullfsync = ON", "cache_size = -64")
_READING_PRAGMAS = ("query_only = ON", "cache_size = -8192", "temp_store = MEMORY")

_DAMAGED = "is damaged or no SQLite file; move it and its -wal file away, or put a good copy back"
_NOT_PERMITTED = "cannot be written; check the permissions of the file and its folder"
_CAUSES: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_FULL: (StorageFull, "has no room to grow; free space on its disk"),
    sqlite3.SQLITE_IOERR_SHMSIZE: (StorageFull, "has no room to grow; free space on its disk"),
    sqlite3.SQLITE_CORRUPT: (StoreUnusable, _DAMAGED),
    sqlite3.SQLITE_NOTADB: (StoreUnusable, _DAMAGED),
    sqlite3.SQLITE_CANTOPEN: (StoreUnusable, _NOT_PERMITTED),
    sqlite3.SQLITE_READONLY: (StoreUnusable, _NOT_PERMITTED),
    sqlite3.SQLITE_PERM: (StoreUnusable, _NOT_PERMITTED),
    sqlite3.SQLITE_BUSY: (StorageError, "is being written by another program; close that one"),
    sqlite3.SQLITE_IOERR: (StorageError, "cannot be read or written; check its disk"),
}


class SqliteStore:
    """A `Store` in a SQLite file."""

    blocking = True
    keeps_payloads_in_memory = False
    commits_inline = True
    shares_ownership = False

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._explained = _Explanation(self.path)
        self._file_lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        folder = sql_folder("storage.sqlite")
        self._statements = Statements((folder / "queries.sql").read_text("utf-8"))
        self._migrations = read_migrations(folder / "migrations")
        self._blocks = StoredBlocks()
        self._recent = RecentCommits(self._statements)
        self._may_rewrite = True
        """Whether there is space for blocks that are written again."""
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reader_lock = threading.Lock()
        self._log = WriteAheadLog(self.path)
        self._checkpoints = Checkpoints(self._log, lambda: self._connect(_CHECKPOINT_PRAGMAS))
        self._reserve = DiskReserve(self.path.with_name(self.path.name + ".reserve"))
        self._has_plenty = False
        """Whether much space is free on the disk, as far as it was measured."""
        self._free_inside_bytes = 0
        """Free space in unused pages of the file, at the last check."""
        self._file_ids: tuple[FileId, FileId] | None = None
        """The ids of the database file and its log after the first commit."""
        self._examine_from_s = 0.0
        self._examine_from_frames = 0

    # --- opening and closing -------------------------------------------------------------------

    def exists(self) -> bool:
        """See `Store.exists`."""
        return self.path.is_file()

    def open(self) -> None:
        """Opens the file, and creates or migrates it if needed. Raises `StoreUnusable`."""
        self._take_file()
        try:
            with self._explained:
                self._writer = writer = self._connect(_PRAGMAS)
                self._check_origin(writer)
                (journal_mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
                if journal_mode != "wal":
                    raise StoreUnusable(f"{self.path} is on a disk without shared memory; move it")
                migrate(writer, self._migrations)
                self._shrink_if_drained(writer)
                self._free_inside_bytes = _pragma(writer, "freelist_count") * PAGE_BYTES
                self._reader = self._connect(_READING_PRAGMAS)
                self._blocks.index(self._source(self._reader))
                self._log.open_index()
                self._checkpoints.open()
            self._reserve.reserve()
        except StorageError as error:
            self.close()
            raise StoreUnusable(str(error)) from error

    def close(self) -> None:
        """Checkpoints the log, closes the file and releases its lock."""
        with self._reader_lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        self._checkpoints.close()
        if self._writer is not None:
            self._move_recent(self._writer)
            with suppress(sqlite3.Error):  # the content of the log is durable in any case
                self._writer.execute(f"PRAGMA busy_timeout = {CLOSE_WAIT_MS}")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._writer.close()
            self._writer = None
        self._recent.forget()
        self._blocks.forget()
        self._log.close_index()
        self._file_ids = None  # a new log file is created at the next open
        self._file_lock.release()

    def _move_recent(self, writer: sqlite3.Connection) -> None:
        """Moves recent commits to the tables, which is optional: they are durable, and are found where they are."""
        try:
            self._recent.changes(writer)
            if self._recent.has_some:
                index = self._blocks.index(self._source(writer))
                batch = SqlBatch(writer, self._statements, index, may_rewrite=False)
                self._write_to_tables(writer, batch, ())
        except (sqlite3.Error, StorageError):
            self._undo(writer)

    @property
    def has_room(self) -> bool:
        """Whether new messages may be stored; see `Store.has_room`."""
        has_room = not self._reserve.is_low(self._free_inside_bytes)
        self._may_rewrite = has_room
        return has_room

    def _take_file(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file_lock.acquire()
        except HeldElsewhere as held:
            whose = "this process" if held.holder == str(os.getpid()) else f"process {held.holder}"
            raise StoreUnusable(
                f"{self.path} is in use by {whose}; stop that one or choose another file"
            ) from None
        except OSError as error:
            raise StoreUnusable(f"{self.path} {_NOT_PERMITTED} ({error.strerror})") from error

    def _check_origin(self, writer: sqlite3.Connection) -> None:
        (application_id,) = writer.execute("PRAGMA application_id").fetchone()
        (tables,) = writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise StoreUnusable(f"{self.path} belongs to another program; choose another file")
        version, newest = schema_version(writer), self._migrations[-1].version
        if version > newest:
            raise StoreUnusable(
                f"{self.path} has schema version {version}, but this broker can read versions up to "
                f"{newest} only; use a newer broker or another file"
            )

    def _shrink_if_drained(self, writer: sqlite3.Connection) -> None:
        free_pages = _pragma(writer, "freelist_count")
        used_pages = _pragma(writer, "page_count") - free_pages
        if used_pages * PAGE_BYTES < DRAINED_BYTES < free_pages * PAGE_BYTES:
            with suppress(sqlite3.OperationalError):  # optional, and there may be no space for it
                writer.execute("VACUUM")

    def _connect(self, pragmas: Sequence[str]) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    # --- writing -------------------------------------------------------------------------------

    def commit(self, records: Sequence[Record]) -> None:
        """Writes all records durably, or none. Raises `StorageFull` or `StorageError`.

        A batch without new messages is tried once more on a full disk: the first failure has released the reserve and
        copied the log, so that messages can always be completed.
        """
        try:
            self._commit_once(records)
        except StorageFull:
            if any(isinstance(record, MessagesStored) for record in records):
                raise
            self._commit_once(records)

    def _commit_once(self, records: Sequence[Record]) -> None:
        writer = self._open_connection(self._writer)
        self._checkpoints.restart_log(writer)
        with self._explained:
            try:
                change_index = self._write(writer, records)
            except BaseException as error:
                self._recent.forget()
                self._blocks.forget()
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    self._may_rewrite = False
                    self._reserve.release()  # copying the log needs space, too
                self._undo(writer)
                self._log.discard_uncommitted()
                raise
        self._blocks.apply(change_index)
        now_s = time.monotonic()
        frames = self._log.uncopied_frames
        if now_s >= self._examine_from_s or frames >= self._examine_from_frames:
            self._check_files()
            # The commit is durable. No error from here on may be reported as a failed commit.
            with suppress(OSError, sqlite3.Error):
                self._measure_space(writer)
            self._examine_from_s = now_s + EXAMINE_INTERVAL_S
            self._examine_from_frames = self._log.uncopied_frames + EXAMINE_FRAMES

    def _write(self, writer: sqlite3.Connection, records: Sequence[Record]) -> Callable[[], None]:
        """Writes the records durably. Returns the function that changes the index."""
        self._recent.changes(writer)  # they are known from here on
        index = self._blocks.known_index or self._blocks.index(self._source(writer))
        if self._has_plenty:
            single = single_messages(index, records)
            if single is not None and self._write_as_recent(
                writer, single.changes, single.sequence_numbers, single.freed_bytes
            ):
                return single.apply
        batch = SqlBatch(writer, self._statements, index, may_rewrite=self._may_rewrite)
        if not _MESSAGE_KINDS.issuperset(map(type, records)):
            self._write_to_tables(writer, batch, records)
            return batch.apply
        batch.take(records)
        changes = batch.changes()
        if changes is None or not (
            self._has_plenty
            and self._write_as_recent(
                writer,
                changes,
                batch.sequence_numbers,
                sum([index.by_number[one].size_bytes for one in changes.deleted_blocks]),
            )
        ):
            self._write_to_tables(writer, batch, ())
        return batch.apply

    def _write_as_recent(
        self,
        writer: sqlite3.Connection,
        changes: BlockChanges,
        numbers: Mapping[tuple[int, int], int],
        freed_bytes: int,
    ) -> bool:
        """Writes a small commit of messages as a row of its own (`recent_commits.py`). Returns False, and writes
        nothing, if it has to be written to the tables. Not called if space is scarce: what it deletes still occupies
        the tables."""
        if not any(changes) and not numbers:
            return True
        recent = self._recent
        parts = recent.parts(changes, numbers, freed_bytes)
        if parts is None:
            return False
        if len(parts) == 1 and not self._log.is_short(PAGE_BYTES):
            writer.execute(recent.set_part, parts[0])  # a transaction by itself
        else:
            self._begin(writer)
            for part in parts:
                writer.execute(recent.set_part, part)
            writer.execute("COMMIT")
        recent.written(changes, numbers, freed_bytes, len(parts))
        return True

    def _write_to_tables(
        self, writer: sqlite3.Connection, batch: SqlBatch, records: Sequence[Record]
    ) -> None:
        """Writes recent commits to the tables, and then the batch, with more records."""
        self._begin(writer)
        has_recent = self._recent.has_some
        if has_recent:
            batch.move(self._recent.changes(writer))
            writer.execute(self._recent.set_part, self._recent.next_generation())
        batch.take(records)
        batch.finish()
        writer.execute("COMMIT")
        if has_recent:
            self._recent.moved()

    def _begin(self, writer: sqlite3.Connection) -> None:
        writer.execute("BEGIN IMMEDIATE")
        if self._has_plenty and self._log.is_short(PAGE_BYTES):
            self._log.extend(PAGE_BYTES)

    @property
    def maintenance_is_due(self) -> bool:
        """See `Store.maintenance_is_due`."""
        return self._checkpoints.is_due

    def maintain(self) -> None:
        """Copies the log into the database file; see `Store.maintain`."""
        self._checkpoints.run(self._reader_lock)

    def _undo(self, writer: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if writer.in_transaction:  # SQLite itself rolls back some failures
                writer.execute("ROLLBACK")
            self._checkpoints.copy_after_failure(writer)

    def _check_files(self) -> None:
        """Raises `StoreUnusable` if the file was deleted or replaced while it was open.

        SQLite continues to write to such a file, and the commits would be lost.
        """
        try:
            ids = file_id(self.path), file_id(self._log.path)
        except FileNotFoundError:
            ids = None
        except OSError:
            return  # the files cannot be examined now, but the commit is durable
        if self._file_ids is None:
            self._file_ids = ids
        if ids is None or ids != self._file_ids:
            raise StoreUnusable(
                f"{self.path} or its -wal file was deleted or replaced while the broker ran; "
                "put the files back, or choose another file, and start again"
            )

    def _measure_space(self, writer: sqlite3.Connection) -> None:
        # Checkpoints keep the log short, unless a huge transaction made it long at once, or payload reads
        # follow each other without a gap.
        log_bytes = self._log.size_bytes
        free_bytes = self._reserve.free_bytes
        self._has_plenty = free_bytes >= FREE_PLENTY_BYTES
        if not self._has_plenty:
            self._free_inside_bytes = _pragma(writer, "freelist_count") * PAGE_BYTES
        if log_bytes >= LONGEST_LOG_BYTES:
            self._checkpoints.log_is_too_long = True
        if log_bytes >= SHORT_LOG_BYTES and log_bytes * 2 >= free_bytes:
            # The disk is filling up. The log is copied and truncated at once, while the database file can still
            # grow by its content. Later there would be no space for it, and messages could not be completed.
            self._checkpoints.log_is_too_long = True
            self._checkpoints.run(self._reader_lock)

    # --- reading -------------------------------------------------------------------------------

    def load(self) -> Snapshot:
        """Returns everything that was committed. Messages and message ids are read lazily."""
        self._open_connection(self._reader)
        one = self._statements.one
        with self._explained, closing(self._connect(_READING_PRAGMAS)) as reader:
            return Snapshot(
                namespaces=[NamespaceStored(*row) for row in reader.execute(one("namespaces"))],
                entities=[EntityStored(*row) for row in reader.execute(one("entities"))],
                rules=[RuleRow(*row) for row in reader.execute(one("rules"))],
                sequence_numbers=self._sequence_numbers(reader),
                highest_message_id=self._blocks.highest_id(self._source(reader)),
                packed_messages=self._packed_messages(),
                session_states=[
                    SessionStateSet(*row) for row in reader.execute(one("session_states"))
                ],
                message_ids=self._rows("message_ids"),
            )

    def _sequence_numbers(self, reader: sqlite3.Connection) -> SequenceNumbers:
        rows = reader.execute(self._statements.one("sequence_numbers"))
        highest = {(entity_id, sub_queue): last for entity_id, sub_queue, last in rows}
        for queue, last in self._recent.changes(reader).sequence_numbers.items():
            highest[queue] = max(last, highest.get(queue, 0))
        return highest

    def _packed_messages(self) -> Iterator[tuple[PackedRows, int]]:
        with self._explained, closing(self._connect(_READING_PRAGMAS)) as reader:
            yield from self._blocks.packed_messages(self._source(reader))

    def _rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        with self._explained, closing(self._connect(_READING_PRAGMAS)) as reader:
            yield from reader.execute(self._statements.one(name))

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""
        with self._reader_lock, self._explained:
            reader = self._open_connection(self._reader)
            return self._blocks.read_payloads(self._source(reader), payload_ids)

    def _source(self, connection: sqlite3.Connection) -> SqliteBlockSource:
        return SqliteBlockSource(connection, self._statements, self._recent)

    # --- failures ------------------------------------------------------------------------------

    def _open_connection(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StorageError(f"{self.path} is not open")
        return connection


class _Explanation:
    """Translates errors of SQLite into `StorageError`s, with the file, the cause and the fix."""

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
        if isinstance(error, OverflowError | UnicodeEncodeError):
            raise StorageError(f"{self._path} cannot hold a value ({error})") from error


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
