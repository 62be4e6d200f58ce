"""The sections of an encoded AMQP message: their codes, their encoding and the way back.

For clients of tests that build and read messages themselves; what the sections mean is not decided here.
"""

from __future__ import annotations

from typing import Any

from protocol.codec import Described, ULong, decode, encode

HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x72, 0x73, 0x74
DATA, VALUE = 0x75, 0x77


def section(code: int, value: object) -> bytes:
    """Returns one encoded section."""
    return encode(Described(ULong(code), value))


def sections_of(message: bytes) -> dict[int, Any]:
    """Returns the values of a message's sections by their codes."""
    found: dict[int, Any] = {}
    position = 0
    while position < len(message):
        value, position = decode(message, position)
        assert isinstance(value, Described)
        assert isinstance(value.descriptor, int)
        found[int(value.descriptor)] = value.value
    return found
