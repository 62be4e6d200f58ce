"""Messages as JSON: every property by the name that current SDKs use, the body as text, JSON or base64."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, timedelta
from enum import StrEnum
from math import isinf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import Field

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    encode_message,
    plain,
)
from protocol.http.amqp_json import JsonTimes, json_value
from protocol.http.control.request_models import AnswerModel, SubQueue
from protocol.http.control.times import write_time
from protocol.http.data_plane.rest_messages import read_sections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.contract.control_operations import LockView, MessageView
    from broker.core.contract.effects import Peer
    from protocol.http.control_services import LockHolder

PROPERTY_NAMES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "session_id",
    "group_sequence",
    "reply_to_session_id",
)
"""The fields of the properties section, in their order (AMQP 1.0, section 3.2.4), by their names in SDKs."""
_TIMES = JsonTimes(
    lambda moment: moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    timedelta.total_seconds,
)
_BROKER_ANNOTATIONS = frozenset(
    {
        *("x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-enqueued-time"),
        *("x-opt-locked-until", "x-opt-lock-token", "x-opt-message-state"),
        *("x-opt-scheduled-enqueue-time", "x-opt-deadletter-source", "x-opt-partition-key"),
        *("x-opt-via-partition-key",),
    }
)
"""Annotations that the answer contains as properties of their own."""


class BodyFormat(StrEnum):
    """How a body is written."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"
    NONE = "none"


class LockHolderAnswer(AnswerModel):
    """The client that holds a lock. Null: not known."""

    connection_id: str | None
    container_id: str | None
    link: str | None
    client: str | None = Field(description="its network address")


class LockAnswer(AnswerModel):
    """A lock."""

    token: str | None = Field(description="the lock token; null for the lock of a session")
    until: str | None
    holder: LockHolderAnswer


class DeadLetterAnswer(AnswerModel):
    """Why a message is a dead letter."""

    reason: str | None
    description: str | None
    source: str | None = Field(description="the entity that dead-lettered it, if it was forwarded")


class MessageAnswer(AnswerModel):
    """A message."""

    sequence_number: int
    enqueued_sequence_number: int
    state: str = Field(description="active, locked, deferred or scheduled")
    sub_queue: SubQueue
    message_id: Any
    session_id: str | None
    correlation_id: Any
    subject: Any
    content_type: Any
    content_encoding: Any
    to: Any
    reply_to: Any
    reply_to_session_id: Any
    user_id: Any
    absolute_expiry_time: Any
    creation_time: Any
    group_sequence: Any
    partition_key: Any
    via_partition_key: Any
    delivery_count: int = Field(description="failed deliveries so far")
    enqueued_at: str | None
    scheduled_for: str | None
    expires_at: str | None
    time_to_live_ms: int | None
    size_bytes: int
    lock: LockAnswer | None
    dead_letter: DeadLetterAnswer | None
    application_properties: dict[str, Any]
    annotations: dict[str, Any] = Field(description="other message annotations")
    delivery_annotations: dict[str, Any]
    header: dict[str, Any] = Field(description="fields of the AMQP header that the sender set")
    body: Any = Field(description="as body_format says; null if it was not asked for")
    body_format: BodyFormat = Field(description="text, json, base64 or none")
    body_type: str | None = Field(description="data, value or sequence: the AMQP section")


class DetailedMessageAnswer(MessageAnswer):
    """A message with the types of its properties."""

    types: dict[str, dict[str, str]] = Field(
        description="AMQP types such as uuid or int: of properties, application_properties, annotations, "
        "delivery_annotations and footer, by name, and of the body"
    )


def write_message(
    view: MessageView,
    sub_queue: SubQueue,
    body_format: BodyFormat,
    holder_of: Callable[[Peer], LockHolder],
) -> dict[str, Any]:
    """Returns a message, which must have its body, as plain data."""
    message = view.message
    changes = message.changes
    content = _content(view, body_format)
    dead_letter = None
    if sub_queue is not SubQueue.MAIN or (changes is not None and changes.dead_letter_source):
        dead_letter = {
            "reason": None if changes is None else changes.dead_letter_reason,
            "description": None if changes is None else changes.dead_letter_description,
            "source": None if changes is None else changes.dead_letter_source,
        }
    return {
        "sequence_number": message.sequence_number,
        "enqueued_sequence_number": message.enqueue_sequence_number,
        "state": view.state,
        "sub_queue": sub_queue.value,
        "delivery_count": message.delivery_count,
        "enqueued_at": write_time(message.enqueued_time_ms),
        "scheduled_for": write_time(message.scheduled_enqueue_time_ms),
        "expires_at": write_time(message.expires_at_ms),
        "time_to_live_ms": message.time_to_live_ms,
        "size_bytes": message.size,
        "lock": None if view.lock is None else write_lock(view.lock, holder_of),
        "dead_letter": dead_letter,
        **content,
    }


