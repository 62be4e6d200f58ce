"""Writes a batch of records to SQLite with few statements, each for many rows.

Orders the statements within a transaction, which `store.py` begins and commits. The result is the same as if the records
were written one by one: records of the same rows keep their order, others are combined.

Few statements, because the driver releases the interpreter lock for each and has to get it back from a busy event loop,
and because it binds integers and byte arrays much faster than other types.
"""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    EntityDeleted,
    EntityStored,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessageRow,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    PayloadRow,
    RulesDeleted,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any

    from broker.core.contract.records import Record
    from storage.sqlite.statements import Statements

LARGEST_STATEMENT_ROWS = 512
LARGEST_STATEMENT_BYTES = 1 << 20
"""Limit of the bodies in one statement: they are in memory twice while it runs."""
MOST_RANGES = 4
"""Limit of ranges. Deleting a range costs half of deleting its ids, but needs a statement of its own."""

_ID = itemgetter(0)


def statement_size(count: int) -> int:
    """Returns the smallest power of two that is enough for this many rows: the size of a statement."""
    return 1 << (count - 1).bit_length()


def padded(ids: Sequence[int]) -> list[int]:
    """Returns the ids, padded to the size of a statement by repeating one, which changes nothing."""
    return [*ids, *[ids[-1]] * (statement_size(len(ids)) - len(ids))]


class SqlBatch:
    """Collects the records of one commit and writes them. Used once."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._execute = connection.execute
        self._statements = statements
        self._stored: list[MessageRow] = []
        self._payloads: list[PayloadRow] = []
        self._updated: list[MessageRow] = []
        self._deleted_ids: set[int] = set()
        self._deleted_payload_ids: set[int] = set()
        self._sequence_numbers: dict[tuple[int, int], int] = {}
        self._takers: dict[type[Record], Callable[[Any], None]] = {
            MessagesStored: self._store,
            MessagesUpdated: self._update,
            MessagesDeleted: self._delete,
            SessionStateSet: self._set_session_states,
            MessageIdsSeen: self._remember_message_ids,
            MessageIdsForgotten: self._forget_message_ids,
            EntityStored: self._store_entities,
            EntityDeleted: self._delete_entities,
            RulesStored: self._store_rules,
            RulesDeleted: self._delete_rules,
            SequenceNumbersSkipped: self._skip_sequence_numbers,
            NamespaceStored: self._store_namespaces,
            NamespaceDeleted: self._delete_namespaces,
        }

    def write(self, records: Sequence[Record]) -> None:
        """Writes the records to the tables."""
        for kind, group in groupby(records, type):
            self._takers[kind](group)
        self._write_messages()
        self._write_sequence_numbers()

    # --- messages: collected, because a batch alternates between storing and deleting ----------

    def _store(self, records: Iterator[MessagesStored]) -> None:
        for record in records:
            self._keep_order(record.rows, self._deleted_ids)
            self._keep_order(record.payloads, self._deleted_payload_ids)
            self._stored += record.rows
            self._payloads += record.payloads

    def _update(self, records: Iterator[MessagesUpdated]) -> None:
        for record in records:
            self._keep_order(record.rows, self._deleted_ids)
            self._updated += record.rows

    def _delete(self, records: Iterator[MessagesDeleted]) -> None:
        for record in records:
            self._deleted_ids.update(record.ids)
            self._deleted_payload_ids.update(record.payload_ids)

    def _keep_order(
        self, rows: Sequence[MessageRow] | Sequence[PayloadRow], deleted: set[int]
    ) -> None:
        # Deletes are written last. A row that is stored again after its delete must not be deleted then.
        if deleted and not deleted.isdisjoint(map(_ID, rows)):
            self._write_messages()

    def _write_messages(self) -> None:
        stored, payloads, updated = self._stored, self._payloads, self._updated
        deleted_ids, deleted_payload_ids = self._deleted_ids, self._deleted_payload_ids
        self._note_sequence_numbers(stored)
        self._note_sequence_numbers(updated)
        # A message that is stored and deleted in one batch, as in receive-and-delete, is not written.
        if not deleted_ids.isdisjoint(map(_ID, stored)):
            stored = [row for row in stored if row[0] not in deleted_ids]
        if not deleted_payload_ids.isdisjoint(map(_ID, payloads)):
            payloads = [row for row in payloads if row[0] not in deleted_payload_ids]
        self._write_rows("insert_messages", stored)
        self._write_payloads(payloads)
        self._write_rows("replace_messages", updated)
        self._delete_ids("delete_message_range", "delete_messages", deleted_ids)
        self._delete_ids("delete_payload_range", "delete_payloads", deleted_payload_ids)
        self._stored, self._payloads, self._updated = [], [], []
        self._deleted_ids, self._deleted_payload_ids = set(), set()

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
        self._write_messages()
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


def unbroken_ranges(ordered: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the ranges of consecutive ids, as (first, last)."""
    breaks = [index for index in range(1, len(ordered)) if ordered[index] != ordered[index - 1] + 1]
    starts = [0, *breaks]
    ends = [*breaks, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)]
