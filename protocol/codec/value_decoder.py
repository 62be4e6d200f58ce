"""Decodes AMQP 1.0 values: every primitive, compound and described type.

Malformed data raises `UndecodableMessage` and nothing else. Memory is proportional to the input.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.contract.errors import UndecodableMessage
from protocol.codec.value_types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    # What follows a constructor: (data, position, limit, depth) -> (value, end).
    _Decoder = Callable[[bytes, int, int, int], tuple[object, int]]

MAX_DEPTH = 64
MAX_EMPTY_ITEMS = 64
"""Array items such as null have no bytes, so their number needs a bound of its own."""

_length32 = struct.Struct(">I").unpack_from
_lengths8 = struct.Struct(">BB").unpack_from
_lengths32 = struct.Struct(">II").unpack_from

WIDEST = dict(
    zip(
        b"\x41\x42\x43\x52\x44\x53\x54\x55\xa0\xa1\xa3\x45\xc0\xc1\xe0",
        b"\x56\x56\x70\x70\x80\x80\x71\x81\xb0\xb1\xb3\xd0\xd0\xd1\xf0",
        strict=True,
    )
)
"""Short constructors, and the widest constructor of the same type."""


def decode(data: bytes, position: int = 0) -> tuple[object, int]:
    """Returns the value at `position`, and where it ends."""
    try:
        return _decode(data, position, len(data), 0)
    except (IndexError, ValueError, struct.error) as error:
        raise UndecodableMessage(f"malformed value: {error}") from error


def value_end(data: bytes, position: int) -> int:
    """Returns where the value at `position` ends. Reads only sizes. Raises if the value exceeds the data."""
    pending = 1
    limit = len(data)
    try:
        while pending:
            code = data[position]
            position += 1
            width = WIDTHS[code]
            if width >= 0:
                position += width
            elif width == SIZED_8:
                position += 1 + data[position]
            elif width == SIZED_32:
                position += 4 + _length32(data, position)[0]
            elif code == 0:
                pending += 2  # A described value: its descriptor, then itself.
                if pending > 2 * MAX_DEPTH:
                    raise UndecodableMessage(f"values are nested deeper than {MAX_DEPTH}")
            else:
                raise _unknown(code)
            pending -= 1
    except (IndexError, struct.error) as error:
        raise _truncated() from error
    if position > limit:
        raise _truncated()
    return position


def check_content(data: bytes, start: int, end: int) -> None:
    """Raises `UndecodableMessage` if the value between `start` and `end`, whose sizes are checked, cannot be decoded.
    Text that is ASCII, and a value of fixed size that has any content, is not decoded to find out."""
    code = data[start]
    if 0x40 <= code < 0xC0:
        text = _TEXT_OFFSETS.get(code)
        if text is None:
            if code not in _RESTRICTED:
                return
        elif data[start + text : end].isascii():
            return
    decode(data, start)


def compound(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns the position of the first item, the number of items and the end of the list or map at `position`."""
    try:
        code = data[position]
        if code in (0xC0, 0xC1):
            size, count = _lengths8(data, position + 1)
            first, end = position + 3, position + 2 + size
        elif code in (0xD0, 0xD1):
            size, count = _lengths32(data, position + 1)
            first, end = position + 9, position + 5 + size
        elif code in (0x45, 0x40):
            first, end, count = position + 1, position + 1, 0
        else:
            raise UndecodableMessage(f"constructor 0x{code:02x} where a list or map should be")
    except (IndexError, struct.error) as error:
        raise _truncated() from error
    if end > len(data) or first > end or count > end - first:
        raise _truncated()
    return first, count, end


def map_entries(data: bytes, position: int = 0) -> dict[str, bytes]:
    """Returns the encoded values of the map at `position`, by the text of their keys."""
    if len(data) > position and data[position] in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("a list where a map should be")
    first, count, end = compound(data, position)
    if count & 1:
        raise UndecodableMessage("a map has a key without a value")
    entries: dict[str, bytes] = {}
    position = first
    for _ in range(count >> 1):
        key, middle = decode(data, position)
        if not isinstance(key, str):
            raise UndecodableMessage("a map key is neither string nor symbol")
        position = value_end(data, middle)
        entries[str(key)] = data[middle:position]
    if position != end:
        raise _truncated()
    return entries


def _truncated() -> UndecodableMessage:
    return UndecodableMessage("a value runs past the end of what holds it")


def _unknown(code: int) -> UndecodableMessage:
    return UndecodableMessage(f"constructor 0x{code:02x} is unknown")


