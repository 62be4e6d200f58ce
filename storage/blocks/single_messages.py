"""Commits of messages that are sent and completed one by one: what `BlockBatch` does, for what most small commits are.

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
    from collections.abc import Sequence

    from broker.core.contract.records import Record
    from storage.blocks.block_format import EncodedBlock
    from storage.blocks.block_index import Block, BlockIndex

RECORDS_MAX = 4


class SingleMessages:
    """At most one message that is sent, and some that are completed, each of which was alone in its block."""

    __slots__ = ("_completed", "_index", "_sent", "changes", "freed_bytes", "sequence_numbers")

    def __init__(
        self, index: BlockIndex, sent: EncodedBlock | None, completed: dict[int, Block]
    ) -> None:
        self._index = index
        self._sent = sent
        self._completed = completed
        """The blocks that are deleted, by the id of their message."""
        self.freed_bytes = 0
        """The size of these blocks."""
        deleted: list[int] = []
        for block in completed.values():
            deleted.append(block.number)
            self.freed_bytes += block.size_bytes
        new = [(index.next_number, sent.entries, sent.payloads)] if sent is not None else []
        self.changes = BlockChanges(deleted, [], [], new, [], [])
        self.sequence_numbers: dict[tuple[int, int], int] = {}

    def apply(self) -> None:
        """Changes the index. Called after the commit has succeeded."""
        index = self._index
        for message_id in self._completed:
            ids = (message_id,)
            index.rows.remove(ids)
            index.payloads.remove(ids)
        if self._sent is not None:
            number = index.next_number
            index.add(number, self._sent, len(self._sent.payloads))
            index.next_number = number + 1
        for block in self._completed.values():
            index.drop(block)


def single_messages(index: BlockIndex, records: Sequence[Record]) -> SingleMessages | None:
    """Returns the changes of such a commit, or None if `BlockBatch` has to find them."""
    if not records or len(records) > RECORDS_MAX or needs_rewriting(index):
        return None
    sent: SentRows | None = None
    encoded: EncodedBlock | None = None
    completed: dict[int, Block] = {}
    for record in records:
        if type(record) is MessagesDeleted:
            if not _complete(index, record, completed):
                return None
        elif type(record) is MessagesStored and sent is None and _is_single(index, record):
            sent, payloads = record  # type: ignore[assignment]
            encoded = encode_sent_message(sent, payloads)  # type: ignore[arg-type]
        else:
            return None
    messages = SingleMessages(index, encoded, completed)
    if sent is not None:
        messages.sequence_numbers[sent.entity_id, sent.sub_queue] = sent.first_sequence_number
    return messages


def _is_single(index: BlockIndex, record: MessagesStored) -> bool:
    rows, payloads = record
    if type(rows) is not SentRows or type(payloads) is not SentPayloads:
        return False
    if len(rows.sizes) != 1 or len(payloads.bodies) != 1:
        return False
    size_bytes = len(payloads.bodies[0])
    if payloads.annotations is not None:
        size_bytes += len(payloads.annotations[0])
    is_new = rows.first_id == payloads.first_id > index.highest_id
    return is_new and size_bytes <= LARGE_PAYLOAD_BYTES


def _complete(index: BlockIndex, record: MessagesDeleted, completed: dict[int, Block]) -> bool:
    """Adds the block of a message, if the message is alone in it."""
    ids, payload_ids = record
    if len(ids) != 1 or len(payload_ids) != 1 or ids[0] != payload_ids[0] or ids[0] in completed:
        return False
    location = index.rows.get(ids[0])
    if location is None or index.payloads.get(ids[0]) != location:
        return False
    block = index.block(location[0])
    if block.row_count != 1 or block.payload_count != 1:
        return False
    completed[ids[0]] = block
    return True
