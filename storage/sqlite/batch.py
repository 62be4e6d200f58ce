"""Writes a batch of records to SQLite with few statements.

Orders the statements within a transaction, which `store.py` begins and commits. The result is the same as if the records
were written one by one. Messages and bodies are written as blocks (`storage/blocks`), other records as rows.

Few statements, because the driver releases the interpreter lock for each and has to get it back from a busy event loop,
and because it binds integers and byte arrays much faster than other types.
"""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

from broker.core.contract.records import (
    EntityDeleted,
    EntityStored,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    RulesDeleted,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentRows
from storage.blocks.block_batch import BlockBatch

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any

    from broker.core.contract.records import MessageRow, PayloadRow, Record
    from storage.blocks.block_index import BlockIndex
    from storage.sqlite.statements import Statements

LARGEST_STATEMENT_ROWS = 512
LARGEST_STATEMENT_BYTES = 1 << 20
"""Limit of the bodies in one statement: they are in memory twice while it runs."""
COPIED_MAX_BYTES = 64 << 10
MOST_RANGES = 4
"""Limit of ranges. Deleting a range costs half of deleting its ids, but needs a statement of its own."""
_QUEUE = itemgetter(1, 2)
_SEQUENCE_NUMBER = itemgetter(3)


def statement_size(count: int) -> int:
    """Returns the smallest power of two that is enough for this many rows: the size of a statement."""
    return 1 << (count - 1).bit_length()


def padded(ids: Sequence[int]) -> list[int]:
    """Returns the ids, padded to the size of a statement by repeating one, which changes nothing."""
    return [*ids, *[ids[-1]] * (statement_size(len(ids)) - len(ids))]


class SqlBatch:
    """Collects the records of one commit and writes them. Used once."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        statements: Statements,
        index: BlockIndex,
        *,
        may_rewrite: bool = True,
    ) -> None:
        self._execute = connection.execute
        self._statements = statements
        self._blocks = BlockBatch(index)
        self._may_rewrite = may_rewrite
        """Whether there is space for blocks that are written again."""
        self._sequence_numbers: dict[tuple[int, int], int] = {}

    def write(self, records: Sequence[Record]) -> None:
        """Writes the records to the tables."""
        for kind, group in groupby(records, type):
            self._TAKERS[kind](self, group)
        self._write_blocks()
        self._write_sequence_numbers()

    def apply(self) -> None:
        """Changes the index of the blocks. Called after the transaction was committed."""
        self._blocks.apply()

    # --- messages ------------------------------------------------------------------------------

    def _store(self, records: Iterator[MessagesStored]) -> None:
        for record in records:
            self._blocks.store(record)
            self._note_sequence_numbers(record.rows)

    def _update(self, records: Iterator[MessagesUpdated]) -> None:
        for record in records:
            self._blocks.update(record)
            self._note_sequence_numbers(record.rows)

    def _delete(self, records: Iterator[MessagesDeleted]) -> None:
        for record in records:
            self._blocks.delete(record)

    def _write_blocks(self) -> None:
        blocks, execute, one = self._blocks, self._execute, self._statements.one
        blocks.find_dead()
        if self._may_rewrite:
            for number in blocks.blocks_to_rewrite():
                blocks.rewrite(*execute(one("block"), (number,)).fetchone())
        changes = blocks.changes()
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
        for start in range(0, len(payloads), LARGEST_STATEMENT_ROWS):
            self._write_payload_chunk(payloads[start : start + LARGEST_STATEMENT_ROWS])

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

    def _note_sequence_numbers(self, rows: Sequence[MessageRow]) -> None:
        highest = self._sequence_numbers
        if type(rows) is SentRows:
            queue = rows.entity_id, rows.sub_queue
            highest[queue] = max(highest.get(queue, 0), rows.last_sequence_number)
            return
        queues = set(map(_QUEUE, rows))
        if len(queues) == 1:
            (queue,) = queues
            highest[queue] = max(highest.get(queue, 0), *map(_SEQUENCE_NUMBER, rows))
            return
        for row in rows:
            queue = row[1], row[2]
            if row[3] > highest.get(queue, 0):
                highest[queue] = row[3]

    def _skip_sequence_numbers(self, records: Iterator[SequenceNumbersSkipped]) -> None:
        highest = self._sequence_numbers
        for entity_id, sub_queue, number in (row for record in records for row in record.rows):
            queue = entity_id, sub_queue
            highest[queue] = max(number, highest.get(queue, 0))

    def _write_sequence_numbers(self) -> None:
        rows = [(*queue, number) for queue, number in self._sequence_numbers.items()]
        self._write_rows("raise_sequence_numbers", rows)
        self._sequence_numbers.clear()

    # --- other records: rare, and in tables of their own ----------------------------------------------

    def _set_session_states(self, records: Iterator[SessionStateSet]) -> None:
        last = {(record.entity_id, record.session_id): record for record in records}
        for session, record in last.items():
            if record.state is None:
                self._execute(self._statements.one("clear_session_state"), session)
            else:
                row = (*session, record.state, record.updated_time_ms)
                self._write_rows("set_session_states", [row])

    def _remember_message_ids(self, records: Iterator[MessageIdsSeen]) -> None:
        rows = [
            (record.entity_id, message_id, until_ms)
            for record in records
            for message_id, until_ms in record.seen
        ]
        self._write_rows("remember_message_ids", rows)

    def _forget_message_ids(self, records: Iterator[MessageIdsForgotten]) -> None:
        for record in records:
            self._execute(
                self._statements.one("forget_message_ids"), (record.entity_id, record.until_ms)
            )

    def _store_entities(self, records: Iterator[EntityStored]) -> None:
        rows = [
            (
                record.entity_id,
                record.namespace,
                record.kind,
                record.path,
                record.definition,
                record.created_time_ms,
                record.updated_time_ms,
            )
            for record in records
        ]
        self._write_rows("set_entities", rows)

    def _store_namespaces(self, records: Iterator[NamespaceStored]) -> None:
        last = {record.name: record for record in records}
        self._write_rows("set_namespaces", list(last.values()))

    def _delete_namespaces(self, records: Iterator[NamespaceDeleted]) -> None:
        names = json.dumps([record.name for record in records])
        self._execute(self._statements.one("delete_namespaces"), (names,))

    def _store_rules(self, records: Iterator[RulesStored]) -> None:
        self._write_rows("set_rules", [row for record in records for row in record.rows])

    def _delete_rules(self, records: Iterator[RulesDeleted]) -> None:
        for record in records:
            numbers = json.dumps(list(record.numbers))
            self._execute(self._statements.one("delete_rules"), (record.entity_id, numbers))

    def _delete_entities(self, records: Iterator[EntityDeleted]) -> None:
        # Messages are deleted by separate records, before or after this one, because there may be many.
        self._write_sequence_numbers()
        entity_ids = {"entity_ids": json.dumps([record.entity_id for record in records])}
        statements = self._statements
        self._execute(statements.one("delete_sequence_numbers_of_entities"), entity_ids)
        self._execute(statements.one("delete_session_states_of_entities"), entity_ids)
        self._execute(statements.one("delete_message_ids_of_entities"), entity_ids)
        self._execute(statements.one("delete_rules_of_entities"), entity_ids)
        self._execute(statements.one("delete_entities"), entity_ids)

    # --- rows into statements ------------------------------------------------------------------

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

    _TAKERS: ClassVar[dict[type[Record], Callable[[SqlBatch, Any], None]]] = {
        MessagesStored: _store,
        MessagesUpdated: _update,
        MessagesDeleted: _delete,
        SessionStateSet: _set_session_states,
        MessageIdsSeen: _remember_message_ids,
        MessageIdsForgotten: _forget_message_ids,
        EntityStored: _store_entities,
        EntityDeleted: _delete_entities,
        RulesStored: _store_rules,
        RulesDeleted: _delete_rules,
        SequenceNumbersSkipped: _skip_sequence_numbers,
        NamespaceStored: _store_namespaces,
        NamespaceDeleted: _delete_namespaces,
    }
    """What takes each kind of record. One table for all batches: building it takes as long as a small batch."""


def unbroken_ranges(ordered: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the ranges of consecutive ids, as (first, last)."""
    breaks = [index for index in range(1, len(ordered)) if ordered[index] != ordered[index - 1] + 1]
    starts = [0, *breaks]
    ends = [*breaks, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)]
