"""Encodes delivered messages: the broker's sections before the bytes that the sender wrote.

`protocol/native` writes the sections of messages without changes and annotations. Here all others are written.

Every message has a header and a properties section. Annotations have the types to which the SDKs cast without a check.
The bytes of the sender are not changed: the time to live is in the header, not in the sender's creation and expiry
times.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from protocol.codec.changed_properties import (
    changed_application_properties,
    changed_properties,
    long_lived_properties,
)
from protocol.codec.described_types import (
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES_START,
    section_start,
)
from protocol.codec.section_maps import EMPTY_MAP, entries_of
from protocol.codec.section_reader import body_sections
from protocol.codec.time_to_live import BEYOND_HEADER_MS
from protocol.codec.value_decoder import compound
from protocol.codec.value_encoder import compound_of, encode_string, encode_symbol
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.message import Message

_NO_PROPERTIES = PROPERTIES_START + b"\x45"
_BODY = attrgetter("body")
_pack_long = struct.Struct(">q").pack

ANNOTATIONS = {
    "partitionkey": b"x-opt-partition-key",
    "viapartitionkey": b"x-opt-via-partition-key",
    "scheduledenqueuetimeutc": b"x-opt-scheduled-enqueue-time",
}
"""Message annotations by their `sys.` names."""

# --- the lock token as a delivery tag ----------------------------------------------------------

_MIXED_ENDIAN = bytes((3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15))
_REST_OF_TABLE = bytes(240)


def delivery_tag(token: bytes) -> bytes:
    """Returns a lock token in the byte order of a .NET `Guid`, as SDKs read it from the delivery tag.

    Translating the order of the bytes with the token as table permutes the token in one C call.
    """
    return _MIXED_ENDIAN.translate(token + _REST_OF_TABLE)


lock_token = delivery_tag
"""Returns the lock token of a delivery tag: the same permutation is its own inverse."""


# --- the broker's annotations ------------------------------------------------------------------


def _symbol_key(name: bytes, code: int) -> bytes:
    """Returns a map key and the constructor of its value."""
    return b"\xa3" + bytes((len(name),)) + name + bytes((code,))


_LOCK_TOKEN = _symbol_key(b"x-opt-lock-token", 0x98)
_DELIVERY_ANNOTATIONS = (
    section_start(DELIVERY_ANNOTATIONS)
    + b"\xc1"
    + bytes((1 + len(_LOCK_TOKEN) + 16, 2))
    + _LOCK_TOKEN
)
_NO_DELIVERY_ANNOTATIONS = section_start(DELIVERY_ANNOTATIONS) + EMPTY_MAP
"""The section is present without a lock too: the live tests of the Python SDK require an empty map in
receive-and-delete."""
_ENQUEUED_TIME = _symbol_key(b"x-opt-enqueued-time", 0x83)
_SEQUENCE_NUMBER = _symbol_key(b"x-opt-sequence-number", 0x81)
_ENQUEUE_SEQUENCE_NUMBER = _symbol_key(b"x-opt-enqueue-sequence-number", 0x81)
_MESSAGE_STATE = _symbol_key(b"x-opt-message-state", 0x54)
_LOCKED_UNTIL = _symbol_key(b"x-opt-locked-until", 0x83)
_SCHEDULED_ENQUEUE_TIME = _symbol_key(b"x-opt-scheduled-enqueue-time", 0x83)
_DEADLETTER_SOURCE = encode_symbol("x-opt-deadletter-source")

_pack_own = struct.Struct(f">{len(_ENQUEUED_TIME)}sq{len(_SEQUENCE_NUMBER)}sq").pack

# One bit for each annotation that only some messages have.
_WITH_NUMBER, _WITH_SCHEDULE, _WITH_STATE, _WITH_LOCK, _WAS_SCHEDULED = 1, 2, 4, 8, 16


@lru_cache(maxsize=512)
def _header_start(header: int, time_to_live_ms: int | None = None) -> bytes:
    """Returns a header section up to its delivery count, see `pack_header`."""
    durable = b"\x41" if header & 1 else b"\x42" if header & 1 << 10 else b"\x40"
    number = header >> 1 & 0x1FF
    priority = b"\x50" + bytes((number - 1,)) if number else b"\x40"
    time_to_live = b"\x40"
    if time_to_live_ms is not None:
        time_to_live = struct.pack(">BI", 0x70, min(time_to_live_ms, BEYOND_HEADER_MS))
    first_acquirer = (b"\x40", b"\x41", b"\x42")[header >> 11]
    fields = durable + priority + time_to_live + first_acquirer + b"\x70"
    return section_start(HEADER) + b"\xc0" + bytes((1 + len(fields) + 4, 5)) + fields


def encode_deliveries(
    messages: Sequence[Message],
    tokens: Sequence[bytes | None],
    locked_until_ms: int,
    *,
    from_topic: bool = False,
    with_state: bool = False,
) -> tuple[list[bytes], list[bytes]]:
    """Returns encoded messages, each in two parts.

    The second part is the stored body itself if nothing changes in it. `from_topic`: the messages are in a
    subscription and have the sequence number of its topic as an annotation, as a forwarded message has that of its
    first entity. `with_state`: the message state is an annotation, as in every answer of `$management`. On a link the
    service omits the state, except for a message that was scheduled, which keeps the state scheduled.
    """
    messages, tokens = list(messages), list(tokens)
    heads: list[bytes] = []
    bodies: list[bytes] = list(map(_BODY, messages))
    lock = _pack_long(locked_until_ms) if locked_until_ms else b""
    while (index := len(heads)) < len(messages):
        message, token = messages[index], tokens[index]
        kind = from_topic, with_state, not lock, token is None
        shape, template, places = _last_templates.get(kind, _NO_TEMPLATE)
        written = compiled.write_heads(messages, tokens, index, shape, template + lock, places)
        if not written and shape != (shape := _shape_of(message)):
            present = _present(message, from_topic=from_topic, with_state=with_state)
            template, places = _template(
                message.header,
                message.time_to_live_ms is not None,
                token is not None,
                present | _WITH_LOCK if lock else present,
                message.state if with_state else MessageState.SCHEDULED,
            )
            _last_templates[kind] = shape, template, places
            written = compiled.write_heads(messages, tokens, index, shape, template + lock, places)
        if written:
            heads += written
            continue
        head, bodies[index] = encode_any(
            message, token, locked_until_ms, from_topic=from_topic, with_state=with_state
        )
        heads.append(head)
    return heads, bodies


_NO_TEMPLATE = (-1, b"", bytes(7))
_last_templates: dict[tuple[bool, bool, bool, bool], tuple[int, bytes, bytes]] = {}
"""The template that was used last, and for which messages: the next are nearly always like them."""


def _shape_of(message: Message) -> int:
    """Returns what the template of a message depends on, as `read_fields` in `protocol/native/messages.c` does."""
    return (
        message.header << 16
        | message.state << 4
        | (message.time_to_live_ms is None) << 3
        | (message.enqueue_sequence_number == message.sequence_number) << 2
        | (message.scheduled_enqueue_time_ms != 0) << 1
        | (message.scheduled_enqueue_time_ms == message.enqueued_time_ms)
    )


@lru_cache(maxsize=512)
def _template(
    header: int,
    has_time_to_live: bool,  # noqa: FBT001 -- a cache is quickest without names
    has_token: bool,  # noqa: FBT001
    present: int,
    state: int,
) -> tuple[bytes, bytes]:
    """Returns the sections before the properties of messages that differ only in numbers. The compiled module writes
    the numbers and the lock token to the places that are returned with them, in its order. The time until which
    the message is locked follows, if there is one."""
    template = _header_start(header, 0 if has_time_to_live else None)
    time_to_live_at = len(template) - 6 if has_time_to_live else 0
    count_at = len(template)
    template += bytes(4) + (_DELIVERY_ANNOTATIONS if has_token else _NO_DELIVERY_ANNOTATIONS)
    token_at = len(template) if has_token else 0
    template += bytes(16 if has_token else 0)
    entries = _ENQUEUED_TIME + bytes(8) + _SEQUENCE_NUMBER + bytes(8)
    count = 4
    places = [len(_ENQUEUED_TIME), len(entries) - 8]
    for bit, key in (
        (_WITH_NUMBER, _ENQUEUE_SEQUENCE_NUMBER),
        (_WITH_SCHEDULE, _SCHEDULED_ENQUEUE_TIME),
    ):
        entries += key + bytes(8) if present & bit else b""
        places.append(len(entries) - 8 if present & bit else 0)
        count += 2 if present & bit else 0
    if present & (_WITH_STATE | _WAS_SCHEDULED):
        entries += _MESSAGE_STATE + bytes((state,))
        count += 2
    size = len(entries)
    if present & _WITH_LOCK:
        entries += _LOCKED_UNTIL
        size += len(_LOCKED_UNTIL) + 8
        count += 2
    template += section_start(MESSAGE_ANNOTATIONS) + bytes((0xC1, 1 + size, count))
    start = len(template)
    numbers_at = [start + place if place else 0 for place in places]
    return template + entries, bytes((token_at, time_to_live_at, count_at, *numbers_at))


def encode_delivery(
    message: Message,
    lock_token: bytes | None,
    locked_until_ms: int,
    *,
    from_topic: bool = False,
    with_state: bool = False,
) -> tuple[bytes, bytes]:
    """Returns one encoded message in two parts, see `encode_deliveries`."""
    (head,), (body,) = encode_deliveries(
        (message,), (lock_token,), locked_until_ms, from_topic=from_topic, with_state=with_state
    )
    return head, body


def _present(message: Message, *, from_topic: bool, with_state: bool) -> int:
    """Returns the bits of the annotations that this message has, except that of the lock."""
    changes = message.changes
    is_forwarded = changes is not None and changes.hops > 0
    present = _WITH_STATE if with_state else 0
    if from_topic or is_forwarded or message.enqueue_sequence_number != message.sequence_number:
        present |= _WITH_NUMBER
    if message.scheduled_enqueue_time_ms:
        present |= _WITH_SCHEDULE
        # A message that waited was enqueued at its scheduled time. One that arrived later was not scheduled.
        if message.scheduled_enqueue_time_ms == message.enqueued_time_ms and not with_state:
            present |= _WAS_SCHEDULED
    return present


def _optional_entries(message: Message, present: int, locked_until_ms: int) -> list[bytes]:
    """Returns the entries of the annotations in `present`."""
    entries = []
    if present & _WITH_NUMBER:
        entries.append(_ENQUEUE_SEQUENCE_NUMBER + _pack_long(message.enqueue_sequence_number))
    if present & _WITH_SCHEDULE:
        entries.append(_SCHEDULED_ENQUEUE_TIME + _pack_long(message.scheduled_enqueue_time_ms))
    if present & _WITH_STATE:
        entries.append(_MESSAGE_STATE + bytes((message.state,)))
    if present & _WAS_SCHEDULED:
        entries.append(_MESSAGE_STATE + bytes((MessageState.SCHEDULED,)))
    if present & _WITH_LOCK:
        entries.append(_LOCKED_UNTIL + _pack_long(locked_until_ms))
    return entries


def encode_message(
    message: Message,
    lock_token: bytes | None = None,
    locked_until_ms: int = 0,
    *,
    from_topic: bool = False,
) -> bytes:
    """Returns an encoded message in one part, as in replies of `$management`."""
    head, body = encode_delivery(
        message, lock_token, locked_until_ms, from_topic=from_topic, with_state=True
    )
    return head + body


# --- any message -------------------------------------------------------------------------------


def encode_any(
    message: Message,
    lock_token: bytes | None,
    locked_until_ms: int,
    *,
    from_topic: bool,
    with_state: bool,
) -> tuple[bytes, bytes]:
    """Returns any message in two parts. Messages without changes and annotations, which are nearly all, are written by
    the compiled module, with the same result."""
    body = message.body
    assert body is not None, "a message is delivered once its body is in memory"
    changes = message.changes
    time_to_live_ms = message.time_to_live_ms
    present = _present(message, from_topic=from_topic, with_state=with_state)
    if locked_until_ms:
        present |= _WITH_LOCK
    parts = [
        _header_start(message.header, time_to_live_ms),
        struct.pack(">I", message.delivery_count),
        _delivery_annotations(message.annotations, lock_token),
        _message_annotations(message, present, locked_until_ms),
    ]
    properties_end, application_properties_end = body_sections(body)
    if changes is not None and changes.system:
        parts.append(changed_properties(message, body))
    elif time_to_live_ms is not None and time_to_live_ms > BEYOND_HEADER_MS:
        parts.append(long_lived_properties(message, time_to_live_ms, body)[0])
    else:
        parts.append(body[:properties_end] or _NO_PROPERTIES)
    if changes is None:
        return b"".join(parts), body[properties_end:]
    parts.append(changed_application_properties(changes, body, properties_end))
    return b"".join(parts), body[application_properties_end:]


def _delivery_annotations(annotations: bytes, lock_token: bytes | None) -> bytes:
    """Returns the sender's own delivery annotations with the lock token."""
    start = compound(annotations, 0)[2] if annotations else 0
    if start == len(annotations):
        if lock_token is None:
            return _NO_DELIVERY_ANNOTATIONS
        return _DELIVERY_ANNOTATIONS + lock_token
    first, count, end = compound(annotations, start)
    entries = annotations[first:end]
    if lock_token is not None:
        entries += _LOCK_TOKEN + lock_token
        count += 2
    return section_start(DELIVERY_ANNOTATIONS) + compound_of(0xC1, count, entries)


