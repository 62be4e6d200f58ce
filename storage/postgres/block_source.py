"""Reads blocks, bodies and rows from a PostgreSQL schema.

`PostgresBlockSource` reads bodies with a session while the broker runs. It reads everything else row by row, with a
connection that it opens for each read and closes afterwards.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from storage.postgres.failures import ConnectionFailure, SqlFailure
from storage.postgres.parameters import read_bigint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any

    from psycopg.pq.abc import PGresult

    from storage.blocks.block_index import StoredRow
    from storage.postgres.database import Database
    from storage.statements import Statements

FETCHED_ROWS = 256
"""So many rows of blocks are in memory at a time."""
FETCHED_SMALL_ROWS = 8192
READ_BLOCKS = 16
"""So many blocks, of at most 128 KiB, are read at a time."""
READ_PAYLOADS = 512
"""So many ids of large bodies are looked up at a time."""


class PostgresBlockSource:
    """A `BlockSource` for one schema. `run` runs a prepared statement."""

    def __init__(
        self,
        database: Database,
        statements: Statements,
        run: Callable[..., PGresult],
    ) -> None:
        self._database = database
        self._statements = statements
        self._run = run

    def stored_rows(self) -> Iterable[StoredRow]:
        """See `BlockSource`."""
        return self.rows("blocks", FETCHED_ROWS)

    def entries(self) -> Iterable[tuple[int, bytes]]:
        """See `BlockSource`."""
        return self.rows("block_entries", FETCHED_ROWS)

    def blocks(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """See `BlockSource`."""
        return self._read("read_blocks", list(numbers), READ_BLOCKS)

    def payloads(self, payload_ids: Sequence[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """See `BlockSource`."""
        return self._read("read_payloads", payload_ids, READ_PAYLOADS)

    def highest_payload_id(self) -> int:
        """See `BlockSource`."""
        return read_bigint(self._run("highest_payload_id").get_value(0, 0))

    def _read(self, name: str, ids: Sequence[int], size: int) -> Iterator[tuple[int, bytes, bytes]]:
        for start in range(0, len(ids), size):
            result = self._run(name, ids[start : start + size])
            for row in range(result.ntuples):
                number, first, second = (result.get_value(row, column) for column in range(3))
                assert first is not None
                assert second is not None
                yield read_bigint(number), bytes(first), bytes(second)

    def rows(self, name: str, size: int = FETCHED_SMALL_ROWS) -> Iterator[tuple[Any, ...]]:
        """Returns the rows of a statement. Reads `size` of them at a time, with a connection of their own."""
        with self.reading() as connection, connection.cursor("reading", binary=True) as cursor:
            cursor.itersize = size
            cursor.execute(self._statements.one(name))
            yield from cursor

    def all_rows(self, *names: str) -> list[list[tuple[Any, ...]]]:
        """Returns all rows of each statement."""
        with self.reading() as connection, connection.cursor(binary=True) as cursor:
            return [cursor.execute(self._statements.one(name)).fetchall() for name in names]

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """A connection in a transaction. Translates errors."""
        connection = self._database.connect()
        try:
            with connection.transaction():
                yield connection
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise ConnectionFailure(str(error)) from error
            raise SqlFailure(error.sqlstate, str(error)) from error
        finally:
            connection.close()
