"""Properties of a delivered message that differ from those that its sender wrote.

Rule actions and settlements change properties and application properties, and a time to live that is too long for the
header is written as expiry time. `section_writer` writes headers and annotations.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from config.model.definitions import UNLIMITED_MS
from protocol.codec.described_types import APPLICATION_PROPERTIES_START, PROPERTIES_START
from protocol.codec.section_reader import body_sections
from protocol.codec.time_to_live import BEYOND_HEADER_MS, LATEST_MS
from protocol.codec.value_decoder import compound, decode, map_entries, value_end
from protocol.codec.value_encoder import compound_of, encode, encode_map_entries, encode_string
from protocol.codec.value_types import Symbol

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from broker.core.contract.message_changes import MessageChanges

_pack_long = struct.Struct(">q").pack
_TIMESTAMP = b"\x83"

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
"""Fields of the properties section by their `sys.` names."""


def changed_properties(message: Message, body: bytes) -> bytes:
    """Returns the properties section with the changes of rule actions."""
    fields = _fields(body)
    time_to_live_ms = message.time_to_live_ms
    if time_to_live_ms is not None and time_to_live_ms > BEYOND_HEADER_MS:
        _set_expiry(fields, message.enqueued_time_ms, time_to_live_ms)
    if message.changes is not None:
        for name, value in message.changes.system.items():
            if name in PROPERTY_FIELDS:
                _set(fields, PROPERTY_FIELDS[name], _field_value(name, value))
    return PROPERTIES_START + compound_of(0xC0, len(fields), b"".join(fields))


def long_lived_properties(message: Message, time_to_live_ms: int, body: bytes) -> tuple[bytes, int]:
    """Returns the properties section of a message whose time to live is too long for the header, and where in the body
    the next section begins."""
    fields = _fields(body)
    _set_expiry(fields, message.enqueued_time_ms, time_to_live_ms)
    return PROPERTIES_START + compound_of(0xC0, len(fields), b"".join(fields)), body_sections(body)[
        0
    ]


def _set_expiry(fields: list[bytes], enqueued_time_ms: int, time_to_live_ms: int) -> None:
    """Sets the expiry time in the properties, unless the sender has set it.

    The header can have at most 49 days. For longer times SDKs use the time from creation to expiry.
    """
    if time_to_live_ms >= UNLIMITED_MS or _is_set(fields, ABSOLUTE_EXPIRY_TIME):
        return
    if _is_set(fields, CREATION_TIME):
        created_ms = decode(fields[CREATION_TIME])[0]
    else:
        created_ms = enqueued_time_ms
        _set(fields, CREATION_TIME, _TIMESTAMP + _pack_long(enqueued_time_ms))
    if isinstance(created_ms, int) and created_ms < LATEST_MS - time_to_live_ms:
        _set(fields, ABSOLUTE_EXPIRY_TIME, _TIMESTAMP + _pack_long(created_ms + time_to_live_ms))


def _is_set(fields: list[bytes], index: int) -> bool:
    return len(fields) > index and fields[index] != b"\x40"


def _fields(body: bytes) -> list[bytes]:
    if not body.startswith(PROPERTIES_START):
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


def changed_application_properties(changes: MessageChanges, body: bytes, start: int) -> bytes:
    properties = (
        map_entries(body, start + 3) if body.startswith(APPLICATION_PROPERTIES_START, start) else {}
    )
    for name, value in changes.properties.items():
        if value is None:
            properties.pop(name, None)
        else:
            properties[name] = value
    for name, text in (
        ("DeadLetterReason", changes.dead_letter_reason),
        ("DeadLetterErrorDescription", changes.dead_letter_description),
    ):
        if text is not None:
            properties[name] = encode_string(text)
    return APPLICATION_PROPERTIES_START + encode_map_entries(properties) if properties else b""
