"""Reads the blocks of a SQLite file: their index at start, rows of messages, and bodies.

`batch.py` writes blocks. One thread commits, and another may read bodies at the same time.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING

from storage.blocks.block_format import StoredBlock
from storage.blocks.block_index import BlockIndex
from storage.contract import StorageError, StoreUnusable
from storage.sqlite.batch import (
    LARGEST_STATEMENT_ROWS,
    MOST_RANGES,
    padded,
    unbroken_ranges,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.messages.packed_rows import PackedRows
    from storage.sqlite.batch import SqlBatch
    from storage.sqlite.statements import Statements

_ATTEMPTS = 1_000
_PAUSE_S = 0.001
Payloads = dict[int, tuple[bytes, bytes]]


class StoredBlocks:
    """The blocks of one file."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._index: BlockIndex | None = None
        self._lock = threading.Lock()

    def index(self, connection: sqlite3.Connection) -> BlockIndex:
        """Returns the index of the blocks. Reads it from the file if it is not known."""
        with self._lock:
            return self._known_index(connection)

    def _known_index(self, connection: sqlite3.Connection) -> BlockIndex:
        if self._index is None:
            self._index = self._read_index(connection)
        return self._index

    def _read_index(self, connection: sqlite3.Connection) -> BlockIndex:
        index = BlockIndex()
        try:
            index.load(connection.execute(self._statements.one("blocks")))
        except (ValueError, IndexError, struct.error) as error:
            raise StoreUnusable(f"a block is damaged or of a newer version ({error})") from error
        return index

    def forget(self) -> None:
        """Reads the index again when it is needed: the file may differ, because a commit failed or the file is closed."""
        self._index = None

    def apply(self, batch: SqlBatch) -> None:
        """Changes the index after a commit. Raises nothing: the commit is durable."""
        with self._lock:
            try:
                batch.apply()
            except Exception:  # noqa: BLE001 -- whatever it is, the file has the truth
                self.forget()

    def packed_messages(self, connection: sqlite3.Connection) -> Iterator[tuple[PackedRows, int]]:
        """Returns the rows of all messages, with bits for the dead ones. Must be read before the next commit."""
        by_number = self.index(connection).by_number
        for number, entries in connection.execute(self._statements.one("block_entries")):
            dead = by_number[number].dead_rows
            for rows in StoredBlock(entries).sections():
                yield rows, dead & ((1 << rows.count) - 1)
                dead >>= rows.count

    def highest_id(self, connection: sqlite3.Connection) -> int:
        """Returns the highest id of a message or a body."""
        index = self.index(connection)
        outside: int
        (outside,) = connection.execute(self._statements.one("highest_payload_id")).fetchone()
        return max(index.rows.highest, index.payloads.highest, outside)

    # --- bodies --------------------------------------------------------------------------------

    def read_payloads(self, connection: sqlite3.Connection, payload_ids: Sequence[int]) -> Payloads:
        """Returns body and annotations of the payloads that exist, by id. Each read ends before the next begins, so
        that the log can be checkpointed in between.
        """
        found: Payloads = {}
        wanted: Iterable[int] = payload_ids
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            blocks, outside = self._locate(connection, wanted)
            if outside:
                found |= self._read_outside(connection, outside)
            # A commit may write a block again between the two steps. The index says where after that commit.
            wanted = []
            for number, slots in blocks.items():
                if not self._read_block(connection, number, slots, found):
                    wanted += slots
            if not wanted:
                return found
        raise StorageError("bodies are not where the index says")

    def _locate(
        self, connection: sqlite3.Connection, payload_ids: Iterable[int]
    ) -> tuple[dict[int, dict[int, int]], list[int]]:
        """Returns block numbers, each with the slots of ids, and the ids that are in no block."""
        blocks: dict[int, dict[int, int]] = {}
        outside: list[int] = []
        with self._lock:
            index = self._known_index(connection)
            for payload_id in payload_ids:
                location = index.payloads.get(payload_id)
                if location is None:
                    outside.append(payload_id)
                else:
                    handle, slot = location
                    blocks.setdefault(index.block(handle).number, {})[payload_id] = slot
        return blocks, outside

    def _read_block(
        self,
        connection: sqlite3.Connection,
        number: int,
        slots: dict[int, int],
        found: Payloads,
    ) -> bool:
        """Returns False if there is no such block."""
        rows = connection.execute(self._statements.one("block"), (number,)).fetchall()
        for _, entries, payloads in rows:
            read = StoredBlock(entries).read_payloads(payloads, slots.values())
            found.update(zip(slots, read, strict=True))
        return bool(rows)

    def _read_outside(self, connection: sqlite3.Connection, payload_ids: Sequence[int]) -> Payloads:
        return {
            payload_id: (body, annotations)
            for select, bounds in self._selects(sorted(payload_ids))
            for payload_id, body, annotations in connection.execute(select, bounds).fetchall()
        }

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
