"""Reads the blocks of a store: their index at start, rows of messages, and bodies.

`BlockSource` is what each store does in its own way. One thread commits, and another may read bodies at the same time.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Protocol

from storage.blocks.block_format import StoredBlock
from storage.blocks.block_index import BlockIndex
from storage.contract import StorageError, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from broker.core.messages.packed_rows import PackedRows
    from storage.blocks.block_index import StoredRow

_ATTEMPTS = 1_000
_PAUSE_S = 0.001
Payloads = dict[int, tuple[bytes, bytes]]


class BlockSource(Protocol):
    """A connection that reads blocks."""

    def stored_rows(self) -> Iterable[StoredRow]:
        """Returns all blocks without their bodies, in the order of their numbers."""

    def entries(self) -> Iterable[tuple[int, bytes]]:
        """Returns numbers and first byte strings of all blocks, in the order of their numbers."""

    def blocks(self, numbers: Collection[int]) -> Iterable[tuple[int, bytes, bytes]]:
        """Returns number and both byte strings of the blocks that exist."""

    def payloads(self, payload_ids: Sequence[int]) -> Iterable[tuple[int, bytes, bytes]]:
        """Returns id, body and annotations of the bodies outside of blocks that exist."""

    def highest_payload_id(self) -> int:
        """Returns the highest id of a body outside of blocks, or 0."""


class StoredBlocks:
    """The blocks of one store."""

    def __init__(self) -> None:
        self._index: BlockIndex | None = None
        self._lock = threading.Lock()

    @property
    def known_index(self) -> BlockIndex | None:
        """The index of the blocks, if it is known."""
        return self._index

    def index(self, source: BlockSource) -> BlockIndex:
        """Returns the index of the blocks. Reads it from the store if it is not known."""
        with self._lock:
            return self._known_index(source)

    def _known_index(self, source: BlockSource) -> BlockIndex:
        if self._index is None:
            self._index = self._read_index(source)
        return self._index

    def _read_index(self, source: BlockSource) -> BlockIndex:
        index = BlockIndex()
        try:
            index.load(source.stored_rows())
        except (ValueError, IndexError, struct.error) as error:
            raise StoreUnusable(f"a block is damaged or of a newer version ({error})") from error
        return index

    def forget(self) -> None:
        """Reads the index again when it is needed: the store may differ, because a commit failed or the store is
        closed."""
        self._index = None

    def apply(self, change_index: Callable[[], None]) -> None:
        """Changes the index after a commit. Raises nothing: the commit is durable."""
        with self._lock:
            try:
                change_index()
            except Exception:  # noqa: BLE001 -- whatever it is, the store has the truth
                self.forget()

    def packed_messages(self, source: BlockSource) -> Iterator[tuple[PackedRows, int]]:
        """Returns the rows of all messages, with bits for the dead ones. Must be read before the next commit."""
        by_number = self.index(source).by_number
        for number, entries in source.entries():
            dead = by_number[number].dead_rows
            for rows in StoredBlock(entries).sections():
                yield rows, dead & ((1 << rows.count) - 1)
                dead >>= rows.count

    def highest_id(self, source: BlockSource) -> int:
        """Returns the highest id of a message or a body."""
        index = self.index(source)
        return max(index.rows.highest, index.payloads.highest, source.highest_payload_id())

    # --- bodies --------------------------------------------------------------------------------

    def read_payloads(self, source: BlockSource, payload_ids: Sequence[int]) -> Payloads:
        """Returns body and annotations of the payloads that exist, by id."""
        found: Payloads = {}
        wanted: Iterable[int] = payload_ids
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            slots_of, outside = self._locate(source, wanted)
            if outside:
                for payload_id, body, annotations in source.payloads(sorted(outside)):
                    found[payload_id] = body, annotations
            for number, entries, payloads in source.blocks(slots_of):
                slots = slots_of.pop(number)
                read = StoredBlock(entries).read_payloads(payloads, slots.values())
                found.update(zip(slots, read, strict=True))
            # A commit may write a block again between the two steps. The index says where after that commit.
            wanted = [payload_id for slots in slots_of.values() for payload_id in slots]
            if not wanted:
                return found
        raise StorageError("bodies are not where the index says")

    def _locate(
        self, source: BlockSource, payload_ids: Iterable[int]
    ) -> tuple[dict[int, dict[int, int]], list[int]]:
        """Returns block numbers, each with the slots of ids, and the ids that are in no block."""
        blocks: dict[int, dict[int, int]] = {}
        outside: list[int] = []
        with self._lock:
            index = self._known_index(source)
            for payload_id in payload_ids:
                location = index.payloads.get(payload_id)
                if location is None:
                    outside.append(payload_id)
                else:
                    handle, slot = location
                    blocks.setdefault(index.block(handle).number, {})[payload_id] = slot
        return blocks, outside
