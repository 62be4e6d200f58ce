"""Turns the records of one commit into rows and blocks, for stores with SQL tables.

The result is the same as if the records were written one by one. Messages and bodies become blocks (`storage/blocks`),
other records rows. A store derives its batch from `RecordBatch` and writes them in its own way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

from broker.core.contract.records import (
    EntityDeleted,
    EntityStored,
    MessageIdsDeleted,
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
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from broker.core.contract.records import MessageRow, Record
    from storage.blocks.block_batch import BlockChanges
    from storage.blocks.block_index import BlockIndex

_QUEUE = itemgetter(1, 2)
_SEQUENCE_NUMBER = itemgetter(3)


class RecordBatch(ABC):
    """Collects the records of one commit and writes them. Used once."""

    def __init__(self, index: BlockIndex, *, may_rewrite: bool = True) -> None:
        self._blocks = BlockBatch(index)
        self._may_rewrite = may_rewrite
        """Whether there is space for blocks that are written again."""
        self._sequence_numbers: dict[tuple[int, int], int] = {}

    def write(self, records: Sequence[Record]) -> None:
        """Writes the records to the tables."""
        for kind, group in groupby(records, type):
            self._TAKERS[kind](self, group)
        self._blocks.find_dead()
        if self._may_rewrite:
            for block in self._read_blocks(self._blocks.blocks_to_rewrite()):
                self._blocks.rewrite(*block)
        self._write_blocks(self._blocks.changes())
        self._write_sequence_numbers()

    def apply(self) -> None:
        """Changes the index of the blocks. Called after the transaction was committed."""
        self._blocks.apply()

    # --- what each store does in its own way ----------------------------------------------------

    @abstractmethod
    def _read_blocks(self, numbers: Sequence[int]) -> Iterable[tuple[int, bytes, bytes]]:
        """Returns number and both byte strings of blocks."""

    @abstractmethod
    def _write_blocks(self, changes: BlockChanges) -> None:
        """Writes the changes of blocks, dead slots and large bodies."""

    @abstractmethod
    def _write_rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Runs a statement for rows. Of rows with the same key, the last one counts."""

    @abstractmethod
    def _run(self, name: str, *values: object) -> None:
        """Runs a statement once. A value may be a list of numbers or texts."""

    @abstractmethod
    def _delete_seen_ids(self, entity_id: int, message_ids: Sequence[str]) -> None:
        """Deletes message ids that an entity has seen."""

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
                self._run("clear_session_state", *session)
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
            self._run("forget_message_ids", record.entity_id, record.until_ms)

    def _delete_message_ids(self, records: Iterator[MessageIdsDeleted]) -> None:
        for record in records:
            if record.message_ids:
                self._delete_seen_ids(record.entity_id, record.message_ids)

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
        self._run("delete_namespaces", [record.name for record in records])

    def _store_rules(self, records: Iterator[RulesStored]) -> None:
        self._write_rows("set_rules", [row for record in records for row in record.rows])

    def _delete_rules(self, records: Iterator[RulesDeleted]) -> None:
        for record in records:
            self._run("delete_rules", record.entity_id, list(record.numbers))

    def _delete_entities(self, records: Iterator[EntityDeleted]) -> None:
        # Messages and seen message ids are deleted by other records, before or after this one, because there may be many.
        self._write_sequence_numbers()
        entity_ids = [record.entity_id for record in records]
        self._run("delete_sequence_numbers_of_entities", entity_ids)
        self._run("delete_session_states_of_entities", entity_ids)
        self._run("delete_rules_of_entities", entity_ids)
        self._run("delete_entities", entity_ids)

    _TAKERS: ClassVar[dict[type[Record], Callable[[RecordBatch, Any], None]]] = {
        MessagesStored: _store,
        MessagesUpdated: _update,
        MessagesDeleted: _delete,
        SessionStateSet: _set_session_states,
        MessageIdsSeen: _remember_message_ids,
        MessageIdsForgotten: _forget_message_ids,
        MessageIdsDeleted: _delete_message_ids,
        EntityStored: _store_entities,
        EntityDeleted: _delete_entities,
        RulesStored: _store_rules,
        RulesDeleted: _delete_rules,
        SequenceNumbersSkipped: _skip_sequence_numbers,
        NamespaceStored: _store_namespaces,
        NamespaceDeleted: _delete_namespaces,
    }
    """What takes each kind of record. One table for all batches: building it takes as long as a small batch."""
