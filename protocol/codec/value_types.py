"""AMQP 1.0 types for which Python has no type.

A decoded value keeps its AMQP type. Every type compares and hashes as the Python type that it extends:
`UInt(1) == 1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Long(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch."""

    __slots__ = ()


class Float(float):
    """A 32-bit float; a plain `float` is a double."""

    __slots__ = ()


class Char(str):
    """One UTF-32 code unit. A lone surrogate is allowed, because a .NET `char` can be one.

    As text it is U+FFFD, as .NET encodes it in UTF-8: no text that is stored or sent can have a lone surrogate."""

    __slots__ = ()

    def __str__(self) -> str:
        """Returns text that can be encoded."""
        return "\ufffd" if "\ud800" <= self <= "\udfff" else str.__str__(self)


class Symbol(str):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal32, decimal64 or decimal128 in its encoded form."""

    raw: bytes


class ArrayCode:
    """Element constructors of the arrays in answers to Service Bus clients."""

    NULL = 0x40
    BOOLEAN = 0x56
    INT = 0x71
    LONG = 0x81
    TIMESTAMP = 0x83
    UUID = 0x98
    STRING = 0xB1
    SYMBOL = 0xB3


@dataclass(frozen=True, slots=True)
class Array:
    """Items of one type. An empty array has a type too, because clients cast to it."""

    code: int
    """The widest constructor of the element type, such as 0x81 for any array of longs."""
    items: list[Any]
    descriptor: object = None
    """The descriptor of every item, or None."""


@dataclass(frozen=True, slots=True)
class Described:
    descriptor: object
    value: object
