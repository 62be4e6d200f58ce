"""Turns the records of one commit into changes of blocks.

The result is the same as if the records were written one by one. The index is not changed before the commit has
succeeded: a commit that fails leaves no trace.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.records import PayloadRow
from broker.core.contract.sent_rows import columns_of
from storage.blocks.block_format import (
    BLOCK_MAX_BYTES,
    BLOCK_MAX_ROWS,
    LARGE_PAYLOAD_BYTES,
    EncodedBlock,
    StoredBlock,
    encode_block,
    encode_sent_block,
)
from storage.blocks.compaction import blocks_to_rewrite, needs_rewriting
from storage.contract import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.records import (
        MessageRow,
        MessagesDeleted,
        MessagesStored,
        MessagesUpdated,
    )
    from broker.core.contract.sent_rows import SentPayloads
    from storage.blocks.block_format import SentMessages
    from storage.blocks.block_index import Block, BlockIndex
    from storage.blocks.locations import Locations

_ID = itemgetter(0)
_BODY = itemgetter(1)
_ANNOTATIONS = itemgetter(2)


class BlockChanges(NamedTuple):
    """What a store has to write. Deletions come first."""

    deleted_blocks: list[int]
    """Numbers of blocks."""
    deleted_dead: list[int]
    """Numbers of those of them whose dead slots are stored."""
    deleted_payloads: list[int]
    """Ids of bodies that may be outside of blocks."""
    blocks: list[tuple[int, bytes, bytes]]
    """Number and both byte strings of new blocks."""
    payloads: list[PayloadRow]
    """Large bodies, which are stored outside of blocks."""
    dead: list[tuple[int, bytes, bytes]]
    """Numbers of blocks, and the bits of all their dead rows and bodies."""


class BlockBatch:
    """The messages and bodies of one commit. Used once."""

    def __init__(self, index: BlockIndex) -> None:
        self._index = index
        self._highest_id = index.highest_id
        """No id here or in the index is higher."""
        self._sent: list[SentMessages] = []
        """Messages that were sent together, with rising ids. No other record of the batch refers to them."""
        self._rows: dict[int, MessageRow] = {}
        """Other rows to write, by id."""
        self._payloads: dict[int, PayloadRow] = {}
        self._dead_ids: list[int] = []
        """Ids whose stored row is deleted or replaced. An id may be here although nothing was stored, or twice."""
        self._dead_payload_ids: list[int] = []
        self._dead: dict[Block, tuple[int, int]] = {}
        """The slots that die, as bits."""
        self._missing_payload_ids: list[int] = []
        """Bodies to delete that are in no block."""
        self._gone: list[Block] = []
        """Blocks that are deleted: nothing in them is alive, or they are written again."""
        self._rewritten: list[Block] = []
        self._rewritten_rows: list[MessageRow] = []
        self._rewritten_payloads: list[PayloadRow] = []
        self._new: list[tuple[int, EncodedBlock]] = []
        self._first_rewritten = 0
        """The number of the first of these that has what was written again."""

    # --- records, in their order ---------------------------------------------------------------

    def store(self, record: MessagesStored) -> None:
        """Adds new messages and bodies. Raises `StorageError` if one is stored already."""
        columns = columns_of(record)
        if columns is not None:
            sent, bodies = columns
            if (
                sent.first_id > self._highest_id
                and _longest_sent_bytes(bodies) <= LARGE_PAYLOAD_BYTES
            ):
                self._sent.append((sent, bodies, 0, len(sent)))
                self._highest_id = sent.first_id + len(sent) - 1
                return
        self._take_sent_apart()
        rows, payloads = record
        if rows:
            self._add_new(self._rows, rows, self._index.rows, self._dead_ids)
        if payloads:
            self._add_new(self._payloads, payloads, self._index.payloads, self._dead_payload_ids)

    def update(self, record: MessagesUpdated) -> None:
        """Replaces rows."""
        rows = dict(zip(map(_ID, record.rows), record.rows, strict=True))
        if self._sent and max(rows, default=0) >= self._sent[0][0].first_id:
            self._take_sent_apart()
        self._dead_ids += [number for number in rows if number not in self._rows]
        self._rows.update(rows)
        self._highest_id = max(self._highest_id, max(rows, default=0))

    def delete(self, record: MessagesDeleted) -> None:
        """Deletes messages and bodies."""
        ids, payload_ids = record
        if self._sent:
            first_id = self._sent[0][0].first_id
            if max(ids, default=0) >= first_id or max(payload_ids, default=0) >= first_id:
                self._take_sent_apart()
        _delete(self._rows, ids, self._dead_ids)
        _delete(self._payloads, payload_ids, self._dead_payload_ids)

    def _take_sent_apart(self) -> None:
        """Other records may refer to single messages of those that were sent together."""
        for rows, payloads, _, _ in self._sent:
            self._rows.update(zip(rows.ids, rows, strict=True))
            self._payloads.update(zip(payloads.ids, payloads, strict=True))
        self._sent.clear()

    def _add_new(
        self,
        pending: dict[int, MessageRow] | dict[int, PayloadRow],
        rows: Sequence[MessageRow] | Sequence[PayloadRow],
        stored: Locations,
        dead_ids: Sequence[int],
    ) -> None:
        ids = list(map(_ID, rows))
        count = len(pending) + len(ids)
        pending.update(zip(ids, rows, strict=True))  # type: ignore[arg-type]
        repeated = len(pending) < count
        if not repeated and min(ids) <= self._index.highest_id:
            alive = [number for number in ids if stored.get(number) is not None]
            repeated = bool(alive) and not set(dead_ids).issuperset(alive)
        if repeated:
            raise StorageError("a message or a body was to be stored twice")
        self._highest_id = max(self._highest_id, *ids)

    # --- changes -------------------------------------------------------------------------------

    def find_dead(self) -> None:
        """Finds the slots that die. Called after the last record."""
        if not self._dead_ids and not self._dead_payload_ids:
            return
        same_ids = self._dead_payload_ids == self._dead_ids
        self._dead_ids = _sorted_once(self._dead_ids)
        self._dead_payload_ids = (
            self._dead_ids if same_ids else _sorted_once(self._dead_payload_ids)
        )
        index = self._index
        rows, missing_ids = index.rows.find(self._dead_ids)
        if same_ids and not missing_ids:
            found = [(index.block(handle), bits) for handle, bits in rows.items()]
            if all(one.same_ids and not bits & one.dead_payloads for one, bits in found):
                self._dead = {block: (bits, bits) for block, bits in found}
                return
        payloads, self._missing_payload_ids = index.payloads.find(self._dead_payload_ids)
        for handle in {**rows, **payloads}:
            self._dead[index.block(handle)] = rows.get(handle, 0), payloads.get(handle, 0)

    def blocks_to_rewrite(self) -> list[int]:
        """Returns the numbers of the blocks that are written again. The caller reads them and calls `rewrite`."""
        if not needs_rewriting(self._index):
            return []
        dying = {block for block in self._dead if self._dies(block)}
        left_bytes = sum(
            [
                block.size_bytes
                * max(rows.bit_count(), payloads.bit_count())
                // max(block.row_count, block.payload_count)
                for block, (rows, payloads) in self._dead.items()
                if block not in dying
            ]
        )
        self._rewritten = blocks_to_rewrite(self._index, dying, left_bytes)
        return [block.number for block in self._rewritten]

    def rewrite(self, number: int, entries: bytes, payloads: bytes) -> None:
        """Takes what is alive in a block that is written again."""
        stored = StoredBlock(entries)
        dead_rows, dead_payloads = self._dead_slots(self._index.by_number[number])
        self._rewritten_rows += stored.live_rows(dead_rows)
        self._rewritten_payloads += [
            PayloadRow(*one) for one in stored.live_payloads(payloads, dead_payloads)
        ]

    def _dead_slots(self, block: Block) -> tuple[int, int]:
        """Returns all dead rows and bodies of a block, as bits: of earlier commits and of this one."""
        rows, payloads = self._dead.get(block, (0, 0))
        return rows | block.dead_rows, payloads | block.dead_payloads

    def _dies(self, block: Block) -> bool:
        rows, payloads = self._dead_slots(block)
        return rows.bit_count() == block.row_count and payloads.bit_count() == block.payload_count

    def changes(self) -> BlockChanges:
        """Returns what has to be written."""
        large: list[PayloadRow] = []
        new: list[EncodedBlock] = []
        if self._sent and (self._rows or self._payloads):
            self._take_sent_apart()
        if self._sent:
            new = [encode_sent_block(part) for part in _cut_sent(self._sent)]
        elif self._rows or self._payloads:
            payloads = list(self._payloads.values())
            if payloads and _longest_bytes(payloads) > LARGE_PAYLOAD_BYTES:
                large, payloads = _divide_by_size(payloads)
            new = [encode_block(*part) for part in _cut(list(self._rows.values()), payloads)]
        self._first_rewritten = self._index.next_number + len(new)
        if self._rewritten:
            self._rewritten_rows.sort(key=_ID)
            self._rewritten_payloads.sort(key=_ID)
            parts = _cut(self._rewritten_rows, self._rewritten_payloads)
            new += [encode_block(*part) for part in parts]
        self._new = list(enumerate(new, self._index.next_number))
        gone = dict.fromkeys(self._rewritten)
        dead: list[tuple[int, bytes, bytes]] = []
        for block in self._dead:
            if block in gone:
                continue
            if self._dies(block):
                gone[block] = None
                continue
            rows_bits, payload_bits = self._dead_slots(block)
            dead.append(
                (
                    block.number,
                    rows_bits.to_bytes((block.row_count + 7) // 8, "little"),
                    payload_bits.to_bytes((block.payload_count + 7) // 8, "little"),
                )
            )
        self._gone = list(gone)
        blocks = [(number, block.entries, block.payloads) for number, block in self._new]
        deleted_dead = [one.number for one in gone if one.dead_rows or one.dead_payloads]
        deleted_blocks = [one.number for one in gone]
        return BlockChanges(
            deleted_blocks, deleted_dead, self._missing_payload_ids, blocks, large, dead
        )

    def apply(self) -> None:
        """Changes the index. Called after the commit has succeeded."""
        index = self._index
        if self._dead:
            index.rows.remove(self._dead_ids)
            index.payloads.remove(self._dead_payload_ids)
        for number, encoded in self._new:
            block = index.add(number, encoded, len(encoded.payloads))
            index.next_number = number + 1
            if number >= self._first_rewritten and block in index.small:
                # The next blocks are joined to it, so that the messages of a queue stay together.
                index.small.move_to_end(block, last=False)
        for block, (rows, payloads) in self._dead.items():
            index.kill(block, rows, payloads)
        for block in self._gone:
            index.drop(block)


def _delete(
    pending: dict[int, MessageRow] | dict[int, PayloadRow], ids: Sequence[int], dead: list[int]
) -> None:
    if pending and not pending.keys().isdisjoint(ids):
        dead += [number for number in ids if pending.pop(number, None) is None]
    else:
        dead += ids


def _sorted_once(ids: list[int]) -> list[int]:
    if len(ids) < 2:
        return ids
    ids.sort()
    if ids[-1] - ids[0] == len(ids) - 1 and ids == list(range(ids[0], ids[-1] + 1)):
        return ids
    return sorted(set(ids))


def _longest_sent_bytes(payloads: SentPayloads) -> int:
    """Returns a size that no body with its annotations exceeds."""
    longest = max(map(len, payloads.bodies), default=0)
    if payloads.annotations is None:
        return longest
    return longest + max(map(len, payloads.annotations), default=0)


def _cut_sent(sent: list[SentMessages]) -> list[list[SentMessages]]:
    """Divides messages that were sent together into blocks."""
    count = sum([stop - start for _, _, start, stop in sent])
    longest = max([_longest_sent_bytes(payloads) for _, payloads, _, _ in sent])
    if count <= BLOCK_MAX_ROWS and longest * count <= BLOCK_MAX_BYTES:
        return [sent]
    blocks: list[list[SentMessages]] = [[]]
    rows_left, bytes_left = BLOCK_MAX_ROWS, BLOCK_MAX_BYTES
    for rows, payloads, start, stop in sent:
        longest = max(1, _longest_sent_bytes(payloads))
        while start < stop:
            fitting = min(rows_left, bytes_left // longest)
            if not fitting:
                blocks.append([])
                rows_left, bytes_left = BLOCK_MAX_ROWS, BLOCK_MAX_BYTES
                fitting = max(1, min(rows_left, bytes_left // longest))
            end = min(stop, start + fitting)
            blocks[-1].append((rows, payloads, start, end))
            rows_left -= end - start
            bytes_left -= longest * (end - start)
            start = end
    return [block for block in blocks if block]


def _longest_bytes(payloads: Sequence[PayloadRow]) -> int:
    """Returns a size that no body with its annotations exceeds."""
    return max(map(len, map(_BODY, payloads))) + max(map(len, map(_ANNOTATIONS, payloads)))


def _divide_by_size(
    payloads: Iterable[PayloadRow],
) -> tuple[list[PayloadRow], list[PayloadRow]]:
    """Returns large bodies, and the others."""
    large: list[PayloadRow] = []
    others: list[PayloadRow] = []
    for payload in payloads:
        size = len(payload[1]) + len(payload[2])
        (large if size > LARGE_PAYLOAD_BYTES else others).append(payload)
    return large, others


Part = tuple["Sequence[MessageRow]", "Sequence[PayloadRow]"]


def _cut(rows: Sequence[MessageRow], payloads: Sequence[PayloadRow]) -> list[Part]:
    """Divides rows and bodies into blocks. If each row comes with its body, they stay together."""
    count = max(len(rows), len(payloads))
    if not count:
        return []
    if count <= BLOCK_MAX_ROWS and (
        not payloads or _longest_bytes(payloads) * len(payloads) <= BLOCK_MAX_BYTES
    ):
        return [(rows, payloads)]
    bounds = list(_payload_bounds(payloads))
    if len(rows) == len(payloads):
        return [(rows[start:stop], payloads[start:stop]) for start, stop in bounds]
    return [
        *(
            (rows[start : start + BLOCK_MAX_ROWS], ())
            for start in range(0, len(rows), BLOCK_MAX_ROWS)
        ),
        *(((), payloads[start:stop]) for start, stop in bounds),
    ]


def _payload_bounds(payloads: Sequence[PayloadRow]) -> Iterator[tuple[int, int]]:
    start = size_bytes = 0
    for position, payload in enumerate(payloads):
        size = len(payload[1]) + len(payload[2])
        if position > start and (
            size_bytes + size > BLOCK_MAX_BYTES or position - start == BLOCK_MAX_ROWS
        ):
            yield start, position
            start, size_bytes = position, 0
        size_bytes += size
    if payloads:
        yield start, len(payloads)
