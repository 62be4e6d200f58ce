"""Reads blocks and large bodies from a SQLite file.

Each read ends before the next begins, so that the log can be checkpointed in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.sqlite.batch import LARGEST_STATEMENT_ROWS, MOST_RANGES, padded, unbroken_ranges

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Sequence

    from storage.blocks.block_index import StoredRow
    from storage.statements import Statements


class SqliteBlockSource:
    """A `BlockSource` with one connection."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._execute = connection.execute
        self._statements = statements

    def stored_rows(self) -> Iterator[StoredRow]:
        """See `BlockSource`."""
        return self._execute(self._statements.one("blocks"))

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """See `BlockSource`."""
        return self._execute(self._statements.one("block_entries"))

    def blocks(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """See `BlockSource`. May be called beside commits."""
        select = self._statements.one("block")
        for number in list(numbers):
            yield from self._execute(select, (number,)).fetchall()

    def payloads(self, payload_ids: Sequence[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """See `BlockSource`."""
        for select, bounds in self._selects(payload_ids):
            yield from self._execute(select, bounds).fetchall()

    def highest_payload_id(self) -> int:
        """See `BlockSource`."""
        highest: int
        (highest,) = self._execute(self._statements.one("highest_payload_id")).fetchone()
        return highest

    def _selects(self, ordered: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """Reads consecutive ids, which are common in a queue, as ranges: that costs half of looking up each id."""
        ranges = unbroken_ranges(ordered)
        if len(ranges) <= MOST_RANGES:
            select = self._statements.one("payload_range")
            yield from ((select, bounds) for bounds in ranges)
            return
        for start in range(0, len(ordered), LARGEST_STATEMENT_ROWS):
            chunk = padded(ordered[start : start + LARGEST_STATEMENT_ROWS])
            yield self._statements.many("payloads", len(chunk)), chunk
