"""Performatives in frames: positions of their fields, and frames with one field changed.

Malformed performatives raise `UndecodableMessage`, also if the data ends within a field.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.frames.delivery_ids import SERIAL_MASK
from protocol.codec import (
    WIDTHS,
    Described,
    DescribedType,
    UInt,
    code_of,
    compound,
    compound_of,
    decode,
    encode,
    is_plain,
    value_end,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END = range(0x11, 0x18)
FRAME_HEADER_BYTES = 8
_PLAIN_FRAME_BYTES = 1024
_ARRAY_8, _ARRAY_32 = b"\xe0", b"\xf0"
_NULL = b"\x40"
_TRUE = b"\x41"
_MORE_FIELD = 5

_read_uint = Struct(">I").unpack_from
_read_ulong = Struct(">Q").unpack_from
_write_header = Struct(">IBBH").pack


class Performative(NamedTuple):
    """The performative of a frame, and where its fields are."""

    code: int
    first: int
    """Where the first field starts."""
    field_count: int
    end: int
    """Where the fields end and the payload starts."""


def read_performative(data: bytes, start: int, end: int) -> Performative | None:
    """Returns the performative of the frame from `start` to `end`, or None if it cannot be read."""
    body = start + 4 * data[start + 4]
    if data[start + 5] != 0 or body < start + FRAME_HEADER_BYTES or body + 4 > end or data[body]:
        return None
    if data[body + 1] == 0x53:
        code, fields = data[body + 2], body + 3
    elif data[body + 1] == 0x80 and body + 11 <= end:
        code, fields = _read_ulong(data, body + 2)[0], body + 10
    else:
        return None
    if data[fields] not in (0xC0, 0xD0, 0x45):
        return None
    try:
        first, count, fields_end = compound(data, fields)
    except UndecodableMessage:
        return None
    return Performative(code, first, count, fields_end) if fields_end <= end else None


def has_array(data: bytes, start: int, end: int) -> bool:
    """Whether a byte of the frame may be the constructor of an array."""
    return data.find(_ARRAY_8, start, end) >= 0 or data.find(_ARRAY_32, start, end) >= 0


def check_values(data: bytes, start: int, end: int, performative: Performative) -> None:
    """Raises `UndecodableMessage` if a field that Proton keeps is malformed.

    Proton checks only the size of a value when it arrives, and its content when it is read or written again; a
    malformed array then crashes the process. Of a transfer Proton keeps only the state, which the caller checks.
    Flows and dispositions are frequent, and are not dangerous without arrays.
    """
    body = start + 4 * data[start + 4]
    if performative.code == TRANSFER or is_plain(data, body, end):
        return
    is_frequent = performative.code in (FLOW, DISPOSITION) and end - start <= _PLAIN_FRAME_BYTES
    if not is_frequent or has_array(data, start, end):
        decode(data, body)


def field_starts(data: bytes, performative: Performative, limit: int) -> list[int]:
    """Returns where each of the first fields starts, and where the last of them ends."""
    _, position, count, end = performative
    starts = [position]
    try:
        for _ in range(min(count, limit)):
            width = WIDTHS[data[position]]
            position = position + 1 + width if width >= 0 else value_end(data, position)
            starts.append(position)
    except IndexError as error:
        raise UndecodableMessage("the data ends within a performative") from error
    if position > end:
        raise UndecodableMessage("a field is longer than its list")
    return starts


def uint_at(data: bytes, starts: Sequence[int], index: int) -> int | None:
    """Returns a field that is an unsigned integer, or None if it is null or missing."""
    if index + 1 >= len(starts):
        return None
    position = starts[index]
    code = data[position]
    if code == 0x70:
        return int(_read_uint(data, position + 1)[0])
    if code == 0x52:
        return data[position + 1]
    if code == 0x43:
        return 0
    if code == 0x40:
        return None
    value, _ = decode(data, position)  # such as an unsigned short
    if not isinstance(value, int):
        raise UndecodableMessage(f"constructor 0x{code:02x} where an unsigned integer should be")
    return int(value) & SERIAL_MASK  # of another width, which Proton accepts too


def is_true_at(data: bytes, starts: Sequence[int], index: int) -> bool:
    """Returns a field that is a boolean. False if it is null or missing."""
    if index + 1 >= len(starts):
        return False
    position = starts[index]
    return data[position] == 0x41 or data[position : position + 2] == b"\x56\x01"


def transaction_at(data: bytes, starts: Sequence[int], index: int) -> bytes | None:
    """Returns the transaction id in a field that is a delivery state, or None."""
    if index + 1 >= len(starts) or data[starts[index]] != 0:
        return None
    state, _ = decode(data, starts[index])
    if (
        not isinstance(state, Described)
        or code_of(state.descriptor) != DescribedType.TRANSACTIONAL_STATE
    ):
        return None
    fields = state.value
    is_named = isinstance(fields, list) and bool(fields) and isinstance(fields[0], bytes)
    return fields[0] if is_named else None  # type: ignore[index]


def frame_of(code: int, channel: int, count: int, fields: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame in its shortest encoding."""
    performative = b"\x00\x53" + bytes((code,)) + compound_of(0xC0, count, fields)
    size = FRAME_HEADER_BYTES + len(performative) + len(payload)
    return _write_header(size, 2, 0, channel) + performative + payload


