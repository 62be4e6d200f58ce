"""AMQP frames where Proton does not show or write what is needed.

Inbound: which transfers carry a batch, since Proton hides the message format. Outbound: the handle
a link was given, the answer to a drain without credit, and silence about the deliveries of a freed
link. Inbound frames pass through in order and unchanged; less than one frame is ever held back.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.amqp.values import UInt, compound, compound_of, decode, encode, value_end

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_NEEDLE = b"\x70\x80\x01\x37\x00"
"""Message format 0x80013700 as a uint: a value this large has only this encoding."""

_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEADER_BYTES = 8
_ATTACH = b"\x00\x53\x12"
_FLOW = b"\x00\x53\x13"
_TRANSFER = b"\x00\x53\x14"
_LONG_TRANSFER = b"\x00\x80" + (0x14).to_bytes(8, "big")
_DISPOSITION = b"\x00\x53\x15"
_SESSION_FLOW_FIELDS = 4
_STATELESS_DISPOSITION_FIELDS = 4

_read_size = Struct(">I").unpack_from
_read_header = Struct(">IBBH").unpack_from
_write_header = Struct(">IBBH").pack


class FrameScan:
    """Cuts the inbound stream so that a transfer of a batch stands alone."""

    __slots__ = ("_batch", "_broken", "_held", "_max_frame_size_bytes", "_remaining")

    def __init__(self, max_frame_size_bytes: int) -> None:
        self._max_frame_size_bytes = max_frame_size_bytes
        self._remaining = _PROTOCOL_HEADER_BYTES
        """Bytes still to come of what has begun: the protocol header at first, then a frame."""
        self._held = b""
        """The start of a frame too short to judge."""
        self._batch = False
        """What has begun is a transfer of a batch."""
        self._broken = False

    def split(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Pieces to push in order, and whether each is (part of) one transfer of a batch.

        Events must be drained after each piece: a delivery that a batch piece completes is one.
        """
        if self._broken:
            # Proton has been given a frame it refuses; boundaries mean nothing any more.
            return [(data, False)]
        if self._held:
            data = self._held + data
            self._held = b""
        size = len(data)
        position = self._remaining
        if position >= size:
            self._remaining = position - size
            batch = self._batch
            if position == size:
                self._batch = False
            return [(data, batch)]
        pieces: list[tuple[bytes, bool]] = []
        start = 0
        if self._batch:
            pieces.append((data[:position], True))
            start = position
            self._batch = False
        needle = data.find(BATCH_NEEDLE, position)
        last_header = size - _FRAME_HEADER_BYTES
        largest = self._max_frame_size_bytes
        while position <= last_header:
            (frame_size,) = _read_size(data, position)
            if frame_size < _FRAME_HEADER_BYTES or frame_size > largest:
                self._broken = True
                position = size
                break
            end = position + frame_size
            if end > size:
                break
            if 0 <= needle < end:
                if is_batch_transfer(data, position, end):
                    if position > start:
                        pieces.append((data[start:position], False))
                    pieces.append((data[position:end], True))
                    start = end
                needle = data.find(BATCH_NEEDLE, end)
            position = end
        if position < size:
            return self._end_within_frame(data, start, position, pieces)
        self._remaining = 0
        if start < size:
            pieces.append((data[start:] if start else data, False))
        return pieces

    def _end_within_frame(
        self, data: bytes, start: int, position: int, pieces: list[tuple[bytes, bool]]
    ) -> list[tuple[bytes, bool]]:
        """The data ends inside the frame at `position`: judge it if enough of it is there."""
        size = len(data)
        batch = None
        if size - position >= _FRAME_HEADER_BYTES:
            batch = is_batch_transfer(data, position, size)
        if batch is None:
            self._held = data[position:]
            self._remaining = 0
            if position > start:
                pieces.append((data[start:position], False))
            return pieces
        self._remaining = _read_size(data, position)[0] - (size - position)
        if batch:
            self._batch = True
            if position > start:
                pieces.append((data[start:position], False))
            pieces.append((data[position:], True))
        else:
            pieces.append((data[start:], False))
        return pieces


