"""Who owns a schema: an epoch in a row, and an advisory lock.

The epoch alone decides who may commit. PostgreSQL releases the lock when the session of the owner ends; then another
broker may take the ownership without waiting. Both are used in a session of their own, so that a long commit delays no
heartbeat.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from storage.contract import Lease, OwnershipLost
from storage.postgres.failures import (
    ConnectionFailure,
    SqlFailure,
    explain,
    is_connection_code,
)
from storage.postgres.parameters import read_bigint
from storage.postgres.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg.pq.abc import PGresult

    from storage.postgres.database import Database
    from storage.postgres.session import Prepared

ANSWER_TIMEOUT_S = 5.0
"""How long a statement of the ownership may take."""
LOCK_TIMEOUT_MS = 4_000
"""How long to wait for a commit of the previous owner, which has the row of the ownership."""
ENDED_SESSION_S = 1.0
"""How long to wait for the end of a session that was told to end."""
POLL_INTERVAL_S = 0.01
_LOCK_NOT_AVAILABLE = "55P03"


class SchemaOwnership:
    """The ownership of one schema, as this process sees it. May be used by any thread."""

    def __init__(
        self, database: Database, statements: Mapping[str, Prepared], interrupted: threading.Event
    ) -> None:
        self._database = database
        self._statements = statements
        self._interrupted = interrupted
        self._session: Session | None = None
        self._has_lock = False
        self._guard = threading.Lock()
        self.epoch: int | None = None
        """The epoch of this process, or None if it is not the owner."""
        self._last_epoch: int | None = None
        """The epoch in which this process was the owner last."""

    # --- taking and giving ---------------------------------------------------------------------

    def try_acquire(self) -> bool:
        """See `SharedStore.try_acquire`."""
        with self._guard:
            if self.epoch is not None:
                return True
            if self._try_lock():
                self._begin(self._run("begin_epoch", _owner_text()))
                return True
            # The lock may belong to a session that this process has lost, and whose end the database has not noticed.
            lease = self._read_lease()
            return lease.epoch == self._last_epoch and self._begin_if_silent(lease.heartbeat)

    def take_over(self, seen_heartbeat: int) -> bool:
        """See `SharedStore.take_over`."""
        with self._guard:
            is_silent = self._read_lease().heartbeat == seen_heartbeat
            return is_silent and self._begin_if_silent(seen_heartbeat)

    def _begin_if_silent(self, seen_heartbeat: int) -> bool:
        self._end_sessions_of_owner()
        try:
            result = self._session_run("begin_epoch_if_silent", _owner_text(), seen_heartbeat)
        except SqlFailure as failure:
            self._close()
            if failure.code == _LOCK_NOT_AVAILABLE:
                return False
            raise explain(self._database.name, failure) from failure
        if not result.ntuples:
            self._close()
            return False
        self._begin(result)
        return True

    def _end_sessions_of_owner(self) -> None:
        """Frees what the sessions of the owner hold, and takes its lock. The epoch is enough if this fails."""
        locks = [self._database.owner_lock, self._database.writer_lock]
        with suppress(SqlFailure):
            self._session_run("end_sessions", locks)
            deadline_s = time.monotonic() + ENDED_SESSION_S
            while not self._try_lock() and time.monotonic() < deadline_s:
                time.sleep(POLL_INTERVAL_S)

    def _begin(self, result: PGresult) -> None:
        self.epoch = self._last_epoch = read_bigint(result.get_value(0, 0))

    def heartbeat(self) -> None:
        """See `SharedStore.heartbeat`."""
        with self._guard:
            epoch = self.require_epoch()
            if not self._run("heartbeat", epoch).ntuples:
                self._lose()
                raise OwnershipLost(f"{self._database.name} is owned by another broker now")
            if not self._has_lock:
                self._try_lock()

    def duplicate_session_socket(self) -> int | None:
        """See `SharedStore.duplicate_session_socket`."""
        with self._guard:
            if self._session is None:
                return None
            try:
                return os.dup(self._session.socket)
            except (OSError, psycopg.Error):
                # Clients use all descriptors, or the session has ended, which the next heartbeat notices.
                return None

    def read_lease(self) -> Lease:
        """See `SharedStore.read_lease`."""
        with self._guard:
            return self._read_lease()

    def release(self) -> None:
        """See `SharedStore.release`."""
        with self._guard:
            epoch, self.epoch = self.epoch, None
            try:
                if epoch is not None:
                    self._run("release", epoch)
            finally:
                self._close()

    def require_epoch(self) -> int:
        """Returns the epoch of this process. Raises `OwnershipLost` if it is not the owner."""
        epoch = self.epoch
        if epoch is None:
            raise OwnershipLost(f"{self._database.name} is not owned by this broker")
        return epoch

    def lose(self) -> None:
        """A commit was refused: another process is the owner."""
        with self._guard:
            self._lose()

    def _lose(self) -> None:
        self.epoch = None
        self._close()

    def _read_lease(self) -> Lease:
        result = self._run("lease")
        epoch, counter, owner = (result.get_value(0, column) for column in range(3))
        return Lease(read_bigint(epoch), read_bigint(counter), (owner or b"").decode())

    def _try_lock(self) -> bool:
        result = self._run("lock", self._database.owner_lock)
        self._has_lock = result.get_value(0, 0) == b"\x01"
        return self._has_lock

    # --- the session ---------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the session, and with it the ownership."""
        with self._guard:
            self.epoch = None
            self._close()

    def _close(self) -> None:
        if self._session is not None:
            if self._has_lock:
                # The end of the session releases the lock, too, but a moment later.
                with suppress(SqlFailure, ConnectionFailure):
                    self._session.run([self._statements["unlock"].call()], ENDED_SESSION_S)
            self._drop()

    def _drop(self) -> None:
        """Closes a session that may not answer any more."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._has_lock = False

    def _run(self, name: str, *values: object) -> PGresult:
        try:
            return self._session_run(name, *values)
        except SqlFailure as failure:
            raise explain(self._database.name, failure) from failure

    def _session_run(self, name: str, *values: object) -> PGresult:
        """Runs a statement, in a new session if the last one was lost. Any of them may be run twice."""
        call = self._statements[name].call(*values)
        is_new = self._session is None
        while True:
            try:
                (result,) = self._opened().run([call], ANSWER_TIMEOUT_S)
                return result
            except SqlFailure as failure:
                if not is_connection_code(failure.code):
                    raise
                error: Exception = failure
            except ConnectionFailure as failure:
                error = failure
            except BaseException:
                self._drop()  # something of it may be on its way
                raise
            self._drop()
            if is_new or self._interrupted.is_set():
                raise explain(self._database.name, error) from error
            is_new = True

    def _opened(self) -> Session:
        if self._session is None:
            connection = self._database.connect(LOCK_TIMEOUT_MS)
            self._session = Session(
                connection, self._statements, ANSWER_TIMEOUT_S, self._interrupted
            )
        return self._session


def _owner_text() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