def with_uint(
    data: bytes,
    channel: int,
    performative: Performative,
    starts: Sequence[int],
    index: int,
    value: int,
) -> bytes:
    """Returns a frame without payload, with one field changed."""
    fields = (
        data[performative.first : starts[index]]
        + encode(UInt(value))
        + data[starts[index + 1] : performative.end]
    )
    return frame_of(performative.code, channel, performative.field_count, fields)


def with_delivery_id(
    data: bytes,
    place: tuple[int, int, int],
    performative: Performative,
    starts: Sequence[int],
    number: int,
    max_size_bytes: int,
) -> bytes:
    """Returns a transfer with another delivery id. `place` is its start, end and channel."""
    start, end, channel = place
    if performative.field_count > 1 and data[starts[1]] == 0x70:
        at = starts[1] + 1
        return data[start:at] + number.to_bytes(4, "big") + data[at + 4 : end]
    count = max(performative.field_count, 2)
    handle = data[starts[0] : starts[1]]
    rest = data[starts[2] : performative.end] if performative.field_count > 1 else b""
    payload = data[performative.end : end]
    frame = frame_of(TRANSFER, channel, count, handle + encode(UInt(number)) + rest, payload)
    if len(frame) <= max_size_bytes:
        return frame
    # The longer id does not fit into the frame: it is sent before, in a transfer without payload.
    ahead = [data[a:b] for a, b in pairwise(starts[2:])]
    ahead += [_NULL] * (_MORE_FIELD - 1 - len(ahead))
    ahead[_MORE_FIELD - 2] = _TRUE
    fields = handle + encode(UInt(number)) + b"".join(ahead)
    return frame_of(TRANSFER, channel, 2 + len(ahead), fields) + frame_of(
        TRANSFER, channel, count, handle + _NULL + rest, payload
    )


def disposition_of(
    data: bytes,
    channel: int,
    performative: Performative,
    starts: Sequence[int],
    ids: tuple[int, int],
) -> bytes:
    """Returns the disposition in `data` with other delivery ids."""
    if not performative.field_count:
        raise UndecodableMessage("a disposition without role")
    first, last = ids
    role = data[starts[0] : starts[1]]
    rest = data[starts[3] : performative.end] if len(starts) > 3 else b""
    fields = role + encode(UInt(first)) + encode(UInt(last)) + rest
    return frame_of(DISPOSITION, channel, max(performative.field_count, 3), fields)
