"""The PostgreSQL store: opens, writes and reads one schema of a database.

A commit is one round trip and one transaction. Its first statement checks that this process is the owner
(`schema_ownership.py`) and that the commit follows the last one. So a commit whose answer was lost is sent again, and takes
effect once.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from broker.core.contract.records import EntityStored, NamespaceStored, RuleRow, SessionStateSet
from storage.blocks.stored_blocks import StoredBlocks
from storage.contract import UNLIMITED_ROOM, OwnershipLost, StorageFull, StoreContent
from storage.migration_scripts import read_migrations
from storage.postgres.batch import PostgresBatch
from storage.postgres.block_source import PostgresBlockSource
from storage.postgres.database import Database
from storage.postgres.failures import COMMITTED_ALREADY, ConnectionFailure, SqlFailure, explain
from storage.postgres.migrations import migrate, stored_version
from storage.postgres.retrying_session import RetryingSession
from storage.postgres.schema_ownership import SchemaOwnership
from storage.postgres.session import Prepared
from storage.statements import Statements, sql_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from psycopg.pq.abc import PGresult

    from broker.core.contract.records import Record
    from broker.core.messages.packed_rows import PackedRows
    from storage.contract import Lease, Room
    from storage.postgres.session import Call

DEADLINE_S = 30.0
"""How long a commit or a read of bodies may take, with all its attempts, while this process stays the owner."""
FULL_PAUSE_S = 5.0
"""How long no new messages are accepted after the disk of the database was full."""


class PostgresStore:
    """A `SharedStore` in a schema of a PostgreSQL database."""

    blocking = True
    keeps_payloads_in_memory = False
    commits_inline = False
    shares_ownership = True
    postpones = False
    background_commits = None
    maintenance_is_due = False

    def __init__(self, url: str, schema: str, *, deadline_s: float = DEADLINE_S) -> None:
        self.database = Database(url, schema)
        self._deadline_s = deadline_s
        folder = sql_folder("storage.postgres")
        queries = Statements((folder / "queries.sql").read_text("utf-8"))
        self._statements = {name: Prepared(name, queries.one(name)) for name in queries.names}
        self._migrations = read_migrations(folder / "migrations")
        self._interrupted = threading.Event()
        """Set from the end of an ownership until the next one may begin."""
        self._ownership = SchemaOwnership(self.database, self._statements, self._interrupted)
        self._blocks = StoredBlocks()
        lock = self._statements["lock_shared"].call(self.database.writer_lock)
        self._writer = RetryingSession(self.database, self._statements, self._interrupted, [lock])
        self._reader = RetryingSession(self.database, self._statements, self._interrupted)
        self._writer_lock = threading.Lock()
        self._reader_lock = threading.Lock()
        reading = Statements((folder / "reading.sql").read_text("utf-8"))
        self._written = PostgresBlockSource(self.database, reading, self._run_writer)
        self._read = PostgresBlockSource(self.database, reading, self._run_reader)
        self._commit_number = 0
        """The number of the last commit of this epoch."""
        self._is_unsettled = False
        """Whether a commit failed. It may have been written, or may still be running."""
        self._full_until_s = 0.0

    # --- opening and closing -------------------------------------------------------------------

    def exists(self) -> bool:
        """See `Store.exists`."""
        with closing(self.database.connect()) as connection:
            return stored_version(connection, self.database, self._migrations) > 0

    def open(self) -> None:
        """Connects, and creates or migrates the schema. Does not take the ownership."""
        with closing(self.database.connect()) as connection:
            migrate(connection, self.database, self._migrations)

    def close(self) -> None:
        """Closes all connections, and with them the ownership."""
        self._ownership.close()
        self._begin_epoch()
        with self._reader_lock:
            self._reader.close()

    def measure_room(self) -> bool:
        """See `Store.measure_room`."""
        return time.monotonic() >= self._full_until_s

    @property
    def room(self) -> Room:
        """See `Store.room`. The server does not say how much its disk can take."""
        return UNLIMITED_ROOM

    def maintain(self) -> None:
        """Nothing to do: PostgreSQL itself removes what is deleted."""

    # --- ownership -----------------------------------------------------------------------------

    def try_acquire(self) -> bool:
        """See `SharedStore.try_acquire`."""
        if self._ownership.epoch is not None:
            return True
        self._begin_epoch()
        return self._ownership.try_acquire()

    def take_over(self, seen_heartbeat: int) -> bool:
        """See `SharedStore.take_over`."""
        if self._ownership.epoch is not None:
            return True
        self._begin_epoch()
        return self._ownership.take_over(seen_heartbeat)

    def heartbeat(self) -> None:
        """See `SharedStore.heartbeat`."""
        self._ownership.heartbeat()

    def duplicate_session_socket(self) -> int | None:
        """See `SharedStore.duplicate_session_socket`."""
        return self._ownership.duplicate_session_socket()

    def read_lease(self) -> Lease:
        """See `SharedStore.read_lease`."""
        return self._ownership.read_lease()

    def release(self) -> None:
        """See `SharedStore.release`."""
        try:
            self._ownership.release()
        finally:
            self._begin_epoch()

    def interrupt(self) -> None:
        """See `SharedStore.interrupt`."""
        self._interrupted.set()

    def _begin_epoch(self) -> None:
        """Forgets what was true in the last epoch."""
        with self._writer_lock:
            self._writer.close()
            self._commit_number = 0
            self._is_unsettled = False
            self._blocks.forget()
        self._interrupted.clear()

    # --- writing -------------------------------------------------------------------------------

    def commit(self, records: Sequence[Record]) -> None:
        """Writes all records durably, or none. Raises `OwnershipLost`, `StorageFull` or `StoreUnavailable`."""
        if not records:
            return
        with self._writer_lock, self._translated_errors():
            epoch = self._ownership.require_epoch()
            deadline_s = time.monotonic() + self._deadline_s
            self._settle(epoch, deadline_s)
            index = self._blocks.index(self._written)
            batch = PostgresBatch(index, self._statements, self._written.blocks)
            batch.write(records)
            self._commit(epoch, batch.calls, deadline_s)
            self._blocks.apply(batch.apply)

    def _commit(self, epoch: int, calls: Sequence[Call], deadline_s: float) -> None:
        number = self._commit_number + 1
        self._is_unsettled = True
        try:
            self._writer.run([self._begin_commit(epoch, number), *calls], deadline_s)
        except SqlFailure as failure:
            if failure.code != COMMITTED_ALREADY:
                raise
            # An earlier attempt was committed. A server that was interrupted may not have waited for its replicas, but
            # the next commit waits for both.
            self._settle(epoch, deadline_s)
            return
        self._commit_number = number
        self._is_unsettled = False

    def _settle(self, epoch: int, deadline_s: float) -> None:
        """Waits for a commit that may still be running in a lost session, or prevents it: its number is skipped."""
        if not self._is_unsettled:
            return
        number = self._commit_number + 2
        skip = self._statements["skip_commit"].call(epoch, number)
        try:
            self._writer.run([skip, self._begin_commit(epoch, number + 1)], deadline_s)
        except SqlFailure as failure:
            if failure.code != COMMITTED_ALREADY:
                raise
        self._commit_number = number + 1
        self._is_unsettled = False

    def _begin_commit(self, epoch: int, number: int) -> Call:
        return self._statements["begin_commit"].call(epoch, number)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translates failures into errors of the contract. After any failure, the index of the blocks is read again; after
        some, no messages are accepted for a while, or this process is no longer the owner."""
        try:
            yield
        except (SqlFailure, ConnectionFailure) as failure:
            self._blocks.forget()
            error = explain(self.database.name, failure)
            if isinstance(error, StorageFull):
                self._full_until_s = time.monotonic() + FULL_PAUSE_S
            elif isinstance(error, OwnershipLost):
                self._writer.close()
                self._ownership.lose()
            raise error from failure
        except BaseException:
            self._blocks.forget()
            raise

    def _run_writer(self, name: str, *values: object) -> PGresult:
        call = self._statements[name].call(*values)
        (result,) = self._writer.run([call], time.monotonic() + self._deadline_s)
        return result

    # --- reading -------------------------------------------------------------------------------

    def load(self) -> StoreContent:
        """Returns everything that was committed. Messages and message ids are read lazily."""
        with self._writer_lock, self._translated_errors():
            if self._is_unsettled:
                epoch = self._ownership.require_epoch()
                self._settle(epoch, time.monotonic() + self._deadline_s)
                self._blocks.forget()
        with self._translated_errors():
            namespaces, entities, rules, numbers, states = self._read.all_rows(
                "namespaces", "entities", "rules", "sequence_numbers", "session_states"
            )
            return StoreContent(
                namespaces=[NamespaceStored(*map(_text, row)) for row in namespaces],
                entities=[
                    EntityStored(
                        entity_id,
                        _text(namespace),
                        _text(kind),
                        _text(path),
                        _text(definition),
                        *times_ms,
                    )
                    for entity_id, namespace, kind, path, definition, *times_ms in entities
                ],
                rules=[
                    RuleRow(entity_id, number, _text(definition))
                    for entity_id, number, definition in rules
                ],
                sequence_numbers={
                    (entity_id, sub_queue): sequence_number
                    for entity_id, sub_queue, sequence_number in numbers
                },
                highest_message_id=self._blocks.highest_id(self._read),
                packed_messages=self._packed_messages(),
                session_states=[
                    SessionStateSet(entity_id, _text(session_id), state, updated_time_ms)
                    for entity_id, session_id, state, updated_time_ms in states
                ],
                message_ids=self._message_ids(),
            )

    def _packed_messages(self) -> Iterator[tuple[PackedRows, int]]:
        with self._translated_errors():
            yield from self._blocks.packed_messages(self._read)

    def _message_ids(self) -> Iterator[tuple[int, str, int]]:
        with self._translated_errors():
            for entity_id, message_id, until_ms in self._read.rows("message_ids"):
                yield entity_id, _text(message_id), until_ms

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""
        with self._reader_lock:
            try:
                return self._blocks.read_payloads(self._read, payload_ids)
            except (SqlFailure, ConnectionFailure) as failure:
                raise explain(self.database.name, failure) from failure

    def _run_reader(self, name: str, *values: object) -> PGresult:
        call = self._statements[name].call(*values)
        (result,) = self._reader.run([call], time.monotonic() + self._deadline_s)
        return result


def _text(value: bytes) -> str:
    return value.decode()
