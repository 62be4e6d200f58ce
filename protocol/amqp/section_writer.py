"""Delivered messages: the broker's sections in front of the bytes the sender wrote.

Owns header, annotations and what an overlay or a time to live changes about a stored message;
reading is `section_reader`'s. Every encoding has a header and a properties section, and the
annotation types are those the SDKs cast to without looking.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from protocol.amqp.section_reader import body_sections, entries_of, skip_fields
from protocol.amqp.values import (
    Symbol,
    compound,
    compound_of,
    decode,
    encode,
    encode_map_entries,
    encode_string,
    encode_symbol,
    map_entries,
    value_end,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.message import Message
    from broker.core.overlay import Overlay

_PROPERTIES = b"\x00\x53\x73"
_SHORT_PROPERTIES = b"\x00\x53\x73\xc0"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_NO_PROPERTIES = b"\x00\x53\x73\x45"
_MAX_UINT = 0xFFFFFFFF
_pack_expiry = struct.Struct(">BqBq").pack
_pack_long = struct.Struct(">q").pack

MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID, CONTENT_TYPE = range(7)
CONTENT_ENCODING, ABSOLUTE_EXPIRY_TIME, CREATION_TIME, GROUP_ID = range(7, 11)
GROUP_SEQUENCE, REPLY_TO_GROUP_ID = range(11, 13)

PROPERTY_FIELDS = {
    "messageid": MESSAGE_ID,
    "to": TO,
    "label": SUBJECT,
    "replyto": REPLY_TO,
    "correlationid": CORRELATION_ID,
    "contenttype": CONTENT_TYPE,
    "sessionid": GROUP_ID,
    "replytosessionid": REPLY_TO_GROUP_ID,
}
"""`sys.` names, and the field of the properties section each stands for."""

ANNOTATIONS = {
    "partitionkey": b"x-opt-partition-key",
    "viapartitionkey": b"x-opt-via-partition-key",
    "scheduledenqueuetimeutc": b"x-opt-scheduled-enqueue-time",
}
"""`sys.` names, and the message annotation each stands for."""

# --- the lock token as a delivery tag ----------------------------------------------------------

_MIXED_ENDIAN = bytes((3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15))
_REST_OF_TABLE = bytes(240)


def delivery_tag(token: bytes) -> bytes:
    """A lock token in the byte order of a .NET `Guid`, as SDKs read it from the delivery tag.

    Translating the wanted order through the token permutes it in one C call.
    """
    return _MIXED_ENDIAN.translate(token + _REST_OF_TABLE)


lock_token = delivery_tag
"""The token a delivery tag stands for: swapping twice gives back what was."""


# --- the plain message: one pack ---------------------------------------------------------------


def _symbol_key(name: bytes, code: int) -> bytes:
    """A map key and the constructor of the value behind it."""
    return b"\xa3" + bytes((len(name),)) + name + bytes((code,))


_LOCK_TOKEN = _symbol_key(b"x-opt-lock-token", 0x98)
_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1" + bytes((1 + len(_LOCK_TOKEN) + 16, 2)) + _LOCK_TOKEN
_ENQUEUED_TIME = _symbol_key(b"x-opt-enqueued-time", 0x83)
_SEQUENCE_NUMBER = _symbol_key(b"x-opt-sequence-number", 0x81)
_ENQUEUE_SEQUENCE_NUMBER = _symbol_key(b"x-opt-enqueue-sequence-number", 0x81)
_MESSAGE_STATE = _symbol_key(b"x-opt-message-state", 0x54)
_LOCKED_UNTIL = _symbol_key(b"x-opt-locked-until", 0x83)
_SCHEDULED_ENQUEUE_TIME = _symbol_key(b"x-opt-scheduled-enqueue-time", 0x83)
_DEADLETTER_SOURCE = encode_symbol("x-opt-deadletter-source")

_OWN_LAYOUT = (
    f"{len(_ENQUEUED_TIME)}sq{len(_SEQUENCE_NUMBER)}sq"
    f"{len(_ENQUEUE_SEQUENCE_NUMBER)}sq{len(_MESSAGE_STATE)}sb"
)
_LOCK_LAYOUT = f"{len(_LOCKED_UNTIL)}sq"
_pack_own = struct.Struct(">" + _OWN_LAYOUT).pack
_pack_lock = struct.Struct(">" + _LOCK_LAYOUT).pack
_OWN_SIZE = struct.calcsize(">" + _OWN_LAYOUT)
_LOCK_SIZE = struct.calcsize(">" + _LOCK_LAYOUT)

_SCHEDULED_SIZE = len(_SCHEDULED_ENQUEUE_TIME) + 8


def _annotations_start(*, locked: bool, scheduled: bool) -> bytes:
    size = 1 + _OWN_SIZE + locked * _LOCK_SIZE + scheduled * _SCHEDULED_SIZE
    return b"\x00\x53\x72\xc1" + bytes((size, 8 + 2 * locked + 2 * scheduled)) + _ENQUEUED_TIME


_ANNOTATIONS_START = _annotations_start(locked=False, scheduled=False)
_LOCKED_START = _annotations_start(locked=True, scheduled=False)
_SCHEDULED_START = _annotations_start(locked=False, scheduled=True)
_LOCKED_SCHEDULED_START = _annotations_start(locked=True, scheduled=True)


@lru_cache(maxsize=512)
def _header_start(header: int, time_to_live_ms: int | None = None) -> bytes:
    """A header section up to the number of its delivery count."""
    durable = b"\x41" if header & 1 else b"\x40"
    priority = b"\x50" + bytes(((header >> 1) - 1,)) if header >> 1 else b"\x40"
    time_to_live = b"\x40"
    if time_to_live_ms is not None:
        time_to_live = struct.pack(">BI", 0x70, min(time_to_live_ms, _MAX_UINT))
    fields = durable + priority + time_to_live + b"\x40\x70"
    return b"\x00\x53\x70\xc0" + bytes((1 + len(fields) + 4, 5)) + fields


_HEADER_STARTS = [_header_start(header) for header in range(2 * 257)]
"""By `Message.header`: a durable flag and no priority or one of 256."""


def _plain_struct(header_start: bytes, *, locked: bool) -> struct.Struct:
    start = f">{len(header_start)}sI"
    if not locked:
        return struct.Struct(f"{start}{len(_ANNOTATIONS_START)}s" + _OWN_LAYOUT.split("s", 1)[1])
    return struct.Struct(
        f"{start}{len(_DELIVERY_ANNOTATIONS)}s16s{len(_LOCKED_START)}s"
        + _OWN_LAYOUT.split("s", 1)[1]
        + _LOCK_LAYOUT
    )


_STARTS = [_header_start(header, live) for header in (0, 2) for live in (None, 0)]
_PACK_UNLOCKED = {len(start): _plain_struct(start, locked=False).pack for start in _STARTS}
_PACK_LOCKED = {len(start): _plain_struct(start, locked=True).pack for start in _STARTS}
"""By the length of the header: a priority takes a byte more than none, a time to live four."""


def encode_delivery(
    message: Message, lock_token: bytes | None, locked_until_ms: int
) -> tuple[bytes, bytes]:
    """A message for the wire, in two parts to be sent one after the other.

    The second is the stored body itself wherever nothing has to change in it.
    """
    body = message.body
    assert body is not None, "a message is delivered once its body is in memory"
    if message.overlay is not None or message.annotations:
        return _encode_changed(message, body, lock_token, locked_until_ms)
    time_to_live_ms = message.time_to_live_ms
    scheduled_ms = message.scheduled_enqueue_time_ms
    header_start = (
        _HEADER_STARTS[message.header]
        if time_to_live_ms is None
        else _header_start(message.header, time_to_live_ms)
    )
    if lock_token is None:
        head = _PACK_UNLOCKED[len(header_start)](
            header_start,
            message.delivery_count,
            _SCHEDULED_START if scheduled_ms else _ANNOTATIONS_START,
            message.enqueued_time_ms,
            _SEQUENCE_NUMBER,
            message.sequence_number,
            _ENQUEUE_SEQUENCE_NUMBER,
            message.enqueue_sequence_number,
            _MESSAGE_STATE,
            message.state,
        )
    else:
        head = _PACK_LOCKED[len(header_start)](
            header_start,
            message.delivery_count,
            _DELIVERY_ANNOTATIONS,
            lock_token,
            _LOCKED_SCHEDULED_START if scheduled_ms else _LOCKED_START,
            message.enqueued_time_ms,
            _SEQUENCE_NUMBER,
            message.sequence_number,
            _ENQUEUE_SEQUENCE_NUMBER,
            message.enqueue_sequence_number,
            _MESSAGE_STATE,
            message.state,
            _LOCKED_UNTIL,
            locked_until_ms,
        )
    if scheduled_ms:
        head += _SCHEDULED_ENQUEUE_TIME + _pack_long(scheduled_ms)
    if time_to_live_ms is not None:
        properties, end = _expiring_properties(message.enqueued_time_ms, time_to_live_ms, body)
        return head + properties, body[end:]
    if body.startswith(_PROPERTIES):
        return head, body
    return head + _NO_PROPERTIES, body


def encode_message(
    message: Message, lock_token: bytes | None = None, locked_until_ms: int = 0
) -> bytes:
    """A message in one piece, as `$management` replies carry it."""
    head, body = encode_delivery(message, lock_token, locked_until_ms)
    return head + body


# --- the changed message -----------------------------------------------------------------------


def _encode_changed(
    message: Message, body: bytes, lock_token: bytes | None, locked_until_ms: int
) -> tuple[bytes, bytes]:
    overlay = message.overlay
    time_to_live_ms = message.time_to_live_ms
    parts = [
        _header_start(message.header, time_to_live_ms),
        struct.pack(">I", message.delivery_count),
    ]
    if lock_token is not None:
        parts += (_DELIVERY_ANNOTATIONS, lock_token)
    parts.append(_message_annotations(message, lock_token is not None, locked_until_ms))
    properties_end, application_properties_end = body_sections(body)
    if overlay is not None and overlay.system:
        parts.append(_changed_properties(message, body))
    elif time_to_live_ms is not None:
        parts.append(_expiring_properties(message.enqueued_time_ms, time_to_live_ms, body)[0])
    else:
        parts.append(body[:properties_end] or _NO_PROPERTIES)
    if overlay is None:
        return b"".join(parts), body[properties_end:]
    parts.append(_changed_application_properties(overlay, body, properties_end))
    return b"".join(parts), body[application_properties_end:]


def _message_annotations(message: Message, locked: bool, locked_until_ms: int) -> bytes:  # noqa: FBT001
    entries = [
        _pack_own(
            _ENQUEUED_TIME,
            message.enqueued_time_ms,
            _SEQUENCE_NUMBER,
            message.sequence_number,
            _ENQUEUE_SEQUENCE_NUMBER,
            message.enqueue_sequence_number,
            _MESSAGE_STATE,
            message.state,
        )
    ]
    count = 8
    if locked:
        entries.append(_pack_lock(_LOCKED_UNTIL, locked_until_ms))
        count += 2
    overlay = message.overlay
    changes: dict[bytes, bytes | None] = {}
    if overlay is not None and overlay.system:
        changes = {
            ANNOTATIONS[name]: value
            for name, value in overlay.system.items()
            if name in ANNOTATIONS
        }
    if message.annotations:
        if changes:
            own, own_count = _without(message.annotations, changes)
        else:
            first, own_count, end = compound(message.annotations, 0)
            own = message.annotations[first:end]
        entries.append(own)
        count += own_count
    if message.scheduled_enqueue_time_ms and ANNOTATIONS["scheduledenqueuetimeutc"] not in changes:
        entries.append(_SCHEDULED_ENQUEUE_TIME + _pack_long(message.scheduled_enqueue_time_ms))
        count += 2
    for name, value in changes.items():
        if value is not None:
            entries += (encode_symbol(name.decode()), value)
            count += 2
    if overlay is not None and overlay.dead_letter_source is not None:
        entries += (_DEADLETTER_SOURCE, encode_string(overlay.dead_letter_source))
        count += 2
    return b"\x00\x53\x72" + compound_of(0xC1, count, b"".join(entries))


def _without(annotations: bytes, names: Mapping[bytes, object]) -> tuple[bytes, int]:
    """The entries of an annotations map except those of some names, and how many items remain."""
    kept = [
        annotations[position:end]
        for name, position, _, end in entries_of(annotations, 0)
        if name not in names
    ]
    return b"".join(kept), 2 * len(kept)


def _changed_properties(message: Message, body: bytes) -> bytes:
    """The properties section with the expiry of this delivery and what rule actions have set."""
    fields = _fields(body)
    if message.time_to_live_ms is not None:
        expiry = _expiry_fields(message.enqueued_time_ms, message.time_to_live_ms)
        _set(fields, CREATION_TIME, expiry[9:])
        _set(fields, ABSOLUTE_EXPIRY_TIME, expiry[:9])
    if message.overlay is not None:
        for name, value in message.overlay.system.items():
            if name in PROPERTY_FIELDS:
                _set(fields, PROPERTY_FIELDS[name], _field_value(name, value))
    return _PROPERTIES + compound_of(0xC0, len(fields), b"".join(fields))


def _expiring_properties(
    enqueued_time_ms: int, time_to_live_ms: int, body: bytes
) -> tuple[bytes, int]:
    """The properties section with the expiry of this delivery and nothing else changed, and where
    in the body the next section begins.

    Spliced in without taking the other fields apart: every message of an entity with a time to
    live comes this way.
    """
    expiry = _expiry_fields(enqueued_time_ms, time_to_live_ms)
    if body[:4] == _SHORT_PROPERTIES:
        first, count, end = 6, body[5], 5 + body[4]
    elif body.startswith(_PROPERTIES):
        first, count, end = compound(body, 3)
    else:
        return _PROPERTIES + compound_of(0xC0, 10, b"\x40" * 8 + expiry), 0
    if count <= ABSOLUTE_EXPIRY_TIME:
        nulls = b"\x40" * (ABSOLUTE_EXPIRY_TIME - count)
        return _PROPERTIES + compound_of(0xC0, 10, body[first:end] + nulls + expiry), end
    middle = skip_fields(body, first, ABSOLUTE_EXPIRY_TIME)
    if count == CREATION_TIME:
        return _PROPERTIES + compound_of(0xC0, 10, body[first:middle] + expiry), end
    rest = skip_fields(body, middle, 2)
    fields = body[first:middle] + expiry + body[rest:end]
    return _PROPERTIES + compound_of(0xC0, count, fields), end


def _expiry_fields(enqueued_time_ms: int, time_to_live_ms: int) -> bytes:
    """Absolute expiry time and creation time, which stand next to each other."""
    return _pack_expiry(0x83, enqueued_time_ms + time_to_live_ms, 0x83, enqueued_time_ms)


def _fields(body: bytes) -> list[bytes]:
    if not body.startswith(_PROPERTIES):
        return []
    position, count, _ = compound(body, 3)
    fields = []
    for _ in range(count):
        end = value_end(body, position)
        fields.append(body[position:end])
        position = end
    return fields


def _set(fields: list[bytes], index: int, value: bytes) -> None:
    if len(fields) <= index:
        fields += [b"\x40"] * (index + 1 - len(fields))
    fields[index] = value


def _field_value(name: str, value: bytes | None) -> bytes:
    if value is None:
        return b"\x40"
    if name == "contenttype":
        text = decode(value)[0]
        return encode(Symbol(text)) if isinstance(text, str) else value
    return value


def _changed_application_properties(overlay: Overlay, body: bytes, start: int) -> bytes:
    properties = (
        map_entries(body, start + 3) if body.startswith(_APPLICATION_PROPERTIES, start) else {}
    )
    for name, value in overlay.properties.items():
        if value is None:
            properties.pop(name, None)
        else:
            properties[name] = value
    for name, text in (
        ("DeadLetterReason", overlay.dead_letter_reason),
        ("DeadLetterErrorDescription", overlay.dead_letter_description),
    ):
        if text is not None:
            properties[name] = encode_string(text)
    return _APPLICATION_PROPERTIES + encode_map_entries(properties) if properties else b""
