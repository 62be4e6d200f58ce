"""Encodes columns of integers and texts as few bytes: most fields of consecutive messages are equal or rise evenly.

`packed_rows.py` decides which columns there are. The bytes are kept in memory and in stores, so a change of the format
needs a new kind. All numbers are little-endian.

A column of integers begins with a byte: the kind, and in its upper half the width of an item in bytes.

| kind | content after the first byte |
|---|---|
| 0 | nothing: all values are 0 |
| 1 | nothing: all values are None |
| 2 | int64: all values are this |
| 3 | int64, int64: the first value, and the difference of each value to the next |
| 4 | int64, items: the least value, and by how much each value exceeds it |
| 5 | int64, items: the first value, and by how much each value exceeds the one before it |
| 6 | bits, column: which values are not None; a column in which None is 0 |

Items have 1, 2, 4 or 8 bytes. With 8 bytes they are the values themselves, signed.

A column of texts is a byte 0 (all are None), or a byte 1, a uint32 with the number of different texts, each text as a
uint32 length and its bytes, and a column of integers: 0 for None, n for the n-th text.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, compress, islice, pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_ZERO, _NONE, _EQUAL, _EVEN, _OFFSETS, _STEPS, _SOME = range(7)
_INTEGER = Struct("<q")
_TWO_INTEGERS = Struct("<qq")
_LENGTH = Struct("<I")
_TYPECODES = {1: "B", 2: "H", 4: "I", 8: "q"}
_FITS_INTEGER = range(-(1 << 63), 1 << 63)
_IS_BIG_ENDIAN = array("H", [1]).tobytes()[0] == 0
_KINDS = tuple(bytes((kind,)) for kind in range(7))
_DIGITS = bytes.maketrans(b"01", b"\0\1")
_ASCII_LENGTHS = tuple(_LENGTH.pack(length).decode() for length in range(128))
_SHORT_LENGTHS = tuple(_LENGTH.pack(length) for length in range(256))


def packed_column(values: tuple[int | None, ...]) -> bytes:
    """Returns values as bytes. Raises `OverflowError` if one has more than 64 bits."""
    first = values[0]
    count = len(values)
    if values.count(first) == count:
        return equal_column(first)
    if None in values:
        bits = sum([1 << position for position, one in enumerate(values) if one is not None])
        rest = packed_column(tuple([one or 0 for one in values]))
        return _KINDS[_SOME] + bits.to_bytes((count + 7) // 8, "little") + rest
    return _packed_numbers(values)  # type: ignore[arg-type]


def equal_column(value: int | None) -> bytes:
    """Returns a column in which all values are this one. Raises `OverflowError` if it has more than 64 bits."""
    if not value:
        return _KINDS[_NONE if value is None else _ZERO]
    if value not in _FITS_INTEGER:
        raise OverflowError(f"{value} has more than 64 bits")
    return _KINDS[_EQUAL] + _INTEGER.pack(value)


def consecutive_column(first: int) -> bytes:
    """Returns a column in which each value is one more than the value before it."""
    return _KINDS[_EVEN] + _TWO_INTEGERS.pack(first, 1)


def _packed_numbers(values: tuple[int, ...]) -> bytes:
    first = values[0]
    count = len(values)
    step = values[1] - first
    if (
        step
        and values[-1] - first == step * (count - 1)
        and tuple(range(first, first + step * count, step)) == values
        and first in _FITS_INTEGER
        and values[-1] in _FITS_INTEGER
        and step in _FITS_INTEGER
    ):
        return _KINDS[_EVEN] + _TWO_INTEGERS.pack(first, step)
    least = min(values)
    greatest = max(values) - least
    kind, base, items = _OFFSETS, least, [value - least for value in values]
    if greatest >= 1 << 8:
        steps = [0, *[after - before for before, after in pairwise(values)]]
        if min(steps) >= 0 and max(steps) < greatest:
            kind, base, items, greatest = _STEPS, first, steps, max(steps)
    if greatest >= 1 << 32:
        return bytes((_OFFSETS | 8 << 4,)) + _INTEGER.pack(0) + _array_bytes(8, values)
    width = 1 if greatest < 1 << 8 else 2 if greatest < 1 << 16 else 4
    if base not in _FITS_INTEGER:
        raise OverflowError(f"{base} has more than 64 bits")
    return bytes((kind | width << 4,)) + _INTEGER.pack(base) + _array_bytes(width, items)


def _array_bytes(width: int, items: Sequence[int]) -> bytes:
    if width == 1:
        return bytes(items)
    packed = array(_TYPECODES[width], items)
    if _IS_BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def _array_of(width: int, data: bytes) -> array[int]:
    unpacked = array(_TYPECODES[width])
    unpacked.frombytes(data)
    if _IS_BIG_ENDIAN:
        unpacked.byteswap()
    return unpacked


class Column:
    """A packed column of integers inside of some bytes. Unpacks its values, or a part of them."""

    __slots__ = ("_base", "_data", "_items", "_kind", "_rest", "_step", "_width", "count", "end")

    def __init__(self, data: bytes, position: int, count: int) -> None:
        kind = data[position]
        self._width = width = kind >> 4
        self._kind = kind = kind & 15
        self._data = data
        self.count = count
        self._base: int = 0
        self._step: int = 0
        self._items = 0
        self._rest: Column | None = None
        self.end = position
        """The position after the column."""
        position += 1
        if kind == _EVEN:
            self._base, self._step = _TWO_INTEGERS.unpack_from(data, position)
            position += 16
        elif kind == _SOME:
            self._items = position
            self._rest = Column(data, position + (count + 7) // 8, count)
            position = self._rest.end
        elif kind > _NONE:
            (self._base,) = _INTEGER.unpack_from(data, position)
            position += 8
            if kind != _EQUAL:
                self._items = position
                position += width * count
        self.end = position

    @property
    def is_equal(self) -> bool:
        """Whether all values are known to be equal."""
        return self._kind <= _EQUAL or self.count == 1

    @property
    def is_zero_or_none(self) -> bool:
        """Whether all values are 0 or None."""
        return self._kind <= _NONE

    @property
    def is_consecutive(self) -> bool:
        """Whether each value is known to be one more than the value before it."""
        return (self._kind == _EVEN and self._step == 1) or self.count == 1

    @property
    def first(self) -> int:
        """The first value, which is not None."""
        if self._kind == _OFFSETS:
            return next(iter(self.values(0, 1))) or 0
        return self._base

    @property
    def least(self) -> int:
        """A value that is not greater than any value of the column."""
        if self._kind == _OFFSETS and self._width == 8:
            return min(self._numbers(0, self.count))
        if self._kind == _EVEN and self._step < 0:
            return self._base + self._step * (self.count - 1)
        return self._base

    def values(self, start: int, stop: int) -> Iterable[int | None]:
        """Returns the values from one position to another."""
        kind, count = self._kind, stop - start
        if kind == _NONE:
            return repeat(None, count)
        if kind <= _EQUAL:
            return repeat(self._base, count)
        if kind != _SOME:
            return self._numbers(start, stop)
        assert self._rest is not None
        bits = int.from_bytes(
            self._data[self._items : self._items + (self.count + 7) // 8], "little"
        )
        rest = islice(self._rest.values(0, self.count), start, stop)
        return [one if bits >> start + at & 1 else None for at, one in enumerate(rest)]

    def total(self) -> int:
        """Returns the sum of the values, none of which is None."""
        if self._kind <= _EQUAL:
            return self._base * self.count
        return sum(self._numbers(0, self.count))

    def _numbers(self, start: int, stop: int) -> Sequence[int]:
        base, width = self._base, self._width
        if self._kind == _EVEN:
            step = self._step
            return range(base + step * start, base + step * stop, step)
        if self._kind == _STEPS:
            items = _array_of(width, self._data[self._items : self._items + width * stop])
            return list(islice(accumulate(items, initial=base), 1 + start, None))
        items = _array_of(
            width, self._data[self._items + width * start : self._items + width * stop]
        )
        return [base + item for item in items] if base else items


def packed_texts(values: Sequence[str] | Sequence[str | None]) -> bytes:
    """Returns texts as bytes. Raises `UnicodeEncodeError`."""
    different = dict.fromkeys(values)
    if len(different) == len(values) > 1 and None not in different:
        packed = _packed_different(different)  # type: ignore[arg-type]
        if packed is not None:
            return packed
    different.pop(None, None)
    texts = [text.encode() for text in different]  # type: ignore[union-attr]
    return _packed_byte_strings(values, different, texts)


def _packed_different(texts: Collection[str]) -> bytes | None:
    """Does the same as `packed_texts` for different texts, as the session ids of messages that were sent to many sessions
    in turn. Returns None if one is long or not ASCII."""
    if max(map(len, texts)) >= len(_ASCII_LENGTHS):
        return None
    joined = "".join([_ASCII_LENGTHS[len(text)] + text for text in texts])
    if not joined.isascii():
        return None
    return b"\1" + _LENGTH.pack(len(texts)) + joined.encode() + consecutive_column(1)


def packed_byte_strings(values: Sequence[bytes | None]) -> bytes:
    """Returns byte strings as bytes, in the same form as texts."""
    different = dict.fromkeys(values)
    different.pop(None, None)
    return _packed_byte_strings(values, different, list(different))  # type: ignore[arg-type]


def _packed_byte_strings(
    values: Sequence[str | bytes | None],
    different: dict[Any, None],
    strings: Sequence[bytes],
) -> bytes:
    """`different` are the different values, and `strings` their bytes."""
    if not strings:
        return b"\0"
    parts = [b"\1", _LENGTH.pack(len(strings))]
    if max(map(len, strings)) < len(_SHORT_LENGTHS):
        parts += [part for string in strings for part in (_SHORT_LENGTHS[len(string)], string)]
    else:
        parts += [part for string in strings for part in (_LENGTH.pack(len(string)), string)]
    if len(strings) == len(values) > 1:
        parts.append(consecutive_column(1))
    else:
        numbers = {value: number for number, value in enumerate(different, 1)}
        numbers[None] = 0
        parts.append(packed_column(tuple([numbers[value] for value in values])))
    return b"".join(parts)


class TextColumn:
    """A packed column of texts inside of some bytes."""

    __slots__ = ("_numbers", "_texts", "count", "end")

    def __init__(self, data: bytes, position: int, count: int) -> None:
        self.count = count
        self._texts: list[bytes | None] = [None]
        self._numbers: Column | None = None
        self.end = position + 1
        if data[position] == 0:
            return
        (different,) = _LENGTH.unpack_from(data, position + 1)
        position += 5
        for _ in range(different):
            (length,) = _LENGTH.unpack_from(data, position)
            position += 4
            self._texts.append(data[position : position + length])
            position += length
        self._numbers = Column(data, position, count)
        self.end = self._numbers.end

    @property
    def is_none(self) -> bool:
        """Whether all are None."""
        return self._numbers is None

    @property
    def has_all(self) -> bool:
        """Whether none is None."""
        return self._numbers is not None and self._numbers.least > 0

    def values(self, start: int, stop: int) -> Iterator[bytes | None]:
        """Returns the texts from one position to another."""
        if self._numbers is None:
            return repeat(None, stop - start)
        numbers: Iterable[int] = self._numbers.values(start, stop)  # type: ignore[assignment]
        return map(self._texts.__getitem__, numbers)


def unset_positions(bits: int, count: int) -> Iterator[int]:
    """Returns the positions below `count` whose bit is not set."""
    if not bits:
        return iter(range(count))
    return compress(range(count), flags_of(bits ^ ((1 << count) - 1), count))


def flags_of(bits: int, count: int) -> bytes:
    """Returns the first bits as bytes, each 0 or 1."""
    return f"{bits:0{count}b}"[::-1].encode().translate(_DIGITS)
