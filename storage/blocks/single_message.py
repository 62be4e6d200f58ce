"""The commit of one send, or of one completed message: what `BlockBatch` does, for what most small commits are.

A client that sends or completes one message at a time waits for each commit, so these are worth a shorter way. All other
commits, and those after which blocks have to be written again, are left to `BlockBatch`. Tests compare the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import MessagesDeleted, MessagesStored
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks.block_batch import BlockChanges
from storage.blocks.block_format import LARGE_PAYLOAD_BYTES, encode_sent_message
from storage.blocks.compaction import needs_rewriting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.records import Record
    from storage.blocks.block_format import EncodedBlock
    from storage.blocks.block_index import Block, BlockIndex


class SentBlock:
    """The messages of one send, as a new block."""

    __slots__ = ("_block", "_index", "changes", "freed_bytes", "sequence_numbers")

    def __init__(self, index: BlockIndex, rows: SentRows, block: EncodedBlock) -> None:
        self._index = index
        self._block = block
        self.changes = BlockChanges(
            [], [], [], [(index.next_number, block.entries, block.payloads)], [], []
        )
        self.sequence_numbers: Mapping[tuple[int, int], int] = {
            (rows.entity_id, rows.sub_queue): rows.last_sequence_number
        }
        self.freed_bytes = 0

    def apply(self) -> None:
        """Changes the index. Called after the commit has succeeded."""
        index = self._index
        number = index.next_number
        index.add(number, self._block, len(self._block.payloads))
        index.next_number = number + 1


class CompletedBlock:
    """A completed message that was alone in its block."""

    __slots__ = ("_block", "_index", "_message_id", "changes", "freed_bytes", "sequence_numbers")

    def __init__(self, index: BlockIndex, block: Block, message_id: int) -> None:
        self._index = index
        self._block = block
        self._message_id = message_id
        self.changes = BlockChanges([block.number], [], [], [], [], [])
        self.sequence_numbers: Mapping[tuple[int, int], int] = {}
        self.freed_bytes = block.size_bytes

    def apply(self) -> None:
        """Changes the index. Called after the commit has succeeded."""
        index = self._index
        ids = (self._message_id,)
        index.rows.remove(ids)
        index.payloads.remove(ids)
        index.drop(self._block)


def single_message(
    index: BlockIndex, records: Sequence[Record]
) -> SentBlock | CompletedBlock | None:
    """Returns the changes of one send or one completion, or None if `BlockBatch` has to find them."""
    if len(records) != 1 or needs_rewriting(index):
        return None
    record = records[0]
    if type(record) is MessagesStored:
        return _sent(index, record)
    if type(record) is MessagesDeleted:
        return _completed(index, record)
    return None


def _sent(index: BlockIndex, record: MessagesStored) -> SentBlock | None:
    rows, payloads = record
    if type(rows) is not SentRows or type(payloads) is not SentPayloads:
        return None
    if len(rows.sizes) != 1 or len(payloads.bodies) != 1:
        return None
    size_bytes = len(payloads.bodies[0])
    if payloads.annotations is not None:
        size_bytes += len(payloads.annotations[0])
    if (
        size_bytes > LARGE_PAYLOAD_BYTES
        or not rows.first_id == payloads.first_id > index.highest_id
    ):
        return None
    return SentBlock(index, rows, encode_sent_message(rows, payloads))


def _completed(index: BlockIndex, record: MessagesDeleted) -> CompletedBlock | None:
    ids, payload_ids = record
    if len(ids) != 1 or len(payload_ids) != 1 or ids[0] != payload_ids[0]:
        return None
    location = index.rows.get(ids[0])
    if location is None or index.payloads.get(ids[0]) != location:
        return None
    block = index.block(location[0])
    if block.row_count != 1 or block.payload_count != 1:
        return None
    return CompletedBlock(index, block, ids[0])
