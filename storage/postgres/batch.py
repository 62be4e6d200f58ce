"""Turns a batch of records into calls of prepared statements, which are sent together.

`storage/record_batch.py` turns the records into rows and blocks. Rows of one kind are one call, with an array for each
column. Blocks and large bodies have a call each: an array of them would be copied once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.record_batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from storage.blocks.block_batch import BlockChanges
    from storage.blocks.block_index import BlockIndex
    from storage.postgres.session import Call, Prepared

    ReadBlocks = Callable[[Sequence[int]], Iterable[tuple[int, bytes, bytes]]]

_KEY_LENGTHS = {
    "set_dead_slots": 1,
    "raise_sequence_numbers": 2,
    "set_session_states": 2,
    "remember_message_ids": 2,
    "set_entities": 1,
    "set_namespaces": 1,
    "set_rules": 2,
}
"""How many of the first columns are the key. A statement may not set a row twice."""


class PostgresBatch(RecordBatch):
    """Collects the records of one commit as calls. Used once."""

    def __init__(
        self, index: BlockIndex, statements: Mapping[str, Prepared], read_blocks: ReadBlocks
    ) -> None:
        super().__init__(index)
        self._statements = statements
        self._stored_blocks = read_blocks
        self.calls: list[Call] = []
        """What has to be run, in this order."""

    def _read_blocks(self, numbers: Sequence[int]) -> Iterable[tuple[int, bytes, bytes]]:
        return self._stored_blocks(numbers)

    def _write_blocks(self, changes: BlockChanges) -> None:
        for name, ids in (
            ("delete_blocks", changes.deleted_blocks),
            ("delete_dead_slots", changes.deleted_dead),
            ("delete_payloads", changes.deleted_payloads),
        ):
            if ids:
                self._run(name, ids)
        for block in changes.blocks:
            self._run("insert_block", *block)
        for payload in changes.payloads:
            self._run("insert_payload", *payload)
        self._write_rows("set_dead_slots", changes.dead)

    def _write_rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        if len(rows) > 1:
            key_length = _KEY_LENGTHS[name]
            rows = list({row[:key_length]: row for row in rows}.values())
        self._run(name, *zip(*rows, strict=True))

    def _delete_seen_ids(self, entity_id: int, message_ids: Sequence[str]) -> None:
        self._run("delete_message_ids", entity_id, list(message_ids))

    def _run(self, name: str, *values: object) -> None:
        self.calls.append(self._statements[name].call(*values))
