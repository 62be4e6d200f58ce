"""Changes to the frames that Proton writes.

Reads the handle of a link, adds answers to drains and echoes, drops dispositions of freed links, and replaces delivery
ids by the client's. The output consists of complete frames.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.amqp.frames.delivery_ids import ranges_of
from protocol.amqp.frames.performatives import (
    DISPOSITION,
    FLOW,
    FRAME_HEADER_BYTES,
    Performative,
    disposition_of,
    field_starts,
    frame_of,
    is_true_at,
    uint_at,
)
from protocol.codec import UInt, compound, decode, encode, value_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.amqp.frames.incoming_sessions import IncomingSession, IncomingSessions

_PROTOCOL_HEADER_BYTES = 8
_BEGIN = b"\x00\x53\x11"
_ATTACH = b"\x00\x53\x12"
_FLOW = b"\x00\x53\x13"
_DISPOSITION = b"\x00\x53\x15"
_END = b"\x00\x53\x17"
_SESSION_FLOW_FIELDS = 4
_STATELESS_DISPOSITION_FIELDS = 4
_NULL = b"\x40"

_SHORT_LIST = _DISPOSITION + b"\xc0"
_SHORT_FIELDS_BYTES = 254
_SHORT_FRAME_BYTES = 14
"""The size of a disposition besides its fields, if these are short."""

_read_header = Struct(">IBBH").unpack_from
_short_disposition = Struct(">IBBH4sBB").pack


class LinkFlow(NamedTuple):
    """The link fields of a flow."""

    handle: int
    delivery_count: int
    credit: int = 0
    drain: bool = False


def frames(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields start, start of the body, end and channel of each frame of the output. Skips the protocol header."""
    position = _PROTOCOL_HEADER_BYTES if data[:4] == b"AMQP" else 0
    while position + FRAME_HEADER_BYTES <= len(data):
        size, offset, _, channel = _read_header(data, position)
        yield position, position + 4 * offset, position + size, channel
        position += size


def last_attach(data: bytes) -> tuple[int, int] | None:
    """Returns channel and handle of the last attach in the output, or None."""
    found = None
    for _, body, _, channel in frames(data):
        if data[body : body + 3] == _ATTACH:
            first, _, _ = compound(data, body + 3)
            handle, _ = decode(data, value_end(data, first))
            if isinstance(handle, int):
                found = channel, int(handle)
    return found


def with_link_flow(data: bytes, channel: int, state: LinkFlow) -> bytes:
    """Returns the output with link fields added to a flow of the channel. If that flow has another link, a second flow
    follows it."""
    for start, body, end, frame_channel in frames(data):
        if frame_channel != channel or data[body : body + 3] != _FLOW:
            continue
        performative = Performative(FLOW, *compound(data, body + 3))
        starts = field_starts(data, performative, _SESSION_FLOW_FIELDS)
        handle, delivery_count, credit, drain = state
        link_fields = (UInt(handle), UInt(delivery_count), UInt(credit), None, drain)
        fields = data[starts[0] : starts[-1]] + b"".join(map(encode, link_fields))
        flow = frame_of(FLOW, channel, _SESSION_FLOW_FIELDS + len(link_fields), fields)
        copied = start if performative.field_count == _SESSION_FLOW_FIELDS else end
        return data[:copied] + flow + data[end:]
    return data


def without_bare_settlements(data: bytes) -> bytes:
    """Returns the output without dispositions that settle and have no state."""
    parts: list[bytes] = []
    for start, body, end, _ in frames(data):
        if data[body : body + 3] == _DISPOSITION:
            _, count, _ = compound(data, body + 3)
            if count <= _STATELESS_DISPOSITION_FIELDS:
                continue
        parts.append(data[start:end])
    return b"".join(parts)


def sender_dispositions(
    channel: int, ids: list[int], state: bytes, *, settled: bool
) -> list[bytes]:
    """Returns dispositions of the broker for deliveries that it sent, with one state or none."""
    end = (b"\x41" if settled else b"\x42") + state
    count = 5 if state else 4
    written = []
    for first, last in [(ids[0], ids[-1])] if _are_consecutive(ids) else ranges_of(ids):
        fields = b"\x42" + _uint(first) + (_NULL if first == last else _uint(last)) + end
        if len(fields) > _SHORT_FIELDS_BYTES:
            written.append(frame_of(DISPOSITION, channel, count, fields))
        else:  # the same, in one step
            size = _SHORT_FRAME_BYTES + len(fields)
            head = _short_disposition(size, 2, 0, channel, _SHORT_LIST, len(fields) + 1, count)
            written.append(head + fields)
    return written


def _are_consecutive(ids: list[int]) -> bool:
    """Whether ids are one range, as nearly always. False for a range that continues at 0; `ranges_of` finds that."""
    if len(ids) < 2:
        return bool(ids)
    return ids[-1] - ids[0] == len(ids) - 1 and ids == list(range(ids[0], ids[-1] + 1))


def _uint(value: int) -> bytes:
    """Does the same as `encode` for a `UInt`, in a third of the time. Every settlement of a client needs it."""
    if value > 0xFF:
        return b"\x70" + value.to_bytes(4, "big")
    return b"\x52" + value.to_bytes(1, "big") if value else b"\x43"


def with_client_ids(data: bytes, sessions: IncomingSessions) -> bytes:
    """Returns the output with the client's delivery ids in dispositions. Records the channels of begins and ends."""
    parts: list[bytes] = []
    copied = 0
    for start, body, end, channel in frames(data):
        what = data[body : body + 3]
        if what == _DISPOSITION:
            session = sessions.by_own_channel.get(channel)
            if session is not None and session.ids.renumbered:
                parts.append(data[copied:start])
                parts.append(_disposition_to_client(data, channel, body, session))
                copied = end
        elif what == _BEGIN:
            first, count, _ = compound(data, body + 3)
            remote_channel = decode(data, first)[0] if count else None
            if isinstance(remote_channel, int):
                sessions.begin_answered(channel, int(remote_channel))
        elif what == _END:
            sessions.end_written(channel)
    if not copied:
        return data
    parts.append(data[copied:])
    return b"".join(parts)


def _disposition_to_client(data: bytes, channel: int, body: int, session: IncomingSession) -> bytes:
    performative = Performative(data[body + 2], *compound(data, body + 3))
    starts = field_starts(data, performative, 4)
    if not is_true_at(data, starts, 0):
        return frame_of(
            performative.code, channel, performative.field_count, _fields(data, performative)
        )
    first = uint_at(data, starts, 1) or 0
    last = uint_at(data, starts, 2)
    settled = is_true_at(data, starts, 3)
    ranges = session.ids.to_client(first, first if last is None else last, settled=settled)
    return b"".join(disposition_of(data, channel, performative, starts, each) for each in ranges)


def _fields(data: bytes, performative: Performative) -> bytes:
    return data[performative.first : performative.end]
