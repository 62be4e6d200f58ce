"""The blocks of a store: where each live message and body is, and how much of each block is alive.

Kept in memory, and built from the stored blocks at start. It is changed only after a commit has succeeded.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import compress
from typing import TYPE_CHECKING

from broker.core.messages.packed_columns import flags_of, unset_positions
from storage.blocks.block_format import EncodedBlock, StoredBlock
from storage.blocks.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.blocks.block_format import Sizes

SMALL_BYTES = 32 << 10
SMALL_ROWS = 256
"""A block in which less than both is alive is small."""

_FEW_SLOTS = 16
"""Up to so many slots are looked at one by one."""

StoredRow = tuple[int, bytes, int, bytes | None, bytes | None]
"""A stored block: its number, its first byte string, the length of the second one, and the bits of its dead rows and of
its dead bodies, or None."""


class Block:
    """What is known about a block without reading it."""

    __slots__ = (
        "dead_payloads",
        "dead_rows",
        "handle",
        "live_payload_bytes",
        "live_payloads",
        "live_rows",
        "number",
        "payload_count",
        "payload_sizes",
        "row_count",
        "rows_bytes",
        "same_ids",
        "size_bytes",
    )

    def __init__(self, number: int, handle: int, block: EncodedBlock, payload_bytes: int) -> None:
        self.number = number
        """The key of the block in the store. Numbers rise."""
        self.handle = handle
        """The number of the block in `Locations`, used again after the block is dropped."""
        self.row_count = self.live_rows = len(block.ids)
        self.payload_count = self.live_payloads = len(block.payload_ids)
        self.same_ids = block.payload_ids is block.ids
        """Whether each message and its body have the same slot."""
        self.payload_sizes: Sizes = block.payload_sizes
        self.rows_bytes = len(block.entries)
        self.live_payload_bytes = payload_bytes
        self.size_bytes = self.rows_bytes + payload_bytes
        self.dead_rows = 0
        """A bit for each slot."""
        self.dead_payloads = 0

    @property
    def live_bytes(self) -> int:
        """The size of what is alive. The size of rows is estimated."""
        return self.rows_bytes * self.live_rows // (self.row_count or 1) + self.live_payload_bytes

    @property
    def is_small(self) -> bool:
        """Whether it should be written together with others, if there are many such blocks."""
        live = max(self.live_payloads, self.live_rows)
        return live < SMALL_ROWS and self.live_bytes < SMALL_BYTES

    @property
    def is_sparse(self) -> bool:
        """Whether at least half of it is dead."""
        return self.live_bytes * 2 <= self.size_bytes

    def kill(self, rows: int, payloads: int) -> None:
        """Marks slots as dead, given as bits. They are alive."""
        if rows:
            self.dead_rows |= rows
            self.live_rows -= rows.bit_count()
        if payloads:
            self.dead_payloads |= payloads
            self.live_payloads -= payloads.bit_count()
            self.live_payload_bytes -= self._bytes_of(payloads)

    def _bytes_of(self, payloads: int) -> int:
        sizes = self.payload_sizes
        if isinstance(sizes, int):
            return sizes * payloads.bit_count()
        first = (payloads & -payloads).bit_length() - 1
        length = payloads.bit_length() - first
        if payloads.bit_count() == length:
            return sum(sizes[first : first + length])
        if payloads.bit_count() > _FEW_SLOTS:
            return sum(compress(sizes, flags_of(payloads, self.payload_count)))
        size_bytes = 0
        while payloads:
            slot = payloads.bit_length() - 1
            size_bytes += sizes[slot]
            payloads ^= 1 << slot
        return size_bytes


class BlockIndex:
    """All blocks of a store."""

    def __init__(self) -> None:
        self.rows = Locations()
        """Where the row of each message is."""
        self.payloads = Locations()
        """Where each body is, if it is in a block."""
        self.by_number: dict[int, Block] = {}
        """In the order in which they were written."""
        self.small: OrderedDict[Block, None] = OrderedDict()
        """Small blocks, in the order in which they are written again."""
        self.sparse: dict[Block, None] = {}
        self.next_number = 1
        self.highest_id = 0
        """No block has a higher id, and none that was here had one."""
        self.live_bytes = 0
        self.size_bytes = 0
        self._by_handle: list[Block | None] = [None]
        self._free_handles: list[int] = []

    def load(self, stored: Iterable[StoredRow]) -> None:
        """Adds stored blocks, in the order of their numbers."""
        for number, entries, payload_bytes, dead_rows, dead_payloads in stored:
            opened = StoredBlock(entries)
            ids = opened.ids()
            block = self.add(
                number,
                EncodedBlock(entries, b"", ids, opened.payload_ids(ids), opened.payload_sizes()),
                payload_bytes,
                dead_rows=int.from_bytes(dead_rows or b"", "little"),
                dead_payloads=int.from_bytes(dead_payloads or b"", "little"),
            )
            self.next_number = block.number + 1

    def block(self, handle: int) -> Block:
        """Returns the block with a handle."""
        block = self._by_handle[handle]
        assert block is not None
        return block

    def add(
        self,
        number: int,
        encoded: EncodedBlock,
        payload_bytes: int,
        *,
        dead_rows: int = 0,
        dead_payloads: int = 0,
    ) -> Block:
        """Adds a block, and what is alive in it."""
        if self._free_handles:
            handle = self._free_handles.pop()
        else:
            handle = len(self._by_handle)
            self._by_handle.append(None)
        block = Block(number, handle, encoded, payload_bytes)
        self._by_handle[handle] = self.by_number[number] = block
        self._put(self.rows, encoded.ids, block, dead_rows)
        self._put(self.payloads, encoded.payload_ids, block, dead_payloads)
        block.kill(dead_rows, dead_payloads)
        self.size_bytes += block.size_bytes
        self.live_bytes += block.live_bytes
        self._classify(block)
        return block

    def _put(self, locations: Locations, ids: Sequence[int], block: Block, dead: int) -> None:
        if not ids:
            return
        locations.put(ids, block.handle)
        highest = ids[-1] if isinstance(ids, range) else max(ids)
        self.highest_id = max(self.highest_id, highest)
        if dead:
            # No earlier block has these ids: what is written again gets a block with a higher number.
            slots = unset_positions(dead ^ ((1 << len(ids)) - 1), len(ids))
            locations.remove(sorted([ids[slot] for slot in slots]))

    def kill(self, block: Block, rows: int, payloads: int) -> None:
        """Marks slots of a block as dead. The caller removes their locations, and drops the block if it is dead."""
        self.live_bytes -= block.live_bytes
        block.kill(rows, payloads)
        self.live_bytes += block.live_bytes
        self._classify(block)

    def drop(self, block: Block) -> None:
        """Removes a block that is deleted: nothing in it is alive, or all that is alive was written again."""
        self.live_bytes -= block.live_bytes
        self.size_bytes -= block.size_bytes
        self.small.pop(block, None)
        self.sparse.pop(block, None)
        del self.by_number[block.number]
        self._by_handle[block.handle] = None
        self._free_handles.append(block.handle)

    def _classify(self, block: Block) -> None:
        if block.is_small:
            self.small[block] = None
        if (block.dead_rows or block.dead_payloads) and block.is_sparse:
            self.sparse[block] = None
