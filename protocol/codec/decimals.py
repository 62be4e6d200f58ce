"""AMQP decimals: their numbers, and how Service Bus encodes them.

Reads the three IEEE 754-2008 binary integer decimal encodings, and writes the variant of Microsoft's AMQP library. A
decimal that does not fit that library's type (.NET `decimal`) stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.codec.value_types import Decimal

_DECIMAL128 = b"\x94"
_BIAS = 6176
_COEFFICIENT_BITS = 96
_SCALE_MAX = 28
"""A .NET `decimal` has a coefficient of 96 bits and an exponent from 0 to -28."""

# Microsoft's library writes the bits from 9 on of the exponent into the first byte and the lowest 7 into the second;
# bits 7 and 8 are 0 for every scale of a .NET decimal. According to the standard, which has the bits from 7 on in the
# first byte, such an exponent is too small by this offset. No sender means 10^-4608.
_LIBRARY_OFFSET = (6144 >> 9 << 7) - 6144
_LIBRARY_EXPONENTS = range(_LIBRARY_OFFSET - 32, _LIBRARY_OFFSET + 1)


class _Layout(NamedTuple):
    exponent_bits: int
    coefficient_bits: int
    bias: int


_LAYOUTS = {4: _Layout(8, 23, 101), 8: _Layout(10, 53, 398), 16: _Layout(14, 113, _BIAS)}


class Number(NamedTuple):
    """A finite decimal: sign, coefficient, and exponent of ten."""

    is_negative: bool
    coefficient: int
    exponent: int


def number_of(raw: bytes) -> Number | None:
    """Returns the number of a decimal32, decimal64 or decimal128, or None if it is infinite or not a number."""
    layout = _LAYOUTS[len(raw)]
    bits = int.from_bytes(raw, "big")
    is_negative = raw[0] & 0x80 != 0
    shift = layout.coefficient_bits
    if raw[0] & 0x78 == 0x78:
        return None
    if raw[0] & 0x60 != 0x60:
        coefficient = bits & ((1 << shift) - 1)
    else:
        shift -= 2
        coefficient = 0b100 << shift | bits & ((1 << shift) - 1)
        if len(raw) == 16:
            coefficient = 0  # IEEE 754-2008 §3.5.2: more than 34 digits count as 0.
    exponent = (bits >> shift & ((1 << layout.exponent_bits) - 1)) - layout.bias
    if exponent in _LIBRARY_EXPONENTS and len(raw) == 16:
        exponent -= _LIBRARY_OFFSET
    return Number(is_negative, coefficient, exponent)


def service_decimal(encoded: bytes) -> bytes | None:
    """Returns an encoded decimal as the service delivers it, or None if it stays as it is."""
    number = number_of(encoded[1:])
    if number is None:
        return None
    is_negative, coefficient, exponent = number
    if exponent > _SCALE_MAX:
        return None
    if exponent > 0:
        coefficient, exponent = coefficient * 10**exponent, 0
    if not coefficient:
        exponent = max(exponent, -_SCALE_MAX)
    while exponent < -_SCALE_MAX:
        coefficient, remainder = divmod(coefficient, 10)
        exponent += 1
        if remainder:
            return None
    if coefficient >> _COEFFICIENT_BITS:
        return None
    biased = _BIAS + exponent
    start = bytes(((0x80 if is_negative else 0) | biased >> 9, (biased & 0x7F) << 1))
    return _DECIMAL128 + start + coefficient.to_bytes(14, "big")


def as_float(value: Decimal) -> float | bytes:
    """Returns a decimal as rules compare it. One that is not a number stays bytes, which equal nothing."""
    number = number_of(value.raw)
    if number is None:
        return value.raw
    sign = "-" if number.is_negative else ""
    return float(f"{sign}{number.coefficient}e{number.exponent}")
