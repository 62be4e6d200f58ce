"""The SQLite store: opens, writes and reads one file.

`journaled_commits.py` says which commits go to the journal first, and which to the tables at once. Either is synced before
a commit returns or ends. `batch.py` writes the statements of a transaction. If the process is killed at any moment, the file can
be opened again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    EntityStored,
    MessagesStored,
    NamespaceStored,
    RuleRow,
    SessionStateSet,
)
from storage.blocks.block_index import BlockIndex
from storage.blocks.stored_blocks import StoredBlocks
from storage.contract import StorageError, StorageFull, StoreContent, StoreUnusable
from storage.migration_scripts import read_migrations
from storage.sqlite.background_commits import SqliteBackgroundCommits
from storage.sqlite.batch import SqlBatch
from storage.sqlite.block_source import SqliteBlockSource
from storage.sqlite.checkpoints import LONGEST_LOG_BYTES, Checkpoints
from storage.sqlite.file_lock import FileLock, HeldElsewhere
from storage.sqlite.free_space import PAGE_BYTES, FreeSpace, pragma_value
from storage.sqlite.journaled_commits import JournaledCommits
from storage.sqlite.migrations import migrate, schema_version
from storage.sqlite.recent_commits import read_recent_changes
from storage.sqlite.store_errors import NOT_PERMITTED, TranslatedErrors, is_disk_full
from storage.sqlite.write_ahead_log import FileId, WriteAheadLog, file_id
from storage.statements import Statements, sql_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from broker.core.contract.records import Record
    from broker.core.messages.packed_rows import PackedRows
    from storage.contract import Room
    from storage.native.compiled import SyncedWriter

APPLICATION_ID = 0x5065656B
"""Written by the first migration."""
BUSY_TIMEOUT_MS = 10_000
"""How long to wait for another program, such as a shell, that reads the file."""
CLOSE_WAIT_MS = 500
"""How long to wait for readers when the store is closed: another program, or a read that failed."""
EXAMINE_INTERVAL_S = 0.02
"""A commit examines the files and the disk if the last examination was this long ago."""
EXAMINE_FRAMES = 256
"""Or if the log has grown by so many pages: a fast client fills a small disk in less time."""
MOVE_INTERVAL_S = 1.0
"""A commit is in the tables after one or two times this, if others follow it."""
DRAINED_BYTES = 64 << 20
"""A file with less than this in use and more than this free is compacted when it is opened."""

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


class SqliteStore:
    """A `Store` in a SQLite file."""

    blocking = True
    keeps_payloads_in_memory = False
    shares_ownership = False
    postpones = True

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        """Without symbolic links: SQLite has its log beside the file that they name."""
        self._translated_errors = TranslatedErrors(self.path)
        self._file_lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        folder = sql_folder("storage.sqlite")
        self._statements = Statements((folder / "queries.sql").read_text("utf-8"))
        self._migrations = read_migrations(folder / "migrations")
        self._blocks = StoredBlocks()
        self._journaled = JournaledCommits(self.path, self._write_tables, self._read_moved_number)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reader_lock = threading.Lock()
        self._log = WriteAheadLog(self.path)
        self._checkpoints = Checkpoints(self._log, lambda: self._connect(_CHECKPOINT_PRAGMAS))
        self._space = FreeSpace(self.path, self._log)
        self.background_commits: SqliteBackgroundCommits | None = None
        """See `Store.background_commits`. None while the store is not open."""
        self._file_ids: tuple[FileId, FileId] | None = None
        """The ids of the database file and its log after the first commit."""
        self._examine_from_s = 0.0
        self._examine_from_frames = 0
        self._move_from_s = 0.0

    # --- opening and closing -------------------------------------------------------------------

    def exists(self) -> bool:
        """See `Store.exists`."""
        return self.path.is_file()

    def open(self) -> None:
        """Opens the file, and creates or migrates it if needed. Raises `StoreUnusable`."""
        self._take_file()
        try:
            with self._translated_errors:
                self._writer = writer = self._connect(_PRAGMAS)
                self._check_origin(writer)
                (journal_mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
                if journal_mode != "wal":
                    raise StoreUnusable(f"{self.path} is on a disk without shared memory; move it")
                migrate(writer, self._migrations)
                self._shrink_if_drained(writer)
                self._space.measure_inside(writer)
                self._reader = self._connect(_READING_PRAGMAS)
                self._log.open_index()
                self._log.keep_space()
                self._checkpoints.open()
                self._move_recent(writer)
                self._journaled.open(*writer.execute(self._statements.one("journal")).fetchone())
            self._move_pending()
            with self._translated_errors:
                self._blocks.index(self._source(self._reader))
            self._space.reserve()
            with self._translated_errors:
                self.background_commits = SqliteBackgroundCommits(self, self._journaled.journal)
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
        if self.background_commits is not None:
            self.background_commits.close()
            self.background_commits = None
        if self._writer is not None:
            with suppress(StorageError):  # the content of the journal is durable in any case
                self._move_pending()
            with suppress(sqlite3.Error):  # and so is that of the log
                self._writer.execute(f"PRAGMA busy_timeout = {CLOSE_WAIT_MS}")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._writer.close()
            self._writer = None
        self._journaled.close()
        self._blocks.forget()
        self._log.close_index()
        self._file_ids = None  # a new log file is created at the next open
        self._file_lock.release()

    def _move_recent(self, writer: sqlite3.Connection) -> None:
        """Moves what a broker of version 5 has left in a table that is not used any more."""
        recent = read_recent_changes(writer.execute(self._statements.one("recent_parts")))
        if recent is not None:
            writer.execute("BEGIN IMMEDIATE")
            batch = SqlBatch(writer, self._statements, BlockIndex())
            batch.write_changes(recent.as_block_changes(), recent.sequence_numbers)
            writer.execute(self._statements.one("delete_recent_parts"))
            writer.execute("COMMIT")

    def _move_pending(self) -> None:
        """Moves all commits of the journal to the tables. If the disk is full, the reserve is used."""
        if self._journaled.has_pending:
            try:
                self._commit_once(())
            except StorageFull:
                self._commit_once(())

    def measure_room(self) -> bool:
        """See `Store.measure_room`."""
        return self._space.measure_room()

    @property
    def commits_inline(self) -> bool:
        """See `Store.commits_inline`. Not while the disk does not even say how much space is free."""
        return not self._space.hangs

    @property
    def room(self) -> Room:
        """See `Store.room`."""
        return self._space.room

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
            raise StoreUnusable(f"{self.path} {NOT_PERMITTED} ({error.strerror})") from error

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
        free_pages = pragma_value(writer, "freelist_count")
        used_pages = pragma_value(writer, "page_count") - free_pages
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

        A batch without new bodies is tried once more on a full disk: the first failure has released the reserve and
        copied the log, so that messages can always be completed.
        """
        try:
            self._commit_once(records)
        except StorageFull:
            if _has_bodies(records):
                raise
            self._commit_once(records)

    def _commit_once(self, records: Sequence[Record]) -> None:
        writer = self._open_connection(self._writer)
        with self._translated_errors:
            try:
                if not (
                    self._space.is_plenty and records and self._write_to_journal(writer, records)
                ):
                    self._space.check(writer, records)
                    self._journaled.move_all(records)
            except BaseException as error:
                self._undo(writer, error)
                raise
        if self.examination_is_due:
            self.examine()

    def begin_commit(
        self, records: Sequence[Record], synced_writer: SyncedWriter, *, caller_waits: bool
    ) -> bool:
        """Begins a commit to the journal. Returns False if it has to be written to the tables, or there is more to do before
        it is written."""
        index = self._blocks.known_index
        if index is None or not records or not self._space.is_plenty:
            return False
        with self._translated_errors:
            return self._journaled.begin_write(
                records, index, synced_writer, caller_waits=caller_waits
            )

    def end_commit(self, records: Sequence[Record], error_number: int) -> bool:
        """Ends a commit to the journal. Returns False if `commit` has to try it once more."""
        writer = self._open_connection(self._writer)
        try:
            with self._translated_errors:
                try:
                    self._journaled.end_write(error_number)
                except BaseException as error:
                    self._undo(writer, error)
                    raise
        except StorageFull:
            if _has_bodies(records):
                raise
            return False
        return True

    def _write_to_journal(self, writer: sqlite3.Connection, records: Sequence[Record]) -> bool:
        """Writes a commit to the journal. Returns False if it has to be written to the tables. Not called if space is
        scarce: what it deletes still occupies the tables."""
        index = self._blocks.known_index or self._blocks.index(self._source(writer))
        return self._journaled.write(records, index)

    def _write_tables(self, records: Sequence[Record], moved_number: int) -> None:
        """Writes records, and the number of the last journal entry that moves with them, in one transaction."""
        writer = self._open_connection(self._writer)
        self._checkpoints.restart_log(writer)
        index = self._blocks.index(self._source(writer))
        batch = SqlBatch(writer, self._statements, index, may_rewrite=self._space.may_rewrite)
        writer.execute("BEGIN IMMEDIATE")
        batch.write(records)
        writer.execute(self._statements.one("set_moved_number"), (moved_number,))
        writer.execute("COMMIT")
        self._blocks.apply(batch.apply)

    def _read_moved_number(self) -> int:
        writer = self._open_connection(self._writer)
        _, moved_number = writer.execute(self._statements.one("journal")).fetchone()
        return int(moved_number)

    def examine(self) -> None:
        """Examines the files and the disk, before the answers to a commit leave. Raises `StoreUnusable`."""
        writer = self._open_connection(self._writer)
        now_s = time.monotonic()
        if now_s >= self._move_from_s:
            self._move_from_s = now_s + MOVE_INTERVAL_S
            self._journaled.note_time()
        self._check_files()
        # Nothing from here on is a failure of the commit. While it is being written, the journal is not deleted, because it
        # has an entry that is not in the tables.
        with suppress(OSError, sqlite3.Error):
            self._measure_space(writer)
        self._examine_from_s = now_s + EXAMINE_INTERVAL_S
        self._examine_from_frames = self._log.uncopied_frames + EXAMINE_FRAMES

    @property
    def examination_is_due(self) -> bool:
        """Whether the last examination was long ago, much was written since then, or space is scarce."""
        return (
            time.monotonic() >= self._examine_from_s
            or self._log.uncopied_frames >= self._examine_from_frames
            or not self._space.is_plenty
        )

    @property
    def maintenance_is_due(self) -> bool:
        """See `Store.maintenance_is_due`."""
        return self._checkpoints.is_due

    def maintain(self) -> None:
        """Copies the log into the database file; see `Store.maintain`."""
        self._checkpoints.run(self._reader_lock)

    def _undo(self, writer: sqlite3.Connection, error: BaseException) -> None:
        """A commit has failed. The next one reads again what the files have."""
        if is_disk_full(error):
            self._journaled.free_space()
        self._journaled.forget()
        self._blocks.forget()
        if is_disk_full(error):
            self._space.release_reserve()  # copying the log needs space, too
        with suppress(sqlite3.Error):
            if writer.in_transaction:  # SQLite itself rolls back some failures
                writer.execute("ROLLBACK")
            self._checkpoints.copy_after_failure(writer)
        self._log.discard_uncommitted()

    def _check_files(self) -> None:
        """Raises `StoreUnusable` if the file was deleted or replaced while it was open.

        SQLite continues to write to such a file, and the commits would be lost.
        """
        try:
            ids = file_id(self.path), file_id(self._log.path)
        except FileNotFoundError:
            ids = None
        except OSError:
            return  # the files cannot be examined now, which is no failure of the commit
        if self._file_ids is None:
            self._file_ids = ids
        if ids is None or ids != self._file_ids or not self._journaled.journal.is_in_place:
            raise StoreUnusable(
                f"{self.path} or its -wal or -commits file was deleted or replaced while the broker ran; "
                "put the files back, or choose another file, and start again"
            )

    def _measure_space(self, writer: sqlite3.Connection) -> None:
        free_bytes = self._space.measure(writer)
        if self._space.is_plenty:
            self._checkpoints.shorten_log(free_bytes, self._reader_lock)
        else:
            self._journaled.free_space()
            # If another program fills the disk, the reserve has to be enough for what is in the log. If the reserve is
            # released, the log is copied after each commit, while there is space.
            kept_bytes = min(free_bytes, self._space.reserved_bytes)
            self._checkpoints.shorten_log(kept_bytes, self._reader_lock)
            self._log.keep_space()
            self._space.measure(writer)  # both may have freed space

    # --- reading -------------------------------------------------------------------------------

    def load(self) -> StoreContent:
        """Returns everything that was committed. Messages and message ids are read lazily."""
        self._open_connection(self._reader)
        self._move_pending()
        one = self._statements.one
        with self._translated_errors, closing(self._connect(_READING_PRAGMAS)) as reader:
            return StoreContent(
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

    def _sequence_numbers(self, reader: sqlite3.Connection) -> dict[tuple[int, int], int]:
        rows = reader.execute(self._statements.one("sequence_numbers"))
        return {(entity_id, sub_queue): last for entity_id, sub_queue, last in rows}

    def _packed_messages(self) -> Iterator[tuple[PackedRows, int]]:
        with self._translated_errors, closing(self._connect(_READING_PRAGMAS)) as reader:
            yield from self._blocks.packed_messages(self._source(reader))

    def _rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        with self._translated_errors, closing(self._connect(_READING_PRAGMAS)) as reader:
            yield from reader.execute(self._statements.one(name))

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""
        found, stored = self._journaled.read_payloads(payload_ids)
        if stored:
            with self._reader_lock, self._translated_errors:
                reader = self._open_connection(self._reader)
                found.update(self._blocks.read_payloads(self._source(reader), stored))
        return found

    def _source(self, connection: sqlite3.Connection) -> SqliteBlockSource:
        return SqliteBlockSource(connection, self._statements)

    # --- failures ------------------------------------------------------------------------------

    def _open_connection(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StorageError(f"{self.path} is not open")
        return connection


def _has_bodies(records: Sequence[Record]) -> bool:
    """Returns whether there are new messages. Copies share the bodies of others."""
    return any(isinstance(record, MessagesStored) and record.payloads for record in records)
