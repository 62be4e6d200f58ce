"""Counts the values in the body of a request before they are decoded.

A value of one byte becomes an object of seventy, and other clients wait while a request is decoded. Only the sizes and
counts of lists, maps and arrays are read here.
"""

from __future__ import annotations

import struct

from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from protocol.codec import SIZED_8, SIZED_32, WIDTHS

_length32 = struct.Struct(">I").unpack_from
_DESCRIBED = 0x00
_LISTS_AND_MAPS_8, _LISTS_AND_MAPS_32 = (0xC0, 0xC1), (0xD0, 0xD1)
_ARRAY_8, _ARRAY_32 = 0xE0, 0xF0
_EMPTY_LIST, _FIRST_COMPOUND = 0x45, 0xC0


def check_values(data: bytes, start: int, end: int, most: int) -> None:
    """Raises `MessageSizeExceeded` if there are more than `most` values from `start` to `end`, and may raise
    `UndecodableMessage` if they are malformed."""
    if end - start <= most:
        return  # a value has at least one byte
    try:
        count = _count(data, start, end, most)
    except (IndexError, struct.error) as error:
        raise UndecodableMessage("a value runs past the end of what holds it") from error
    if count > most:
        raise MessageSizeExceeded(f"The body of this request has at most {most} values.")


def _count(data: bytes, position: int, end: int, most: int) -> int:
    """Returns the number of values, or any number beyond `most` if there are more."""
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
    """Returns how many values an array has, and where it ends. Items that may have items count as their bytes."""
    if data[position] == _ARRAY_8:
        size, count, first = data[position + 1], data[position + 2], position + 3
        end = position + 2 + size
    else:
        size, count, first = *struct.unpack_from(">II", data, position + 1), position + 9
        end = position + 5 + size
    code = data[first] if first < end else _DESCRIBED
    is_simple = _DESCRIBED < code < _FIRST_COMPOUND and code != _EMPTY_LIST
    return (count if is_simple else max(count, size)), end
