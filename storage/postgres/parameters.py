"""Encodes the parameters of prepared statements in PostgreSQL's binary format.

The type of a parameter is read from the statement: each is followed by a cast, such as `$1::bigint[]`.
"""

from __future__ import annotations

import re
from struct import Struct, pack
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_PARAMETER = re.compile(r"\$(\d+)::(\w+)(\[\])?")
_BIGINT = Struct(">q")
_ARRAY = Struct(">iiIii")
_EMPTY_ARRAY = Struct(">iiI")
_LENGTH = Struct(">i")

Encoder = "Callable[[Any], bytes]"


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class _Type(NamedTuple):
    object_id: int
    """The number of the type, the same in every database."""
    encode: Callable[[Any], bytes]


_TYPES = {
    "bigint": _Type(20, _BIGINT.pack),
    "bytea": _Type(17, _bytes),
    "text": _Type(25, _bytes),
}


def _array_of(kind: _Type) -> Callable[[Sequence[Any]], bytes]:
    def encode(values: Sequence[Any]) -> bytes:
        count = len(values)
        if not count:
            return _EMPTY_ARRAY.pack(0, 0, kind.object_id)
        head = _ARRAY.pack(1, 0, kind.object_id, count, 1)
        if kind.encode == _BIGINT.pack:
            flat = [8] * (2 * count)
            flat[1::2] = values
            return head + pack(">" + "iq" * count, *flat)
        parts = [head]
        for value in values:
            encoded = kind.encode(value)
            parts += (_LENGTH.pack(len(encoded)), encoded)
        return b"".join(parts)

    return encode


def encoders_of(statement: str) -> tuple[Callable[[Any], bytes], ...]:
    """Returns the function that encodes each parameter of a statement, in the order of their numbers."""
    found = {
        int(number): _array_of(_TYPES[kind]) if array else _TYPES[kind].encode
        for number, kind, array in _PARAMETER.findall(statement)
    }
    return tuple(found[number] for number in range(1, len(found) + 1))


def read_bigint(value: bytes | None) -> int:
    """Returns the number of a value of the type bigint in a result."""
    number: int
    assert value is not None
    (number,) = _BIGINT.unpack(value)
    return number