def _decode(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
    if position >= limit:
        raise _truncated()
    if depth > MAX_DEPTH:
        raise UndecodableMessage(f"values are nested deeper than {MAX_DEPTH}")
    code = data[position]
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise _unknown(code)
    return decoder(data, position + 1, limit, depth)


_TEXT_OFFSETS = {0xA1: 2, 0xA3: 2, 0xB1: 5, 0xB3: 5}
"""Where text begins after the start of its value, by constructor."""
_RESTRICTED = frozenset({0x56, 0x73})
"""Booleans and characters: not every content is a value."""


def _constant(value: object) -> _Decoder:
    def read(_data: bytes, position: int, _limit: int, _depth: int) -> tuple[object, int]:
        return value, position

    return read


def _fixed(layout: str, make: Callable[..., object] | None = None) -> _Decoder:
    unpack_from = struct.Struct(layout).unpack_from
    size = struct.calcsize(layout)

    def read(data: bytes, position: int, limit: int, _depth: int) -> tuple[object, int]:
        end = position + size
        if end > limit:
            raise _truncated()
        (value,) = unpack_from(data, position)
        return (value if make is None else make(value)), end

    return read


def _variable(width: int, make: Callable[[bytes], object] | None) -> _Decoder:
    def read(data: bytes, position: int, limit: int, _depth: int) -> tuple[object, int]:
        start = position + width
        if start > limit:
            raise _truncated()
        end = start + int.from_bytes(data[position:start], "big")
        if end > limit:
            raise _truncated()
        value = data[start:end]
        return (value if make is None else make(value)), end

    return read


def _boolean(value: int) -> bool:
    if value > 1:
        raise UndecodableMessage(f"boolean {value} is neither 0 nor 1")
    return value == 1


def _text(value: bytes) -> str:
    return value.decode()


def _symbol(value: bytes) -> Symbol:
    return Symbol(value.decode())


def _char(value: int) -> Char:
    if value > 0x10FFFF:
        raise UndecodableMessage(f"character {value:#x} is outside Unicode")
    return Char(chr(value))


def _uuid(value: bytes) -> UUID:
    return UUID(bytes=value)


def _extent(data: bytes, position: int, limit: int, width: int) -> tuple[int, int, int]:
    """Returns first item, count and end of a compound value whose sizes start at `position`."""
    first = position + 2 * width
    if first > limit:
        raise _truncated()
    size, count = (_lengths8 if width == 1 else _lengths32)(data, position)
    end = position + width + size
    if end > limit or first > end:
        raise _truncated()
    return first, count, end


def _items(data: bytes, first: int, count: int, end: int, depth: int) -> list[object]:
    # Every item takes at least its constructor byte: refuse before reserving room for them.
    if count > end - first:
        raise _truncated()
    items = []
    position = first
    for _ in range(count):
        item, position = _decode(data, position, end, depth)
        items.append(item)
    if position != end:
        raise UndecodableMessage("a compound value is longer than its items")
    return items


def _list(width: int) -> _Decoder:
    def read(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
        first, count, end = _extent(data, position, limit, width)
        return _items(data, first, count, end, depth + 1), end

    return read


def _map(width: int) -> _Decoder:
    def read(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
        first, count, end = _extent(data, position, limit, width)
        if count & 1:
            raise UndecodableMessage("a map has a key without a value")
        items = iter(_items(data, first, count, end, depth + 1))
        try:
            return dict(zip(items, items, strict=True)), end
        except TypeError as error:
            raise UndecodableMessage("a map key is a compound value") from error

    return read


def _array(width: int) -> _Decoder:
    def read(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
        first, count, end = _extent(data, position, limit, width)
        if depth >= MAX_DEPTH:
            raise UndecodableMessage(f"values are nested deeper than {MAX_DEPTH}")
        descriptor = None
        if first < end and data[first] == 0:
            descriptor, first = _decode(data, first + 1, end, depth + 1)
        if first >= end:
            raise _truncated()
        code = data[first]
        decoder = _DECODERS.get(code)
        if decoder is None or code == 0:
            raise _unknown(code)
        position = first + 1
        if count > (end - position if WIDTHS[code] else MAX_EMPTY_ITEMS):
            raise _truncated()
        items = []
        for _ in range(count):
            item, position = decoder(data, position, end, depth + 1)
            items.append(item)
        if position != end:
            raise UndecodableMessage("an array is longer than its items")
        return Array(WIDEST.get(code, code), items, descriptor), end

    return read


def _empty_list(_data: bytes, position: int, _limit: int, _depth: int) -> tuple[object, int]:
    return [], position


def _described(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
    descriptor, position = _decode(data, position, limit, depth + 1)
    value, position = _decode(data, position, limit, depth + 1)
    return Described(descriptor, value), position


_DECODERS: dict[int, _Decoder] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: _empty_list,
    0x50: _fixed(">B", UByte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", UInt),
    0x53: _fixed(">B", ULong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b", Long),
    0x56: _fixed(">B", _boolean),
    0x60: _fixed(">H", UShort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", UInt),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: _fixed(">I", _char),
    0x74: _fixed("4s", Decimal),
    0x80: _fixed(">Q", ULong),
    0x81: _fixed(">q", Long),
    0x82: _fixed(">d"),
    0x83: _fixed(">q", Timestamp),
    0x84: _fixed("8s", Decimal),
    0x94: _fixed("16s", Decimal),
    0x98: _fixed("16s", _uuid),
    0xA0: _variable(1, None),
    0xA1: _variable(1, _text),
    0xA3: _variable(1, _symbol),
    0xB0: _variable(4, None),
    0xB1: _variable(4, _text),
    0xB3: _variable(4, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}

# AMQP 1.0 §1.2: the high half of a constructor tells the width of what follows it.
SIZED_8, SIZED_32, _UNKNOWN = -1, -2, -3
_WIDTH_BY_CATEGORY = (
    *(_UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN),
    *(0, 1, 2, 4, 8, 16),
    *(SIZED_8, SIZED_32, SIZED_8, SIZED_32, SIZED_8, SIZED_32),
)
WIDTHS = [_WIDTH_BY_CATEGORY[code >> 4] if code in _DECODERS else _UNKNOWN for code in range(256)]
"""Number of bytes after each constructor, or the kind of its size prefix."""
