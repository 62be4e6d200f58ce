"""The messages of one queue by sequence number.

Owns lookup and ordered walks; knows nothing of locks or delivery. Numbers come in rising
order, so every block, and the list of blocks, is sorted without being sorted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.core.contract.message import Message

BLOCK_BITS = 10
BLOCK_SIZE = 1 << BLOCK_BITS


class MessageIndex:
    """Blocks of up to 1,024 neighbouring numbers, so that a walk can start anywhere.

    One big dict would do for lookup, but finding its first entry after a million deletions at the
    front means stepping over a million holes.
    """

    __slots__ = ("_keys", "blocks")

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, Message]] = {}
        """By number >> BLOCK_BITS. Whoever empties a block calls `drop_block`."""
        self._keys: list[int] = []

    def add(self, first_number: int, messages: Sequence[Message]) -> None:
        """Add messages that carry consecutive numbers, all higher than any before."""
        start = 0
        count = len(messages)
        while start < count:
            number = first_number + start
            key = number >> BLOCK_BITS
            block = self.blocks.get(key)
            if block is None:
                block = self.blocks[key] = {}
                self._keys.append(key)
            end = min(count, start + BLOCK_SIZE - (number & (BLOCK_SIZE - 1)))
            part = messages if end - start == count else messages[start:end]
            block.update(zip(range(number, number + end - start), part, strict=True))
            start = end

    def add_rising(self, messages: Sequence[Message]) -> None:
        """Add messages with rising numbers, gaps between them, all higher than any before."""
        first, last = messages[0].sequence_number, messages[-1].sequence_number
        if last - first == len(messages) - 1:
            self.add(first, messages)
            return
        key, block = -1, {}
        for message in messages:
            number = message.sequence_number
            if number >> BLOCK_BITS != key:
                key = number >> BLOCK_BITS
                block = self.blocks[key] = self.blocks.get(key, {})
                if not block:
                    self._keys.append(key)
            block[number] = message

    def add_late(self, message: Message) -> None:
        """Add a message whose number was set aside for it: higher ones may be here already."""
        number = message.sequence_number
        key = number >> BLOCK_BITS
        block = self.blocks.get(key)
        if block is None:
            block = self.blocks[key] = {}
            insort(self._keys, key)
        block[number] = message
        self.blocks[key] = dict(sorted(block.items()))

    def get(self, number: int) -> Message | None:
        """The message with this number, or None."""
        block = self.blocks.get(number >> BLOCK_BITS)
        return None if block is None else block.get(number)

    def drop_block(self, key: int) -> None:
        """Forget a block that has become empty."""
        del self.blocks[key]
        keys = self._keys
        del keys[bisect_left(keys, key)]

    def walk(self, from_number: int = 0) -> Iterator[Message]:
        """All messages from a number on, in order. Nothing may be added or removed meanwhile."""
        keys = self._keys
        first_key = from_number >> BLOCK_BITS
        for position in range(bisect_left(keys, first_key), len(keys)):
            key = keys[position]
            block = self.blocks[key]
            if key == first_key:
                for number, message in block.items():
                    if number >= from_number:
                        yield message
            else:
                yield from block.values()
