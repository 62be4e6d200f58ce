"""Checks values as nearly every client writes them, without decoding them, which would take three times as long."""

from __future__ import annotations

from struct import Struct

from protocol.codec.value_decoder import SIZED_8, SIZED_32, WIDTHS

DEPTH_MAX = 8
_TEXT_8, _TEXT_32, _UNUSUAL = -10, -11, -12
_SPECIAL = {0xA1: _TEXT_8, 0xA3: _TEXT_8, 0xB1: _TEXT_32, 0xB3: _TEXT_32} | dict.fromkeys(
    (0x56, 0x73, 0x74, 0x84, 0x94, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0), _UNUSUAL
)
_KINDS = [_SPECIAL.get(code, width) for code, width in enumerate(WIDTHS)]
"""By constructor: how many bytes follow, or how the size and the content are read."""
_TEXTS = (0xA1, 0xA3, 0xB1, 0xB3)

_length32 = Struct(">I").unpack_from
_lengths32 = Struct(">II").unpack_from


def is_plain(data: bytes, start: int, end: int) -> bool:
    """Whether a value in this range is well-formed. False if it may not be, which `decode` finds out: it is malformed,
    nested deeply, an array, a character or a decimal, has a text that is not ASCII, or a map key that is not a text."""
    try:
        return _items_end(data, start, 1, DEPTH_MAX) <= end <= len(data)
    except (IndexError, ValueError):  # the data ends, or a value is not plain
        return False


def _items_end(data: bytes, position: int, count: int, depth: int) -> int:
    """Returns where so many values end. An end behind that of the data is possible."""
    for _ in range(count):
        code = data[position]
        position += 1
        kind = _KINDS[code]
        if kind >= 0:
            position += kind
        elif kind == _TEXT_8:
            end = position + 1 + data[position]
            if not data[position + 1 : end].isascii():
                raise ValueError
            position = end
        elif kind == SIZED_8:
            position += 1 + data[position]
        elif kind in (SIZED_32, _TEXT_32) and position + 4 <= len(data):
            end = position + 4 + _length32(data, position)[0]
            if kind == _TEXT_32 and not data[position + 4 : end].isascii():
                raise ValueError
            position = end
        else:
            position = _unusual_end(data, position, code, depth - 1)
    return position


def _unusual_end(data: bytes, position: int, code: int, depth: int) -> int:
    """Returns where a described value, a list, a map or a boolean of two bytes ends, whose constructor was `code`."""
    if not code and depth >= 0:
        return _items_end(data, position, 2, depth)
    if code == 0x56 and data[position] <= 1:
        return position + 1
    if code in (0xC0, 0xC1):
        first = position + 2
        end, count = position + 1 + data[position], data[position + 1]
    elif code in (0xD0, 0xD1) and position + 8 <= len(data):
        first = position + 8
        size, count = _lengths32(data, position)
        end = position + 4 + size
    else:
        raise ValueError
    if depth < 0:
        raise ValueError
    is_map = code & 1
    if is_map:
        position = first
        for _ in range(count >> 1):
            if data[position] not in _TEXTS:
                raise ValueError
            position = _items_end(data, position, 2, depth)
    else:
        position = _items_end(data, first, count, depth)
    if position != end or (is_map and count & 1):
        raise ValueError
    return end
