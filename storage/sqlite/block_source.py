"""Reads blocks and large bodies from a SQLite file.

What recent commits have changed is not in the tables of blocks yet (`recent_commits.py`), so it is added here. Each read
ends before the next begins, so that the log can be checkpointed in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.sqlite.batch import LARGEST_STATEMENT_ROWS, MOST_RANGES, padded, unbroken_ranges

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Sequence

    from storage.blocks.block_index import StoredRow
    from storage.sqlite.recent_commits import RecentCommits
    from storage.statements import Statements


class SqliteBlockSource:
    """A `BlockSource` with one connection."""

    def __init__(
        self, connection: sqlite3.Connection, statements: Statements, recent: RecentCommits
    ) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._statements = statements
        self._recent = recent

    def stored_rows(self) -> Iterator[StoredRow]:
        """See `BlockSource`."""
        recent = self._recent.changes(self._connection)
        for row in self._execute(self._statements.one("blocks")):
            number = row[0]
            if number in recent.deleted_blocks:
                continue
            if number in recent.dead:
                yield *row[:3], *recent.dead[number]
            else:
                yield row
        for number, (entries, payloads) in recent.blocks.items():
            yield number, entries, len(payloads), *recent.dead.get(number, (None, None))

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """See `BlockSource`."""
        recent = self._recent.changes(self._connection)
        for row in self._execute(self._statements.one("block_entries")):
            if row[0] not in recent.deleted_blocks:
                yield row
        for number, (entries, _) in recent.blocks.items():
            yield number, entries

    def blocks(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """See `BlockSource`. May be called beside commits: a block that is not in `recent` any more is in the tables."""
        select = self._statements.one("block")
        for number in list(numbers):
            recent = self._recent.changes(self._connection)
            if (block := recent.blocks.get(number)) is not None:
                yield number, *block
            else:
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
