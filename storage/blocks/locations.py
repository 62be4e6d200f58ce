"""Where each live message or body is: its block and its slot there. Six bytes for each id.

Ids rise and most are consecutive, so a table of arrays is small, and a range of ids is looked up at once. If only
few ids of a part are left, because most of its messages are gone, a dict replaces the arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BITS = 10
_SIZE = 1 << _BITS
_MASK = _SIZE - 1
_NO_BLOCKS = array("I", bytes(4 * _SIZE))
_NO_SLOTS = array("H", bytes(2 * _SIZE))
_SLOTS = array("H", range(1 << 16))
_FEW_IDS = 8
"""If a part has no more ids than this left, they are in a dict. Arrays take six kilobytes."""
_MANY_IDS = 32
"""If a dict has more ids than this, they are in arrays again, which take about as much memory then."""


class _Part:
    """A part of the table: the ids that differ only in their last bits."""

    __slots__ = ("blocks", "count", "slots")

    def __init__(self) -> None:
        self.blocks = _NO_BLOCKS[:]
        """The handle of the block of each id, or 0."""
        self.slots = _NO_SLOTS[:]
        self.count = 0
        """How many ids are in it."""


class Locations:
    """Block and slot of each id. A block is given by its handle, a small positive number."""

    __slots__ = ("_few", "_parts")

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._few: dict[int, dict[int, tuple[int, int]]] = {}
        """Parts with few ids: block and slot by id. A key is in `_parts` or here, never in both."""

    def get(self, number: int) -> tuple[int, int] | None:
        """Returns block and slot of an id, or None."""
        part = self._parts.get(number >> _BITS)
        if part is None:
            few = self._few.get(number >> _BITS)
            return None if few is None else few.get(number)
        block = part.blocks[number & _MASK]
        return (block, part.slots[number & _MASK]) if block else None

    @property
    def highest(self) -> int:
        """The highest id, or 0."""
        key = max(max(self._parts, default=-1), max(self._few, default=-1))
        if key < 0:
            return 0
        if key in self._few:
            return max(self._few[key])
        blocks = self._parts[key].blocks
        return next((key << _BITS) + at for at in range(_MASK, -1, -1) if blocks[at])

    def put(self, ids: Sequence[int], block: int) -> None:
        """Sets the locations of ids: this block, and their positions in the sequence."""
        count = len(ids)
        if not count:
            return
        if count == 1:
            self._put_one(ids[0], block, 0)
            return
        if ids[-1] - ids[0] == count - 1 and (isinstance(ids, range) or _rises(ids)):
            self._put_range(ids[0], count, block)
            return
        self._put_each(ids, block)

    def _put_one(self, number: int, block: int, slot: int) -> None:
        part = self._part(number >> _BITS, 1)
        if part is None:
            self._few[number >> _BITS][number] = block, slot
            return
        at = number & _MASK
        if not part.blocks[at]:
            part.count += 1
        part.blocks[at] = block
        part.slots[at] = slot

    def _put_each(self, ids: Sequence[int], block: int) -> None:
        key, part = -1, None
        for slot, number in enumerate(ids):
            if number >> _BITS != key or part is None:
                key = number >> _BITS
                part = self._part(key, 1)
                if part is None:
                    self._few[key][number] = block, slot
                    continue
            at = number & _MASK
            if not part.blocks[at]:
                part.count += 1
            part.blocks[at] = block
            part.slots[at] = slot

    def _put_range(self, first: int, count: int, block: int) -> None:
        slot = 0
        while slot < count:
            number = first + slot
            start = number & _MASK
            stop = min(_SIZE, start + count - slot)
            length = stop - start
            part = self._part(number >> _BITS, length)
            if part is None:
                locations = [(block, one) for one in range(slot, slot + length)]
                few = self._few[number >> _BITS]
                few.update(zip(range(number, number + length), locations, strict=True))
                slot += length
                continue
            present = length - part.blocks[start:stop].count(0)
            part.count += length - present
            part.blocks[start:stop] = array("I", (block,)) * length
            part.slots[start:stop] = _SLOTS[slot : slot + length]
            slot += length

    def _part(self, key: int, added: int) -> _Part | None:
        """Returns the part to which `added` ids will be added, or None if they go to `_few`."""
        part = self._parts.get(key)
        if part is not None:
            return part
        few = self._few.setdefault(key, {})
        if len(few) + added <= _MANY_IDS:
            return None
        del self._few[key]
        part = self._parts[key] = _Part()
        part.count = len(few)
        for number, (block, slot) in few.items():
            part.blocks[number & _MASK] = block
            part.slots[number & _MASK] = slot
        return part

    def find(self, ids: Sequence[int]) -> tuple[dict[int, int], list[int]]:
        """Returns the slots of sorted different ids as bits, by block, and the ids that are not here."""
        found: dict[int, int] = {}
        missing: list[int] = []
        if len(ids) == 1:
            location = self.get(ids[0])
            if location is None:
                return found, list(ids)
            return {location[0]: 1 << location[1]}, missing
        for key, start, stop in _by_part(ids):
            part = self._parts.get(key)
            if part is None:
                _find_few(self._few.get(key, {}), ids[start:stop], found, missing)
            elif ids[stop - 1] - ids[start] != stop - start - 1 or not self._find_range(
                part, ids[start] & _MASK, stop - start, found
            ):
                self._find_each(part, ids[start:stop], found, missing)
        return found, missing

    @staticmethod
    def _find_range(part: _Part, start: int, count: int, found: dict[int, int]) -> bool:
        """Returns False, and finds nothing, if the ids are not in consecutive slots of their blocks."""
        runs = []
        blocks = part.blocks[start : start + count]
        if blocks.count(blocks[0]) == count:
            lengths = [(blocks[0], count)]
        else:
            lengths = [(block, len(list(same))) for block, same in groupby(blocks)]
        for block, length in lengths:
            slot = part.slots[start]
            if not block or part.slots[start : start + length] != _SLOTS[slot : slot + length]:
                return False
            runs.append((block, ((1 << length) - 1) << slot))
            start += length
        for block, bits in runs:
            found[block] = found.get(block, 0) | bits
        return True

    @staticmethod
    def _find_each(
        part: _Part, ids: Sequence[int], found: dict[int, int], missing: list[int]
    ) -> None:
        blocks, slots = part.blocks, part.slots
        for number in ids:
            at = number & _MASK
            block = blocks[at]
            if block in found:
                found[block] |= 1 << slots[at]
            elif block:
                found[block] = 1 << slots[at]
            else:
                missing.append(number)

    def remove(self, ids: Sequence[int]) -> None:
        """Removes sorted different ids, as far as they are here."""
        for key, start, stop in _by_part(ids):
            part = self._parts.get(key)
            if part is None:
                self._remove_few(key, ids[start:stop])
                continue
            first, count = ids[start] & _MASK, stop - start
            blocks = part.blocks
            if ids[stop - 1] - ids[start] == count - 1:
                part.count -= count - blocks[first : first + count].count(0)
                blocks[first : first + count] = _NO_BLOCKS[:count]
            else:
                for number in ids[start:stop]:
                    at = number & _MASK
                    if blocks[at]:
                        blocks[at] = 0
                        part.count -= 1
            if part.count <= _FEW_IDS:
                del self._parts[key]
                if part.count:
                    self._few[key] = _ids_of(part, key)

    def _remove_few(self, key: int, ids: Iterable[int]) -> None:
        few = self._few.get(key)
        if few is None:
            return
        for number in ids:
            few.pop(number, None)
        if not few:
            del self._few[key]


def _ids_of(part: _Part, key: int) -> dict[int, tuple[int, int]]:
    """Returns block and slot of each id of a part."""
    return {
        (key << _BITS) + at: (block, part.slots[at])
        for at, block in enumerate(part.blocks)
        if block
    }


def _find_few(
    few: dict[int, tuple[int, int]],
    ids: Iterable[int],
    found: dict[int, int],
    missing: list[int],
) -> None:
    for number in ids:
        location = few.get(number)
        if location is None:
            missing.append(number)
        else:
            block, slot = location
            found[block] = found.get(block, 0) | 1 << slot


def _rises(ids: Sequence[int]) -> bool:
    return list(ids) == list(range(ids[0], ids[0] + len(ids)))


def _by_part(ids: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Returns the key of each part, and the positions of its ids in a sorted sequence."""
    count = len(ids)
    if count and ids[0] >> _BITS == ids[-1] >> _BITS:
        return ((ids[0] >> _BITS, 0, count),)
    return _parts_of(ids)


def _parts_of(ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    start, count = 0, len(ids)
    while start < count:
        key = ids[start] >> _BITS
        stop = bisect_left(ids, (key + 1) << _BITS, start)
        yield key, start, stop
        start = stop