def write_lock(lock: LockView, holder_of: Callable[[Peer], LockHolder]) -> dict[str, Any]:
    """Returns a lock as plain data."""
    holder = holder_of(lock.holder)
    return {
        "token": None if lock.token is None else str(UUID(bytes=lock.token)),
        "until": write_time(lock.until_ms),
        "holder": {name: text or None for name, text in holder._asdict().items()},
    }


def _content(view: MessageView, body_format: BodyFormat) -> dict[str, Any]:
    """Returns what the sender wrote, with the changes since."""
    message = view.message
    try:
        sections = read_sections(encode_message(message))
    except UndecodableMessage:
        sections = {DATA: message.body or b""}
    fields = [_json(one) for one in sections.get(PROPERTIES) or ()]
    fields += [None] * (len(PROPERTY_NAMES) - len(fields))
    found = dict(zip(PROPERTY_NAMES, fields, strict=False))
    if found["session_id"] is not None:
        found["session_id"] = str(found["session_id"])
    annotations = _texts(sections.get(MESSAGE_ANNOTATIONS))
    properties = _texts(sections.get(APPLICATION_PROPERTIES))
    written, written_as, section = _body(sections, body_format, found["content_type"])
    return {
        **found,
        "partition_key": annotations.get("x-opt-partition-key"),
        "via_partition_key": annotations.get("x-opt-via-partition-key"),
        "application_properties": properties,
        "annotations": {
            name: value for name, value in annotations.items() if name not in _BROKER_ANNOTATIONS
        },
        "delivery_annotations": {
            name: value
            for name, value in _texts(sections.get(DELIVERY_ANNOTATIONS)).items()
            if name not in _BROKER_ANNOTATIONS
        },
        "header": _header(sections.get(HEADER)),
        "body": written,
        "body_format": written_as.value,
        "body_type": section,
    }


def _header(fields: list[Any] | None) -> dict[str, Any]:
    named = dict(zip(("durable", "priority"), fields or (), strict=False))
    return {name: _json(value) for name, value in named.items() if value is not None}


def _texts(values: Mapping[Any, Any] | None) -> dict[str, Any]:
    return {str(plain(key)): _json(one) for key, one in (values or {}).items()}


def _json(value: Any) -> Any:
    return json_value(value, _TIMES)


# --- bodies --------------------------------------------------------------------------------------


def _body(
    sections: Mapping[int, Any], body_format: BodyFormat, content_type: object
) -> tuple[Any, BodyFormat, str | None]:
    """Returns the written body, its format, and its section."""
    if DATA in sections:
        section, value = "data", sections[DATA]
    elif SEQUENCE in sections:
        section, value = "sequence", sections[SEQUENCE]
    elif VALUE in sections:
        section, value = "value", plain(sections[VALUE])
    else:
        return None, BodyFormat.NONE, None
    if body_format is BodyFormat.NONE:
        return None, BodyFormat.NONE, section
    if isinstance(value, bytes | str):
        data = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        return *_write_bytes(bytes(data), body_format, content_type), section
    if body_format is BodyFormat.BASE64:
        data = json.dumps(_json(value)).encode()
        return b64encode(data).decode(), BodyFormat.BASE64, section
    return _json(value), BodyFormat.JSON, section


def _write_bytes(
    data: bytes, body_format: BodyFormat, content_type: object
) -> tuple[Any, BodyFormat]:
    """Returns bytes in the format that was asked for, or else as base64."""
    is_json = isinstance(content_type, str) and "json" in content_type.lower()
    if body_format is BodyFormat.JSON or (body_format is BodyFormat.AUTO and is_json):
        try:
            found = json.loads(data, parse_constant=_no_number, parse_float=_finite)
            return found, BodyFormat.JSON
        except (ValueError, RecursionError):
            pass
    if body_format is not BodyFormat.BASE64:
        try:
            return data.decode(), BodyFormat.TEXT
        except ValueError:
            pass
    return b64encode(data).decode(), BodyFormat.BASE64


def _no_number(name: str) -> None:
    """Refuses NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)


def _finite(text: str) -> float:
    """Returns a number. Refuses one that is too large, because the answer could not contain it."""
    number = float(text)
    if isinf(number):
        raise ValueError(text)
    return number
