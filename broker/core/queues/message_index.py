"""The messages of one queue by sequence number.

Messages are added with rising numbers, so blocks and the list of blocks are sorted without a sort.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from broker.core.queues.block_packing import unpack_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.packed_messages import PackedMessages

BLOCK_BITS = 6
"""Blocks of 64 messages. Small, because each of thousands of subscriptions can have a block that is
not full; large enough that a packed block takes little memory."""


class MessageIndex:
    """Messages in blocks of neighbouring numbers. A walk can start anywhere, and blocks of waiting
    messages can be packed.

    One dict for all messages would be slow: finding its first entry after a million deletions at
    the front steps over a million empty slots.
    """

    __slots__ = ("_counts", "_keys", "block_bits", "block_size", "blocks", "packed")

    def __init__(self, block_bits: int = BLOCK_BITS) -> None:
        self.block_bits = block_bits
        self.block_size = 1 << block_bits
        self.blocks: dict[int, list[Message | None]] = {}
        """Blocks by number >> block_bits. Each message is at the position of its number within the block.
        The list ends after the highest number so far."""
        self._counts: dict[int, int] = {}
        """How many messages each block has, by the same keys."""
        self.packed: dict[int, PackedMessages] = {}
        """Packed blocks, by the same keys. Each is full."""
        self._keys: list[int] = []
        """The keys of all blocks, sorted."""

    def add(self, first_number: int, messages: Sequence[Message]) -> None:
        """Add messages with consecutive numbers that are higher than all before."""
        start = 0
        count = len(messages)
        while start < count:
            number = first_number + start
            key = number >> self.block_bits
            position = number & (self.block_size - 1)
            end = min(count, start + self.block_size - position)
            part = messages if end - start == count else messages[start:end]
            block = self.blocks.get(key)
            if block is None:
                self._keys.append(key)
                block = self.blocks[key] = []
                self._counts[key] = 0
            if position > len(block):
                block += [None] * (position - len(block))
            block += part
            self._counts[key] += end - start
            start = end

    def add_one(self, number: int, message: Message) -> None:
        """Add a message with a higher number than all before: `add` for one message."""
        key = number >> self.block_bits
        position = number & (self.block_size - 1)
        block = self.blocks.get(key)
        if block is None:
            self._keys.append(key)
            block = self.blocks[key] = []
            self._counts[key] = 0
        if position > len(block):
            block += [None] * (position - len(block))
        block.append(message)
        self._counts[key] += 1

    def add_rising(self, messages: Sequence[Message]) -> None:
        """Add messages with rising numbers that are higher than all before. There may be gaps."""
        first, last = messages[0].sequence_number, messages[-1].sequence_number
        if last - first == len(messages) - 1:
            self.add(first, messages)
            return
        start = 0
        for position, (before, after) in enumerate(pairwise(messages), 1):
            if after.sequence_number - before.sequence_number > 1:
                self.add(messages[start].sequence_number, messages[start:position])
                start = position
        self.add(messages[start].sequence_number, messages[start:])

    def add_late(self, message: Message) -> None:
        """Add a message with a reserved number. Higher numbers may be in use."""
        number = message.sequence_number
        key = number >> self.block_bits
        position = number & (self.block_size - 1)
        block = self.blocks.get(key)
        if block is None:
            insort(self._keys, key)
            block = self.blocks[key] = []
            self._counts[key] = 0
        if position >= len(block):
            block += [None] * (position + 1 - len(block))
        block[position] = message
        self._counts[key] += 1

    def get(self, number: int) -> Message | None:
        """Returns the message with this number, or None."""
        block = self._unpacked(number >> self.block_bits)
        position = number & (self.block_size - 1)
        return None if block is None or position >= len(block) else block[position]

    def remove(self, messages: Iterable[Message]) -> None:
        """Remove messages that are here."""
        block_bits, mask = self.block_bits, self.block_size - 1
        counts, blocks = self._counts, self.blocks
        key, block, count = -1, [], 0
        for message in messages:
            number = message.sequence_number
            if number >> block_bits != key:
                # Messages of a session are far apart, so most are alone in their block.
                if 0 < count < counts[key]:
                    counts[key] -= count
                elif count:
                    self._subtract(key, count)
                key, count = number >> block_bits, 0
                block = blocks[key]
            block[number & mask] = None
            count += 1
        if count:
            self._subtract(key, count)

    def _subtract(self, key: int, count: int) -> None:
        """So many messages of a block are removed. Removes an empty block."""
        left = self._counts[key] - count
        if left:
            self._counts[key] = left
            return
        del self._counts[key], self.blocks[key]
        keys = self._keys
        del keys[bisect_left(keys, key)]

    def walk(
        self, from_number: int = 0, skips: Callable[[PackedMessages], bool] | None = None
    ) -> Iterator[Message]:
        """Returns all messages from a number on, in order. The queue must not change meanwhile.

        Packed blocks for which `skips` is true are left out and stay packed. Otherwise a search that
        finds nothing would unpack the whole queue.
        """
        keys = self._keys
        first_key = from_number >> self.block_bits
        for position in range(bisect_left(keys, first_key), len(keys)):
            key = keys[position]
            if skips is not None and key in self.packed and skips(self.packed[key]):
                continue
            block = self._unpacked(key)
            assert block is not None
            start = from_number & (self.block_size - 1) if key == first_key else 0
            for message in islice(block, start, None):
                if message is not None:
                    yield message

    def read_blocks(self) -> Iterator[list[Message]]:
        """Returns the messages of each block, in order. Packed blocks stay packed: their messages are made for
        the caller. The queue must not change meanwhile."""
        for key in self._keys:
            packed = self.packed.get(key)
            yield _messages(self.blocks[key]) if packed is None else packed.unpack()

    def look(
        self, from_number: int = 0, skips: Callable[[PackedMessages], bool] | None = None
    ) -> Iterator[Message]:
        """Returns all messages as `walk` does, and leaves packed blocks packed: their messages are
        copies."""
        keys = self._keys
        for position in range(bisect_left(keys, from_number >> self.block_bits), len(keys)):
            packed = self.packed.get(keys[position])
            if packed is not None and skips is not None and skips(packed):
                continue
            block = self.blocks[keys[position]] if packed is None else packed.unpack()
            for message in block:
                if message is not None and message.sequence_number >= from_number:
                    yield message

    # --- packed messages ------------------------------------------------------------------------

    def _unpacked(self, key: int) -> list[Message | None] | None:
        packed = self.packed.get(key)
        if packed is not None:
            unpack_block(packed)
        return self.blocks.get(key)

    def ends_block(self, number: int) -> bool:
        """Whether this is the last number of a block."""
        return not (number + 1) & (self.block_size - 1)

    def full_block(self, last_number: int) -> list[Message] | None:
        """Returns the messages of the block that ends with this number. Returns None if the number
        does not end a block, or the block has gaps or is packed."""
        if not self.ends_block(last_number):
            return None
        key = last_number >> self.block_bits
        if self._counts.get(key, 0) < self.block_size:
            return None
        return _messages(self.blocks[key])

    def is_packed(self, packed: PackedMessages) -> bool:
        """Whether this is still the form of its block."""
        return self.packed.get(packed.sequence_number >> self.block_bits) is packed

    def pack(self, packed: PackedMessages) -> None:
        """Replace a full block by its packed form."""
        key = packed.sequence_number >> self.block_bits
        del self.blocks[key], self._counts[key]
        self.packed[key] = packed

    def add_packed(self, blocks: Sequence[PackedMessages]) -> None:
        """Add packed blocks, none of which is here."""
        by_key = {block.sequence_number >> self.block_bits: block for block in blocks}
        self.packed.update(by_key)
        self._keys = sorted([*self._keys, *by_key])

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """Replace a packed block by its messages."""
        key = packed.sequence_number >> self.block_bits
        del self.packed[key]
        self.blocks[key] = list(messages)
        self._counts[key] = packed.count


def _messages(block: Sequence[Message | None]) -> list[Message]:
    return [message for message in block if message is not None]
