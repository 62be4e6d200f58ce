"""Encodes columns of integers as few bytes: most fields of consecutive messages are equal or rise evenly.

`packed_messages.py` decides which columns there are.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, islice, pairwise, repeat
from struct import Struct, error
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ZERO, _NONE, _EQUAL, _EVEN, _OFFSETS, _STEPS = range(6)
"""The first byte of a column, with the number of bytes of an item in the upper half."""
_INTEGER = Struct("<q")
_TWO_INTEGERS = Struct("<qq")
_TYPECODES = {1: "B", 2: "H", 4: "I"}


def packed_column(values: tuple[int | None, ...]) -> bytes | None:
    """Returns values as bytes, or None if these would not be small."""
    first = values[0]
    count = len(values)
    if values.count(first) == count:
        if first is None:
            return bytes((_NONE,))
        return bytes((_EQUAL,)) + _INTEGER.pack(first) if first else bytes((_ZERO,))
    numbers = [value for value in values if value is not None]
    if len(numbers) < count:
        return None
    try:
        return _packed_numbers(numbers)
    except error:
        return None


def _packed_numbers(values: Sequence[int]) -> bytes | None:
    first = values[0]
    step = values[1] - first
    if step and list(range(first, first + step * len(values), step)) == values:
        return bytes((_EVEN,)) + _TWO_INTEGERS.pack(first, step)
    least = min(values)
    kind, base, items = _OFFSETS, least, [value - least for value in values]
    steps = [0, *[after - before for before, after in pairwise(values)]]
    if min(steps) >= 0 and max(steps) < max(items):
        kind, base, items = _STEPS, first, steps
    greatest = max(items)
    width = 1 if greatest < 1 << 8 else 2 if greatest < 1 << 16 else 4
    if greatest >= 1 << 32:
        return None
    head = bytes((kind | width << 4,)) + _INTEGER.pack(base)
    return head + array(_TYPECODES[width], items).tobytes()


def unpacked_columns(data: bytes, columns: int, count: int) -> list[Iterable[int | None]]:
    """Returns the values of each column."""
    unpacked: list[Iterable[int | None]] = []
    position = 0
    for _ in range(columns):
        kind, width = data[position] & 15, data[position] >> 4
        position += 1
        if kind == _ZERO:
            unpacked.append(repeat(0, count))
        elif kind == _NONE:
            unpacked.append(repeat(None, count))
        elif kind == _EVEN:
            first, step = _TWO_INTEGERS.unpack_from(data, position)
            position += _TWO_INTEGERS.size
            unpacked.append(range(first, first + step * count, step))
        else:
            (base,) = _INTEGER.unpack_from(data, position)
            position += _INTEGER.size
            if kind == _EQUAL:
                unpacked.append(repeat(base, count))
                continue
            end = position + width * count
            items = array(_TYPECODES[width])
            items.frombytes(data[position:end])
            position = end
            if kind == _STEPS:
                unpacked.append(islice(accumulate(items, initial=base), 1, None))
            else:
                unpacked.append([base + item for item in items])
    return unpacked
