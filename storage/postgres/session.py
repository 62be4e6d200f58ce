"""A connection that runs prepared statements, many in one round trip.

Uses libpq's pipeline mode through `psycopg.pq`: the statements of a call are one transaction, which is committed when
all of them have succeeded, and are sent together. psycopg's cursors would take six times the processor time.
"""

from __future__ import annotations

import select
import time
from struct import error as StructError  # noqa: N812 -- it is a class
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

from storage.contract import StorageError
from storage.postgres.failures import ConnectionFailure, SqlFailure
from storage.postgres.parameters import encoders_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from threading import Event
    from typing import Any

    from psycopg.pq.abc import PGresult

    Call = tuple["Prepared", Sequence[bytes]]

_BINARY = pq.Format.BINARY
INTERRUPTION_S = 0.1
"""How soon a wait for the database notices that it was interrupted."""
_GOOD = {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}


class Prepared:
    """A statement that sessions prepare."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name.encode()
        self.text = text.encode()
        self._encoders = encoders_of(text)
        self.formats = (_BINARY,) * len(self._encoders)

    def call(self, *values: object) -> Call:
        """Returns a call of the statement. Raises `StorageError` if a value cannot be stored."""
        try:
            encoded = [encode(value) for encode, value in zip(self._encoders, values, strict=True)]
        except (StructError, UnicodeEncodeError) as error:
            raise StorageError(f"PostgreSQL cannot hold a value ({error})") from error
        return self, encoded


class Session:
    """One connection. One thread at a time uses it."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        statements: Mapping[str, Prepared],
        timeout_s: float,
        interrupted: Event,
    ) -> None:
        self._interrupted = interrupted
        """Set by another thread if nobody wants the results any more."""
        self._connection = connection
        self._pgconn = connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        try:
            self._pgconn.nonblocking = 1
            self._pgconn.enter_pipeline_mode()
            for statement in statements.values():
                self._pgconn.send_prepare(statement.name, statement.text)
            self._finish(timeout_s)
        except psycopg.Error as error:
            self.close()
            raise ConnectionFailure(str(error)) from error
        except BaseException:
            self.close()
            raise

    @property
    def socket(self) -> int:
        """The file descriptor of its connection."""
        return self._pgconn.socket

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def run(self, calls: Sequence[Call], timeout_s: float) -> list[PGresult]:
        """Runs statements in one transaction and one round trip. Returns their results.

        Raises `SqlFailure` if the database refused one, and `ConnectionFailure` if nobody knows.
        """
        send = self._pgconn.send_query_prepared
        try:
            for statement, values in calls:
                send(statement.name, values, statement.formats, _BINARY)
            return self._finish(timeout_s)
        except psycopg.Error as error:
            raise ConnectionFailure(str(error)) from error

    def _finish(self, timeout_s: float) -> list[PGresult]:
        """Ends the transaction, and returns the results of its statements."""
        pgconn = self._pgconn
        deadline_s = time.monotonic() + timeout_s
        pgconn.pipeline_sync()
        self._flush(deadline_s)
        results: list[PGresult] = []
        failure: SqlFailure | None = None
        while True:
            while pgconn.is_busy():
                self._wait(deadline_s)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    raise failure or ConnectionFailure(_text(pgconn.error_message))
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _GOOD:
                results.append(result)
            elif failure is None and result.status != pq.ExecStatus.PIPELINE_ABORTED:
                code = result.error_field(pq.DiagnosticField.SQLSTATE)
                if code is None:  # libpq says so itself: the connection is lost
                    raise ConnectionFailure(_text(result.error_message))
                failure = SqlFailure(code.decode(), _text(result.error_message))
        if failure is not None:
            raise failure
        return results

    def _flush(self, deadline_s: float) -> None:
        pgconn = self._pgconn
        if not pgconn.flush():
            return
        self._poll.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        try:
            while pgconn.flush():
                self._wait(deadline_s)
                pgconn.consume_input()
        finally:
            self._poll.modify(pgconn.socket, select.POLLIN)

    def _wait(self, deadline_s: float) -> None:
        while not self._interrupted.is_set():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise ConnectionFailure("it does not answer")
            if self._poll.poll(min(left_s, INTERRUPTION_S) * 1000):
                return
        raise ConnectionFailure("it has not answered while this process was the owner")


def _text(message: bytes) -> str:
    return message.decode("utf-8", "replace").strip() or "the connection is lost"
