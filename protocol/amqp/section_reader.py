"""Arriving messages: find the sections, keep the bytes.

Owns what a sender's encoding becomes in the broker; the body is never decoded here.
What comes out is canonical: properties, application properties, body and footer, in this order,
under their short descriptors, with every list and map outside the body checked for shape.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from broker.core.errors import UndecodableMessage
from broker.core.message import Message
from protocol.amqp.lifetimes import ABSOLUTE_EXPIRY_TIME, time_to_live
from protocol.amqp.values import (
    SIZED_8,
    SIZED_32,
    WIDTHS,
    compound,
    compound_of,
    decode,
    value_end,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78
_BARE_MESSAGE = (PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER)

_SYMBOLIC_DESCRIPTORS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

SCHEDULED_ENQUEUE_TIME = b"x-opt-scheduled-enqueue-time"

_BROKER_ANNOTATIONS = frozenset(
    {
        b"x-opt-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-locked-until",
        b"x-opt-message-state",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-lock-token",
        b"x-opt-deadletter-source",
        SCHEDULED_ENQUEUE_TIME,
    }
)
"""Given by a broker. A sender that passes a received message on still carries them."""

_APPLICATION_PROPERTIES_MARKS = (b"\x00\x53\x74\xc1", b"\x00\x53\x74\xd1")

_TIMESTAMP = b"\x83"
"""Where this is not found in properties, there is no expiry to look for."""

_length32 = struct.Struct(">I").unpack_from


def read_message(data: bytes) -> Message:
    """A message as it goes to the core. Anything malformed raises `UndecodableMessage`."""
    # The order nearly every sender writes, in the short forms nearly every message has: one walk
    # from section to section. What does not fit is read again, slowly. Constants stand where they
    # are compared and branches are guarded by the likelier case: this runs once a message.
    try:
        header = position = 0
        time_to_live_ms = annotations = None
        mark = data[:4]
        if mark == b"\x00\x53\x70\xc0":
            position = 5 + data[4]
            header, time_to_live_ms = _read_header(data[3:position])
            mark = data[position : position + 4]
        elif mark == b"\x00\x53\x70\x45":
            position = 4
            mark = data[4:8]
        if mark == b"\x00\x53\x72\xc1":
            annotations = _read_annotations(data, position + 3)
            position += 5 + data[position + 4]
            mark = data[position : position + 4]
        bare = position
        if mark == b"\x00\x53\x73\xc0":
            end = position + 5 + data[position + 4]
            count = data[position + 5]
            _check_fields(data, position + 6, count, end)
            if count > ABSOLUTE_EXPIRY_TIME and data.find(_TIMESTAMP, position, end) > 0:
                time_to_live_ms = time_to_live(data, position + 6, count, time_to_live_ms)
            position = end
            mark = data[position : position + 4]
        elif mark == b"\x00\x53\x73\x45":
            position += 4
            mark = data[position : position + 4]
        if mark != b"\x00\x53\x75\xb0" and mark in _APPLICATION_PROPERTIES_MARKS:
            position = _check_properties_map(data, position + 3)
            mark = data[position : position + 4]
        if mark == b"\x00\x53\x75\xb0":
            end = position + 8 + _length32(data, position + 4)[0]
        elif mark == b"\x00\x53\x75\xa0":
            end = position + 5 + data[position + 4]
        elif mark[:3] == b"\x00\x53\x77":
            end = value_end(data, position + 3)
        else:
            end = -1
        if end != len(data):
            return _read_any(data)
    except (IndexError, struct.error) as error:
        raise UndecodableMessage("the message ends inside a section") from error
    # Assigning what is set is quicker than passing it all through keywords.
    message = Message(data[bare:])
    if header:
        message.header = header
    if time_to_live_ms is not None:
        message.time_to_live_ms = time_to_live_ms
    if annotations is not None:
        message.annotations, message.scheduled_enqueue_time_ms = annotations
        message.size += len(message.annotations)
    return message


def read_batch(data: bytes) -> list[Message]:
    """The messages of a batch transfer, each a data section of its own.

    The other sections repeat what the first message says and are passed over.
    """
    messages = []
    for code, start, end in _sections(data):
        if code == DATA:
            messages.append(read_message(_binary(data, start, end)))
        elif code in (SEQUENCE, VALUE):
            raise UndecodableMessage("a batch must consist of data sections")
    if not messages:
        raise UndecodableMessage("a batch holds no message")
    return messages


def body_sections(body: bytes) -> tuple[int, int]:
    """Where the properties and the application properties of a canonical body end.

    A section that is absent ends where it would begin.
    """
    properties = compound(body, 3)[2] if body.startswith(b"\x00\x53\x73") else 0
    if body.startswith(b"\x00\x53\x74", properties):
        return properties, compound(body, properties + 3)[2]
    return properties, properties


def skip_fields(body: bytes, position: int, number: int) -> int:
    """Where the field that many after the one at `position` begins, in a checked list.

    Nulls and short texts, which most fields are, are passed without a call.
    """
    while number:
        code = body[position]
        if code == 0x40:
            has_more = number > 1 and body[position + 1] == 0x40
            nulls = _leading_nulls(body, position, number) if has_more else 1
            position += nulls
            number -= nulls
            continue
        if code == 0xA1 or code == 0xA3:  # noqa: PLR1714 (quicker than a tuple here)
            position += 2 + body[position + 1]
        else:
            position = value_end(body, position)
        number -= 1
    return position


def _leading_nulls(data: bytes, position: int, most: int) -> int:
    """How many of the fields from here on are left out: between two that are set, there are many."""
    fields = data[position : position + most]
    return len(fields) - len(fields.lstrip(b"\x40"))


# --- any order, any descriptor -----------------------------------------------------------------


def _sections(data: bytes) -> list[tuple[int, int, int]]:
    """Code, start of the value and end of every section."""
    sections = []
    position, size = 0, len(data)
    while position < size:
        if data[position]:
            raise UndecodableMessage("a message section must be a described value")
        descriptor, start = decode(data, position + 1)
        code = _SYMBOLIC_DESCRIPTORS.get(descriptor) if isinstance(descriptor, str) else descriptor
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise UndecodableMessage(f"{descriptor!r} is no message section")
        position = value_end(data, start)
        sections.append((int(code), start, position))
    return sections


def _read_any(data: bytes) -> Message:
    found: dict[int, list[bytes]] = {}
    header = scheduled_ms = 0
    time_to_live_ms = None
    properties: tuple[int, int] | None = None
    annotations = b""
    for code, start, end in _sections(data):
        if code in found and code not in (DATA, SEQUENCE):
            raise UndecodableMessage("a message section comes twice")
        if code == HEADER:
            header, time_to_live_ms = _read_header.__wrapped__(data[start:end])
        elif code == MESSAGE_ANNOTATIONS:
            annotations, scheduled_ms = _read_annotations(data, start)
        else:
            _CHECKS[code](data, start, end)
        if code == PROPERTIES:
            properties = compound(data, start)[:2]
        section = b"\x00\x53" + bytes((code,)) + data[start:end]
        if data[start] == 0x40 and code != VALUE:
            section = b""  # Null says what absence says, and SDKs expect only the latter.
        found.setdefault(code, []).append(section)
    if len(found.keys() & {DATA, SEQUENCE, VALUE}) > 1:
        raise UndecodableMessage("a message has bodies of different kinds")
    if not data:
        raise UndecodableMessage("a message has no sections")
    if properties is not None and properties[1] > ABSOLUTE_EXPIRY_TIME:
        time_to_live_ms = time_to_live(data, *properties, time_to_live_ms)
    return Message(
        b"".join(chain.from_iterable(found.get(code, ()) for code in _BARE_MESSAGE)),
        annotations=annotations,
        header=header,
        time_to_live_ms=time_to_live_ms,
        scheduled_enqueue_time_ms=scheduled_ms,
    )


def _binary(data: bytes, start: int, end: int) -> bytes:
    if data[start] not in (0xA0, 0xB0):
        raise UndecodableMessage("a data section must hold binary")
    return data[start + (2 if data[start] == 0xA0 else 5) : end]


def _check_map(data: bytes, start: int, _end: int) -> None:
    for _ in entries_of(data, start):
        pass


def _check_properties_list(data: bytes, start: int, _end: int) -> None:
    if data[start] in (0xC1, 0xD1):
        raise UndecodableMessage("properties must be a list")
    first, count, end = compound(data, start)
    _check_fields(data, first, count, end)


def _check_application_properties(data: bytes, start: int, _end: int) -> None:
    _check_properties_map(data, start)


def _check_sequence(data: bytes, start: int, _end: int) -> None:
    if data[start] not in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("a sequence section must hold a list")


def _check_nothing(_data: bytes, _start: int, _end: int) -> None:
    """A value may be anything."""


_CHECKS: dict[int, Callable[[bytes, int, int], object]] = {
    DELIVERY_ANNOTATIONS: _check_map,
    PROPERTIES: _check_properties_list,
    APPLICATION_PROPERTIES: _check_application_properties,
    DATA: _binary,
    SEQUENCE: _check_sequence,
    VALUE: _check_nothing,
    FOOTER: _check_map,
}


# --- one section each --------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _read_header(section: bytes) -> tuple[int, int | None]:
    """Packed durable flag and priority, and the time to live.

    Kept for the next message: a sender's headers are mostly the same few bytes.
    """
    fields, end = decode(section)
    if end != len(section) or not (isinstance(fields, list) or fields is None):
        raise UndecodableMessage("a header must be a list")
    durable, priority, time_to_live_ms = [*(fields or ()), None, None, None][:3]
    if durable not in (None, True, False):
        raise UndecodableMessage("durable must be a boolean")
    for number in (priority, time_to_live_ms):
        if number is not None and (not isinstance(number, int) or number < 0):
            raise UndecodableMessage("a header field must be an unsigned number")
    header = pack_header(
        durable=durable is True, priority=None if priority is None else min(int(priority), 255)
    )
    # Some clients write 0 for none; a message that is dead on arrival is of use to nobody.
    return header, int(time_to_live_ms) if time_to_live_ms else None


def pack_header(*, durable: bool, priority: int | None) -> int:
    """What `Message.header` carries: the flag below, the priority plus one above, 0 for none."""
    return durable | (0 if priority is None else priority + 1) << 1


def _read_annotations(data: bytes, start: int) -> tuple[bytes, int]:
    """The sender's own annotations as a map, and the scheduled enqueue time."""
    scheduled_ms = 0
    kept: list[bytes] = []
    for name, position, middle, end in entries_of(data, start):
        if name not in _BROKER_ANNOTATIONS:
            kept.append(data[position:end])
        elif name == SCHEDULED_ENQUEUE_TIME:
            moment = decode(data, middle)[0]
            if moment is not None and not isinstance(moment, int):
                raise UndecodableMessage("the scheduled enqueue time must be a timestamp")
            scheduled_ms = max(0, int(moment or 0))
    return compound_of(0xC1, 2 * len(kept), b"".join(kept)) if kept else b"", scheduled_ms


