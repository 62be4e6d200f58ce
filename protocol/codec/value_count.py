"""Counts values before they are decoded.

A value of one byte becomes an object of seventy, and other clients wait while a message or a request is decoded. Only the
sizes and counts of lists, maps and arrays are read here.
"""

from __future__ import annotations

import struct

from broker.core.contract.errors import UndecodableMessage
from protocol.codec.value_decoder import SIZED_8, SIZED_32, WIDTHS

_length32 = struct.Struct(">I").unpack_from
_DESCRIBED = 0x00
_LISTS_AND_MAPS_8, _LISTS_AND_MAPS_32 = (0xC0, 0xC1), (0xD0, 0xD1)
_ARRAY_8, _ARRAY_32 = 0xE0, 0xF0
_EMPTY_LIST, _FIRST_COMPOUND = 0x45, 0xC0


class ValueBudget:
    """How many more values messages may have outside their bodies. Messages that are read together share one."""

    __slots__ = ("_left", "_most")

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, count: int) -> None:
        """Raises `UndecodableMessage` if there are fewer values left than `count`."""
        self._left -= count
        if self._left < 0:
            raise UndecodableMessage(f"more than {self._most} sections, properties and annotations")

    def take_values(self, data: bytes, start: int, end: int) -> None:
        """Counts the values from `start` to `end` and takes as many. Raises `UndecodableMessage` if fewer are left, and
        sometimes if the values are malformed."""
        self.take(count_values(data, start, end, self._left))


def count_values(data: bytes, start: int, end: int, most: int) -> int:
    """Returns the number of values from `start` to `end`, or any number above `most` if there are more. Malformed
    values may raise `UndecodableMessage`, or be counted: only sizes are read."""
    try:
        return _count(data, start, end, most)
    except (IndexError, struct.error) as error:
        raise UndecodableMessage("a value runs past the end of what holds it") from error


def _count(data: bytes, position: int, end: int, most: int) -> int:
    count = 1
    passed = 0
    while passed < count <= most and position < end:
        passed += 1
        code = data[position]
        if code in _LISTS_AND_MAPS_8:
            count += data[position + 2]
            position += 3
        elif code in _LISTS_AND_MAPS_32:
            count += _length32(data, position + 5)[0]
            position += 9
        elif code in (_ARRAY_8, _ARRAY_32):
            items, position = _array(data, position)
            count += items
            passed += items
        elif code == _DESCRIBED:
            count += 2
            position += 1
        elif (width := WIDTHS[code]) >= 0:
            position += 1 + width
        elif width == SIZED_8:
            position += 2 + data[position + 1]
        elif width == SIZED_32:
            position += 5 + _length32(data, position + 1)[0]
        else:
            raise UndecodableMessage(f"constructor 0x{code:02x} is unknown")
    return count


def _array(data: bytes, position: int) -> tuple[int, int]:
    """Returns how many values an array has, and where it ends. Items that may contain items are not read: each of their
    bytes counts as a value."""
    if data[position] == _ARRAY_8:
        size, count, first = data[position + 1], data[position + 2], position + 3
        end = position + 2 + size
    else:
        size, count, first = *struct.unpack_from(">II", data, position + 1), position + 9
        end = position + 5 + size
    code = data[first] if first < end else _DESCRIBED
    is_simple = _DESCRIBED < code < _FIRST_COMPOUND and code != _EMPTY_LIST
    return (count if is_simple else max(count, size)), end