_UINT_WIDTHS = {0x40: 1, 0x43: 1, 0x52: 2, 0x70: 5}
_LIST_HEADERS = {0xC0: 3, 0xD0: 9}


def is_batch_transfer(data: bytes, start: int, end: int) -> bool | None:
    """Whether the frame at `start`, of which there are bytes up to `end`, is a transfer of a batch.

    None: it could be, but the bytes up to its message format are not all there.
    """
    if data[start + 5] != 0:
        return False
    position = start + 4 * data[start + 4]
    descriptor = _LONG_TRANSFER if data[position + 1 : position + 2] == b"\x80" else _TRANSFER
    found = data[position : min(position + len(descriptor), end)]
    if not descriptor.startswith(found):
        return False
    position += len(descriptor)
    if position >= end:
        return None
    header = _LIST_HEADERS.get(data[position])
    if header is None:
        return False
    if position + header > end:
        return None
    count = data[position + 2] if header == 3 else _read_size(data, position + 5)[0]
    if count < 4:
        return False
    position += header
    for _ in ("handle", "delivery-id"):
        if position >= end:
            return None
        width = _UINT_WIDTHS.get(data[position])
        if width is None:
            return False
        position += width
    if position + 5 > end:
        return None
    code = data[position]
    if code == 0xA0:
        position += 2 + data[position + 1]
    elif code == 0xB0:
        position += 5 + _read_size(data, position + 1)[0]
    elif code == 0x40:
        position += 1
    else:
        return False
    found = data[position : min(position + len(BATCH_NEEDLE), end)]
    if found == BATCH_NEEDLE:
        return True
    return None if BATCH_NEEDLE.startswith(found) else False


def frames(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Each frame of our own output: where it starts, where its body starts, where it ends, and its
    channel. Whole frames only; the protocol header is stepped over."""
    position = _PROTOCOL_HEADER_BYTES if data[:4] == b"AMQP" else 0
    while position + _FRAME_HEADER_BYTES <= len(data):
        size, offset, _, channel = _read_header(data, position)
        yield position, position + 4 * offset, position + size, channel
        position += size


def last_attach(data: bytes) -> tuple[int, int] | None:
    """Channel and handle of the last attach in our output."""
    found = None
    for _, body, _, channel in frames(data):
        if data[body : body + 3] == _ATTACH:
            first, _, _ = compound(data, body + 3)
            handle, _ = decode(data, value_end(data, first))
            if isinstance(handle, int):
                found = channel, int(handle)
    return found


def with_link_flow(data: bytes, channel: int, handle: int, delivery_count: int) -> bytes:
    """Our output with the session flow on a channel turned into the answer to a drain: the link
    has no credit and has been drained (AMQP 1.0 §2.6.7)."""
    parts: list[bytes] = []
    copied = 0
    for start, body, end, frame_channel in frames(data):
        if frame_channel != channel or data[body : body + 3] != _FLOW:
            continue
        first, count, list_end = compound(data, body + 3)
        if count != _SESSION_FLOW_FIELDS:
            continue
        link_fields = (UInt(handle), UInt(delivery_count), UInt(0), None, True)
        fields = data[first:list_end] + b"".join(map(encode, link_fields))
        performative = _FLOW + compound_of(0xC0, count + len(link_fields), fields)
        parts.append(data[copied:start])
        parts.append(_write_header(len(performative) + _FRAME_HEADER_BYTES, 2, 0, channel))
        parts.append(performative)
        copied = end
        break
    parts.append(data[copied:])
    return b"".join(parts)


def without_bare_settlements(data: bytes) -> bytes:
    """Our output without the dispositions that settle and say no more."""
    parts: list[bytes] = []
    for start, body, end, _ in frames(data):
        if data[body : body + 3] == _DISPOSITION:
            _, count, _ = compound(data, body + 3)
            if count <= _STATELESS_DISPOSITION_FIELDS:
                continue
        parts.append(data[start:end])
    return b"".join(parts)
