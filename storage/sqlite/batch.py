"""Writes a batch of records to SQLite with few statements.

Writes within a transaction, which `store.py` begins and commits. `storage/record_batch.py` turns the records into rows
and blocks.

Few statements, because the driver releases the interpreter lock for each and has to get it back from a busy event loop,
and because it binds integers and byte arrays much faster than other types.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from storage.record_batch import RecordBatch

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from broker.core.contract.records import PayloadRow
    from storage.blocks.block_batch import BlockChanges
    from storage.blocks.block_index import BlockIndex
    from storage.statements import Statements

_Id = TypeVar("_Id")

LARGEST_STATEMENT_ROWS = 512
LARGEST_STATEMENT_BYTES = 1 << 20
"""Limit of the bodies in one statement: they are in memory twice while it runs."""
COPIED_MAX_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
"""A larger body is written in pieces of this size."""
MOST_RANGES = 4
"""Limit of ranges. Deleting a range costs half of deleting its ids, but needs a statement of its own."""


def statement_size(count: int) -> int:
    """Returns the smallest power of two that is enough for this many rows: the size of a statement."""
    return 1 << (count - 1).bit_length()


def padded(ids: Sequence[_Id]) -> list[_Id]:
    """Returns the ids, padded to the size of a statement by repeating one, which changes nothing."""
    return [*ids, *[ids[-1]] * (statement_size(len(ids)) - len(ids))]


class SqlBatch(RecordBatch):
    """Collects the records of one commit and writes them. Used once."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        statements: Statements,
        index: BlockIndex,
        *,
        may_rewrite: bool = True,
    ) -> None:
        super().__init__(index, may_rewrite=may_rewrite)
        self._connection = connection
        self._execute = connection.execute
        self._statements = statements

    def write_changes(
        self, changes: BlockChanges, sequence_numbers: Mapping[tuple[int, int], int]
    ) -> None:
        """Writes changes that are not made of records."""
        self._write_blocks(changes)
        rows = [(*queue, number) for queue, number in sequence_numbers.items()]
        self._write_rows("raise_sequence_numbers", rows)

    # --- blocks --------------------------------------------------------------------------------

    def _read_blocks(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes, bytes]]:
        select = self._statements.one("block")
        for number in numbers:
            yield self._execute(select, (number,)).fetchone()

    def _write_blocks(self, changes: BlockChanges) -> None:
        execute, one = self._execute, self._statements.one
        self._delete_ids("delete_block_range", "delete_blocks", changes.deleted_blocks)
        self._delete_ids("delete_dead_slot_range", "delete_dead_slots", changes.deleted_dead)
        self._delete_ids("delete_payload_range", "delete_payloads", changes.deleted_payloads)
        for number, entries, payloads in changes.blocks:
            # The driver binds a bytearray faster than bytes, unless the copy takes longer.
            bound = payloads if len(payloads) > COPIED_MAX_BYTES else bytearray(payloads)
            execute(one("insert_block"), (number, bytearray(entries), bound))
        self._write_payloads(changes.payloads)
        self._write_rows("set_dead_slots", changes.dead)

    def _write_payloads(self, payloads: Sequence[PayloadRow]) -> None:
        small = [one for one in payloads if len(one.body) <= PIECE_BYTES]
        for start in range(0, len(small), LARGEST_STATEMENT_ROWS):
            self._write_payload_chunk(small[start : start + LARGEST_STATEMENT_ROWS])
        for payload in payloads:
            if len(payload.body) > PIECE_BYTES:
                self._write_in_pieces(payload)

    def _write_in_pieces(self, payload: PayloadRow) -> None:
        """Writes a large body. The value of a statement is copied several times, and to get new memory for a copy takes
        longer than to copy. So the row gets as many zeros, and then the body in pieces. The pages have to stay in the
        cache until they have their content: otherwise they would go to the log twice."""
        number, body, annotations = payload
        self._execute("PRAGMA cache_spill = OFF")
        try:
            self._execute(self._statements.one("insert_zeros"), (number, annotations, len(body)))
            with self._connection.blobopen("payloads", "body", number) as blob:
                for start in range(0, len(body), PIECE_BYTES):
                    blob.write(memoryview(body)[start : start + PIECE_BYTES])
        finally:
            self._execute("PRAGMA cache_spill = ON")

    def _write_payload_chunk(self, payloads: Sequence[PayloadRow]) -> None:
        count = len(payloads)
        size_bytes = sum([len(body) + len(annotations) for _, body, annotations in payloads])
        if size_bytes > LARGEST_STATEMENT_BYTES and count > 1:
            self._write_payload_chunk(payloads[: count // 2])
            self._write_payload_chunk(payloads[count // 2 :])
            return
        values: list[object] = [
            value
            for payload_id, body, annotations in payloads
            for value in (payload_id, bytearray(body), bytearray(annotations))
        ]
        self._write_values("insert_payloads", values, count)

    def _delete_ids(self, delete_range: str, delete_many: str, ids: Collection[int]) -> None:
        if not ids:
            return
        first, last = min(ids), max(ids)
        if last - first == len(ids) - 1:
            self._execute(self._statements.one(delete_range), (first, last))
            return
        ordered = sorted(ids)
        ranges = unbroken_ranges(ordered)
        if len(ranges) <= MOST_RANGES:
            for bounds in ranges:
                self._execute(self._statements.one(delete_range), bounds)
            return
        for start in range(0, len(ordered), LARGEST_STATEMENT_ROWS):
            chunk = padded(ordered[start : start + LARGEST_STATEMENT_ROWS])
            self._execute(self._statements.many(delete_many, len(chunk)), chunk)

    def _delete_seen_ids(self, entity_id: int, message_ids: Sequence[str]) -> None:
        # Not as a JSON array: `json_each` ends a text at its first zero.
        for start in range(0, len(message_ids), LARGEST_STATEMENT_ROWS):
            chunk = padded(message_ids[start : start + LARGEST_STATEMENT_ROWS])
            delete = self._statements.many("delete_message_ids", len(chunk))
            self._execute(delete, [entity_id, *chunk])

    # --- rows and lists into statements ---------------------------------------------------------

    def _run(self, name: str, *values: object) -> None:
        bound = [json.dumps(value) if isinstance(value, list) else value for value in values]
        self._execute(self._statements.one(name), bound)

    def _write_rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        for start in range(0, len(rows), LARGEST_STATEMENT_ROWS):
            chunk = rows[start : start + LARGEST_STATEMENT_ROWS]
            values = [-1 if value is None else value for row in chunk for value in row]
            self._write_values(name, values, len(chunk))

    def _write_values(self, name: str, values: list[object], count: int) -> None:
        size = statement_size(count)
        values += [0] * (len(values) // count * (size - count))
        values.append(count)
        self._execute(self._statements.many(name, size), values)


def unbroken_ranges(ordered: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the ranges of consecutive ids, as (first, last)."""
    breaks = [index for index in range(1, len(ordered)) if ordered[index] != ordered[index - 1] + 1]
    starts = [0, *breaks]
    ends = [*breaks, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)]