def entries_of(data: bytes, start: int) -> list[tuple[bytes, int, int, int]]:
    """Of every entry of a map: text of the key, where the key, its value and the next begin.

    A key that is no text has none: reserved annotations have numbers (AMQP 1.0 §3.2.10).
    """
    if data[start] in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("a list where a map should be")
    position, count, limit = compound(data, start)
    if count & 1:
        raise UndecodableMessage("a map has a key without a value")
    entries = []
    for _ in range(count >> 1):
        code = data[position]
        middle = value_end(data, position)
        name = data[position + _TEXT_OFFSETS[code] : middle] if code in _TEXT_OFFSETS else b""
        if not name.isascii():
            decode(data, position)  # Refuses what is not UTF-8.
        end = value_end(data, middle)
        if not 0x40 <= data[middle] < 0xC0:
            decode(data, middle)  # Sizes tell nothing about what is inside.
        entries.append((name, position, middle, end))
        position = end
    if position != limit:
        raise UndecodableMessage("a map is not as long as its entries")
    return entries


_TEXT_OFFSETS = {0xA1: 2, 0xA3: 2, 0xB1: 5, 0xB3: 5}


def _check_fields(data: bytes, position: int, count: int, end: int) -> None:
    """Refuse a list of properties whose `count` fields do not fill it exactly."""
    while count:
        code = data[position]
        if code == 0x40:
            if position + 1 < end and data[position + 1] == 0x40:
                nulls = _leading_nulls(data, position, count)
                position += nulls
                count -= nulls
                continue
            position += 1
        elif code == 0xA1:
            position += 2 + data[position + 1]
        elif 0x40 < code < 0xC0:
            position += 1
            width = WIDTHS[code]
            if width >= 0:
                position += width
            elif width == SIZED_8:
                position += 1 + data[position]
            elif width == SIZED_32:
                position += 4 + _length32(data, position)[0]
            else:
                raise UndecodableMessage(f"constructor 0x{code:02x} is unknown")
        else:
            raise UndecodableMessage("properties hold simple values only")
        count -= 1
    if position != end:
        raise UndecodableMessage("properties are not as long as their fields")


def _check_properties_map(data: bytes, start: int) -> int:
    """Refuse application properties that cannot be taken apart later; else tell where they end."""
    if data[start] in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("application properties must be a map")
    position, count, limit = compound(data, start)
    if count & 1:
        raise UndecodableMessage("a map has a key without a value")
    while count:
        code = data[position]
        if code == 0xA1:
            middle = position + 2 + data[position + 1]
        elif code in _TEXT_OFFSETS:
            middle = value_end(data, position)
        else:
            raise UndecodableMessage("an application property's name must be text")
        if not data[position + _TEXT_OFFSETS[code] : middle].isascii():
            decode(data, position)  # Refuses what is not UTF-8.
        code = data[middle]
        if code == 0xA1:
            position = middle + 2 + data[middle + 1]
        else:
            position = value_end(data, middle)
            if not 0x40 <= code < 0xC0:
                decode(data, middle)
        count -= 2
    if position != limit:
        raise UndecodableMessage("a map is not as long as its entries")
    return limit
