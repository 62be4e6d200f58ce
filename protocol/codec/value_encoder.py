"""Encodes Python values as AMQP 1.0.

Single values have the shortest constructor, array items the widest. A decoded value is encoded as the same value of the
same type.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from protocol.codec.value_decoder import WIDEST
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
    from collections.abc import Callable, Iterable, Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def encode(value: object) -> bytes:
    """Returns one encoded value. A Python int is encoded as int if it fits, or else as long; a float as double; a
    datetime as timestamp."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        for kind in type(value).__mro__[1:]:
            encoder = _ENCODERS.get(kind)
            if encoder is not None:
                break
        else:
            raise TypeError(f"{type(value).__name__} has no AMQP encoding")
    try:
        return encoder(value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value!r} does not fit its AMQP type: {error}") from error


def encode_symbol(text: str) -> bytes:
    return _variable(0xA3, text.encode())


def encode_string(text: str) -> bytes:
    return _variable(0xA1, text.encode())


def encode_map_entries(
    entries: Mapping[str, bytes], key_encoder: Callable[[str], bytes] = encode_string
) -> bytes:
    """Returns a map of encoded values: the inverse of `map_entries`."""
    parts: list[bytes] = []
    for key, value in entries.items():
        parts.append(key_encoder(key))
        parts.append(value)
    return compound_of(0xC1, len(parts), b"".join(parts))


def compound_of(code: int, count: int, items: bytes) -> bytes:
    """Returns a list (0xC0), map (0xC1) or array (0xE0) of `count` encoded items, in its shortest form."""
    size = len(items) + 1
    if size < 256 and count < 256:
        return bytes((code, size, count)) + items
    return struct.pack(">BII", code | 0x10, size + 3, count) + items


def timestamp_of(moment: datetime) -> int:
    """Returns milliseconds since the epoch. A datetime without time zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def _variable(code: int, content: bytes) -> bytes:
    size = len(content)
    if size < 256:
        return bytes((code, size)) + content
    return struct.pack(">BI", code | 0x10, size) + content


def _fixed(code: int, layout: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(">B" + layout).pack

    def write(value: Any) -> bytes:
        return pack(code, value)

    return write


def _integer(
    small_code: int,
    small: tuple[int, int],
    full_code: int,
    layout: str,
    zero_code: int | None = None,
) -> Callable[[Any], bytes]:
    pack = struct.Struct(">B" + layout).pack
    least, most = small

    def write(value: int) -> bytes:
        if value == 0 and zero_code is not None:
            return bytes((zero_code,))
        # Not `in range(...)`: that counts up to an integer whose type is not quite int.
        if least <= value <= most:
            return bytes((small_code, value & 0xFF))
        return pack(full_code, value)

    return write


_UBYTE, _BYTE = (0, 255), (-128, 127)
_encode_int = _integer(0x54, _BYTE, 0x71, "i")
_encode_long = _integer(0x55, _BYTE, 0x81, "q")
_encode_ulong = _integer(0x53, _UBYTE, 0x80, "Q", zero_code=0x44)


def _plain_int(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return _encode_int(value)
    return (_encode_long if -(2**63) <= value < 2**63 else _encode_ulong)(value)


_encode_timestamp = _fixed(0x83, "q")


def _datetime(value: datetime) -> bytes:
    return _encode_timestamp(timestamp_of(value))


_DECIMAL_CODES = {4: 0x74, 8: 0x84, 16: 0x94}


def _decimal(value: Decimal) -> bytes:
    return bytes((_DECIMAL_CODES[len(value.raw)],)) + value.raw


def _list(value: Iterable[object]) -> bytes:
    items = [encode(item) for item in value]
    return compound_of(0xC0, len(items), b"".join(items)) if items else b"\x45"


def _map(value: Mapping[object, object]) -> bytes:
    parts: list[bytes] = []
    for key, item in value.items():
        parts.append(encode(key))
        parts.append(encode(item))
    return compound_of(0xC1, len(parts), b"".join(parts))


def _described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _array(value: Array) -> bytes:
    code = WIDEST.get(value.code, value.code)
    item_encoder = _ITEM_ENCODERS[code]
    constructor = bytes((code,))
    if value.descriptor is not None:
        constructor = b"\x00" + encode(value.descriptor) + constructor
    items = b"".join([item_encoder(item) for item in value.items])
    return compound_of(0xE0, len(value.items), constructor + items)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _plain_int,
    float: _fixed(0x82, "d"),
    str: encode_string,
    bytes: lambda value: _variable(0xA0, value),
    bytearray: lambda value: _variable(0xA0, bytes(value)),
    UUID: lambda value: b"\x98" + value.bytes,
    datetime: _datetime,
    list: _list,
    tuple: _list,
    dict: _map,
    UByte: _fixed(0x50, "B"),
    UShort: _fixed(0x60, "H"),
    UInt: _integer(0x52, _UBYTE, 0x70, "I", zero_code=0x43),
    ULong: _encode_ulong,
    Byte: _fixed(0x51, "b"),
    Short: _fixed(0x61, "h"),
    Int: _encode_int,
    Long: _encode_long,
    Float: _fixed(0x72, "f"),
    Timestamp: _encode_timestamp,
    Char: lambda value: struct.pack(">BI", 0x73, ord(value)),
    Symbol: encode_symbol,
    Decimal: _decimal,
    Array: _array,
    Described: _described,
}


def _item(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(">" + layout).pack


def _sized_item(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _wide_compound(value: object, write: Callable[[Any], bytes]) -> bytes:
    """Returns the bytes after the constructor of the 32-bit form of a list, map or array."""
    encoded = write(value)
    if encoded[0] == 0x45:
        return struct.pack(">II", 4, 0)
    if encoded[0] & 0x10:
        return encoded[1:]
    return struct.pack(">II", encoded[1] + 3, encoded[2]) + encoded[3:]


_ITEM_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    0x40: lambda _: b"",
    0x50: _item("B"),
    0x51: _item("b"),
    0x56: lambda value: b"\x01" if value else b"\x00",
    0x60: _item("H"),
    0x61: _item("h"),
    0x70: _item("I"),
    0x71: _item("i"),
    0x72: _item("f"),
    0x73: lambda value: struct.pack(">I", ord(value)),
    0x74: lambda value: value.raw,
    0x80: _item("Q"),
    0x81: _item("q"),
    0x82: _item("d"),
    0x83: _item("q"),
    0x84: lambda value: value.raw,
    0x94: lambda value: value.raw,
    0x98: lambda value: value.bytes,
    0xB0: _sized_item,
    0xB1: lambda value: _sized_item(value.encode()),
    0xB3: lambda value: _sized_item(value.encode()),
    0xD0: lambda value: _wide_compound(value, _list),
    0xD1: lambda value: _wide_compound(value, _map),
    0xF0: lambda value: _wide_compound(value, _array),
}
"""Encodes an item in an array, by the widest constructor of its type."""
