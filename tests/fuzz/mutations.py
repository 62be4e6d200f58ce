"""Bytes made wrong: recorded streams with flipped, missing, repeated, foreign and moved parts.

Owns what can happen to bytes; it knows how AMQP frames begin, so that whole frames are moved too.
Every choice comes from `chance`, so a case can be made again.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

PROTOCOL_HEADER = b"AMQP"
INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x40, 0x41, 0x42, 0x45, 0xA0, 0xB0, 0xC0, 0xD0, 0xF0)
"""Bytes that mean something: ends of ranges, and codes of AMQP types."""
SIZES = (0, 1, 7, 8, 9, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
LONGEST_INSERT = 4096
MOST_CHANGES = 6


def mutate(stream: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Change a stream in a few places, or not at all: that it was right once is no excuse."""
    data = bytearray(stream)
    for _ in range(chance.randint(0, MOST_CHANGES)):
        if data:
            change = chance.choice(CHANGES)
            data = change(data, others, chance)
    return bytes(data)


def frames(data: bytes) -> list[bytes]:
    """Returns protocol headers and frames, as far as they can be separated. The remaining bytes are
    one piece."""
    parts = []
    at = 0
    while at + 8 <= len(data):
        size = (
            8 if data[at : at + 4] == PROTOCOL_HEADER else int.from_bytes(data[at : at + 4], "big")
        )
        if size < 8 or at + size > len(data):
            break
        parts.append(data[at : at + size])
        at += size
    return [*parts, data[at:]] if at < len(data) else parts


def _span(data: bytearray, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(data))
    return begin, min(len(data), begin + int(chance.paretovariate(0.8)))


def _flip(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _replace(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    data[chance.randrange(len(data))] = chance.choice(INTERESTING)
    return data


def _delete(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    begin, end = _span(data, chance)
    del data[begin:end]
    return data


def _repeat(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    begin, end = _span(data, chance)
    times = min(chance.choice((1, 2, 50)), LONGEST_INSERT // (end - begin) + 1)
    data[end:end] = data[begin:end] * times
    return data


def _insert(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(min(LONGEST_INSERT, int(chance.paretovariate(0.7))))
    return data


def _cut(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    del data[chance.randrange(len(data)) :]
    return data


def _splice(data: bytearray, others: Sequence[bytes], chance: random.Random) -> bytearray:
    other = chance.choice(others)
    return data[: chance.randrange(len(data))] + other[chance.randrange(len(other)) :]


def _resize(data: bytearray, _: Sequence[bytes], chance: random.Random) -> bytearray:
    """Lie about the length of a frame or of a value."""
    at = chance.randrange(len(data))
    size = chance.choice((*SIZES, chance.getrandbits(32), len(data)))
    data[at : at + 4] = struct.pack(">I", size)
    return data


def _move_frames(data: bytearray, others: Sequence[bytes], chance: random.Random) -> bytearray:
    parts = frames(bytes(data))
    match chance.randrange(5):
        case 0:
            chance.shuffle(parts)
        case 1:
            del parts[chance.randrange(len(parts))]
        case 2:
            at = chance.randrange(len(parts))
            parts[at:at] = [parts[at]] * chance.choice((1, 3, 200))
        case 3:
            foreign = frames(chance.choice(others))
            parts.insert(chance.randint(0, len(parts)), chance.choice(foreign))
        case _:
            for at, _after in pairwise(range(len(parts) + 1)):
                if chance.random() < 0.1 and len(parts[at]) > 8:  # another channel
                    part = bytearray(parts[at])
                    part[6:8] = chance.choice((b"\x00\x01", b"\xff\xff", b"\x00\x00"))
                    parts[at] = bytes(part)
    return bytearray(b"".join(parts)[: 1 << 20])


CHANGES: tuple[Callable[[bytearray, Sequence[bytes], random.Random], bytearray], ...] = (
    _flip,
    _replace,
    _delete,
    _repeat,
    _insert,
    _cut,
    _splice,
    _resize,
    _move_frames,
    _move_frames,
)