def _message_annotations(message: Message, present: int, locked_until_ms: int) -> bytes:
    changes = message.changes
    changed_annotations: dict[bytes, bytes | None] = {}
    if changes is not None and changes.system:
        changed_annotations = {
            ANNOTATIONS[name]: value
            for name, value in changes.system.items()
            if name in ANNOTATIONS
        }
    if ANNOTATIONS["scheduledenqueuetimeutc"] in changed_annotations:
        present &= ~_WITH_SCHEDULE
    entries = [
        _pack_own(
            _ENQUEUED_TIME, message.enqueued_time_ms, _SEQUENCE_NUMBER, message.sequence_number
        ),
        *_optional_entries(message, present, locked_until_ms),
    ]
    count = 2 + 2 * len(entries)
    if message.annotations:
        if changed_annotations:
            own, own_count = _without(message.annotations, changed_annotations)
        else:
            first, own_count, end = compound(message.annotations, 0)
            own = message.annotations[first:end]
        entries.append(own)
        count += own_count
    for name, value in changed_annotations.items():
        if value is not None:
            entries += (encode_symbol(name.decode()), value)
            count += 2
    if changes is not None and changes.dead_letter_source is not None:
        entries += (_DEADLETTER_SOURCE, encode_string(changes.dead_letter_source))
        count += 2
    return section_start(MESSAGE_ANNOTATIONS) + compound_of(0xC1, count, b"".join(entries))


def _without(annotations: bytes, names: Mapping[bytes, object]) -> tuple[bytes, int]:
    """Returns the entries of an annotations map without those of some names, and the number of their items."""
    kept = [
        annotations[position:end]
        for name, position, _, end in entries_of(annotations, 0)
        if name not in names
    ]
    return b"".join(kept), 2 * len(kept)
