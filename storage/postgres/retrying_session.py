"""A session that is made anew when it is lost, and runs its statements again until a deadline.

A database that restarts or fails over is away for seconds. If the session is lost during a transaction, the transaction
may have taken effect. Its statements run again, so they must detect this themselves. Another thread can interrupt it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from storage.contract import StoreUnavailable
from storage.postgres.failures import (
    ConnectionFailure,
    SqlFailure,
    explain,
    is_connection_code,
)
from storage.postgres.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from threading import Event

    from psycopg.pq.abc import PGresult

    from storage.postgres.database import Database
    from storage.postgres.session import Call, Prepared

PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5)
"""Between attempts. The last one repeats."""


class RetryingSession:
    """A session of one schema. One thread at a time uses it."""

    def __init__(
        self,
        database: Database,
        statements: Mapping[str, Prepared],
        interrupted: Event,
        opening: Sequence[Call] = (),
    ) -> None:
        self._database = database
        self._statements = statements
        self._interrupted = interrupted
        """While it is set, statements fail instead of waiting for the database."""
        self._opening = opening
        """What each new session runs first."""
        self._session: Session | None = None

    def close(self) -> None:
        """Closes the session. The next statement opens a new one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, calls: Sequence[Call], deadline_s: float) -> list[PGresult]:
        """Runs statements in one transaction, and returns their results.

        Raises `SqlFailure` if the last attempt was refused for good, and `StoreUnavailable` after the deadline or an
        interruption, or `StoreUnusable`. Then an earlier attempt may have been committed, or may still be running.
        """
        attempts = 0
        while True:
            try:
                return self._run_once(calls, deadline_s)
            except SqlFailure as failure:
                error = explain(self._database.name, failure)
                if not isinstance(error, StoreUnavailable):
                    raise
                if is_connection_code(failure.code):
                    self.close()
            except ConnectionFailure as failure:
                error = explain(self._database.name, failure)
                self.close()
            except StoreUnavailable as unavailable:
                error = unavailable
            except BaseException:
                self.close()  # something of it may be on its way
                raise
            pause_s = PAUSES_S[min(attempts, len(PAUSES_S) - 1)]
            is_late = time.monotonic() + pause_s >= deadline_s
            if is_late or self._interrupted.wait(pause_s):
                raise error
            attempts += 1

    def _run_once(self, calls: Sequence[Call], deadline_s: float) -> list[PGresult]:
        if self._session is None:
            connection = self._database.connect()
            timeout_s = deadline_s - time.monotonic()
            self._session = Session(connection, self._statements, timeout_s, self._interrupted)
            self._session.run(self._opening, timeout_s)
        return self._session.run(calls, deadline_s - time.monotonic())
