"""Decodes one frame: its performative with named fields, and its message in short.

What cannot be decoded is shown as malformed, with the reason. Nothing of its content is shown, because secrets can be
found only in what can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.wire_view.described_fields import (
    PERFORMATIVES,
    ROLES,
    SASL_CODES,
    SASL_FRAMES,
    SETTLE_MODES,
    named_code,
)
from protocol.amqp.wire_view.frame_cutting import PROTOCOL_HEADER_START
from protocol.amqp.wire_view.message_summary import summarize
from protocol.amqp.wire_view.readable_values import named_fields, readable, readable_text
from protocol.amqp.wire_view.secrets import BLANK
from protocol.codec import decode, lock_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.amqp.wire_view.described_fields import DescribedFields
    from protocol.amqp.wire_view.frame_cutting import CutFrame

HEADER_BYTES = 8
LOCK_TOKEN_BYTES = 16
_LOCKED_UNTIL = "x-opt-locked-until"
_AMQP_FRAME, _SASL_FRAME = 0, 1
_PROTOCOLS = {0: "AMQP", 2: "TLS", 3: "SASL"}
_TRANSFER = "transfer"
BATCH_FORMAT = 0x80013700
_TABLES: dict[int, Mapping[int, DescribedFields]] = {
    _AMQP_FRAME: PERFORMATIVES,
    _SASL_FRAME: SASL_FRAMES,
}
_SECRET_FIELDS = ("initial_response", "response", "challenge", "additional_data")


def decode_frame(frame: CutFrame, *, is_output: bool) -> dict[str, Any]:
    """Returns a frame for people. `is_output`: the broker wrote it."""
    decoded: dict[str, Any] = {
        "channel": None,
        "performative": "malformed",
        "fields": {},
        "frame_bytes": frame.size_bytes,
        "payload_bytes": 0,
        "message": None,
        "error": None,
    }
    try:
        decoded |= _decode(frame, is_output=is_output)
    except (UndecodableMessage, IndexError, ValueError, RecursionError) as error:
        decoded["error"] = readable_text(str(error)) or "it could not be decoded"
    return decoded


def _decode(frame: CutFrame, *, is_output: bool) -> dict[str, Any]:
    data = frame.kept
    if data.startswith(PROTOCOL_HEADER_START):
        protocol = _PROTOCOLS.get(data[4], str(data[4]))
        version = ".".join(str(number) for number in data[5:8])
        return {"performative": "header", "fields": {"protocol": protocol, "version": version}}
    if frame.is_unframed:
        raise UndecodableMessage(f"no frame begins with 0x{data.hex()}; what follows is not shown")
    kind = data[5]
    channel = int.from_bytes(data[6:8], "big") if kind == _AMQP_FRAME else None
    body = 4 * data[4]
    if body < HEADER_BYTES or body > frame.size_bytes:
        raise UndecodableMessage(f"the body of a frame cannot begin at byte {body}")
    if body == frame.size_bytes:
        return {"channel": channel, "performative": "empty"}
    table = _TABLES.get(kind)
    if table is None:
        raise UndecodableMessage(f"frames of type {kind} are unknown")
    if data[body]:
        raise UndecodableMessage("the body of a frame must be a performative")
    descriptor, start = decode(data, body + 1)
    described = table.get(named_code(descriptor) or 0)
    if described is None:
        raise UndecodableMessage(f"there is no performative {readable(descriptor)}")
    decoded: dict[str, Any] = {"channel": channel, "performative": described.name}
    try:
        values, end = decode(data, start)
    except UndecodableMessage:
        if frame.size_bytes == len(data):
            raise
        return {**decoded, "error": "the frame is too large to be shown"}
    if not isinstance(values, list):
        raise UndecodableMessage("the fields of a performative must be a list")
    decoded["fields"] = _fields(described, values)
    decoded["payload_bytes"] = frame.size_bytes - end
    if described.name == _TRANSFER:
        decoded["message"] = _message(frame, end, decoded["fields"])
        if len(values) > 2 and isinstance(values[2], bytes):
            decoded["fields"]["delivery_tag"] = values[2].hex()
            if is_output and _is_locked(decoded["message"]) and len(values[2]) == LOCK_TOKEN_BYTES:
                decoded["fields"]["lock_token"] = str(UUID(bytes=lock_token(values[2])))
        if frame.is_continuation:
            decoded["fields"]["continues_message"] = True
    return decoded


def _is_locked(message: dict[str, Any] | None) -> bool:
    return message is not None and _LOCKED_UNTIL in message.get("message_annotations", ())


def _fields(described: DescribedFields, values: list[Any]) -> dict[str, Any]:
    fields = named_fields(described.fields, values)
    if isinstance(role := fields.get("role"), bool):
        fields["role"] = ROLES[role]
    for name, words in SETTLE_MODES.items():
        if (mode := _position(fields.get(name), words)) is not None:
            fields[name] = words[mode]
    if (
        described.name == "sasl_outcome"
        and (code := _position(fields.get("code"), SASL_CODES)) is not None
    ):
        fields["code"] = SASL_CODES[code]
    for name in _SECRET_FIELDS:
        if name in fields:
            fields[name] = BLANK
    if described.name == "sasl_init" and fields.get("mechanism") == "PLAIN":
        fields |= _plain_user(values)
    return fields


def _position(value: object, words: tuple[str, ...]) -> int | None:
    """Returns the position of the word for a field, or None if it has none."""
    if type(value) is int and 0 <= value < len(words):
        return value
    return None


def _plain_user(values: list[Any]) -> dict[str, Any]:
    """RFC 4616: authorization identity, user and password, separated by NUL."""
    parts = values[1].split(b"\0") if isinstance(values[1], bytes) else []
    return {"user": readable_text(parts[1].decode(errors="replace"))} if len(parts) == 3 else {}


def _message(frame: CutFrame, start: int, fields: dict[str, Any]) -> dict[str, Any] | None:
    payload = frame.kept[start:]
    if frame.is_continuation or not payload:
        return None
    is_cut = bool(fields.get("more")) or frame.size_bytes > len(frame.kept)
    return summarize(payload, is_cut=is_cut, is_batch=fields.get("message_format") == BATCH_FORMAT)
