"""Sends messages in bulk from JSON."""

from __future__ import annotations

import json
from base64 import b64decode
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract import control_operations as control
from broker.core.contract.errors import BrokerError
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Described,
    Symbol,
    Timestamp,
    ULong,
    encode,
    read_message,
    write_time_to_live,
)
from protocol.http.control import control_errors, pacing
from protocol.http.control.control_errors import ControlError
from protocol.http.control.request_models import AnswerModel, EntityPath, RequestModel
from protocol.http.control.routes import Route
from protocol.http.control.times import read_time

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from protocol.http.control.routes import Answer, Call

MESSAGES_MAX = 5_000
PART_MESSAGES = 500
"""How many messages are sent in one turn."""
_TIME_TO_LIVE_MAX_S = 10_000_000_000
_CONTENT_TYPE = "application/json"
_FIELDS = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "session_id": 10,
    "reply_to_session_id": 12,
}
"""Positions in the properties section (AMQP 1.0, section 3.2.4)."""
_FIELD_COUNT = 13


class SentBodyFormat(StrEnum):
    """How the body is written in the request."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"


class SentMessage(RequestModel):
    """A message to send."""

    body: Any = Field("", description="a text, or any other JSON value, which is sent as JSON")
    body_format: SentBodyFormat = Field(
        SentBodyFormat.AUTO, description="auto: a text is text, anything else is json"
    )
    message_id: str | None = Field(None, max_length=1000)
    session_id: str | None = Field(None, max_length=1000)
    correlation_id: str | None = None
    subject: str | None = None
    content_type: str | None = Field(
        None, description="application/json if it is not set and the body is sent as JSON"
    )
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    time_to_live_s: float | None = Field(
        None, ge=0.001, le=_TIME_TO_LIVE_MAX_S, allow_inf_nan=False, description="in seconds"
    )
    scheduled_for: str | None = Field(
        None,
        description="when it becomes active, such as 2026-02-03T04:05:06Z",
        json_schema_extra={"format": "date-time"},
    )
    application_properties: dict[str, str | bool | int | float | None] = Field(default_factory=dict)


class SendBody(RequestModel):
    """Messages, and the queue or topic to send them to."""

    entity: EntityPath
    messages: list[SentMessage] = Field(min_length=1, max_length=MESSAGES_MAX)


class SendAnswer(AnswerModel):
    """What was sent."""

    sent: int = Field(description="accepted messages, including those that were duplicates")
    sequence_numbers: list[int] = Field(
        description="of the messages in a queue, without duplicates; empty for a topic"
    )


async def send(call: Call) -> Answer:
    """Sends messages. All are checked before the first is sent."""
    body: SendBody = call.body
    messages = await pacing.each(
        call,
        enumerate(body.messages),
        lambda one: make_message(call, one[1], f"messages[{one[0]}]"),
    )
    identified = call.services.sources.message_ids.identify(messages)
    numbers: list[int] = []
    path = body.entity.strip("/")
    pace = pacing.Pace(call)
    for start in range(0, len(identified), PART_MESSAGES):
        part = identified[start : start + PART_MESSAGES]
        try:
            numbers += await call.ask(control.SendMessages(path, part))
        except BrokerError as error:
            if not start:
                raise
            refusal = control_errors.of_broker_error(error, str(error))
            refusal.message = f"{start} messages were sent before this. {refusal.message}"
            raise refusal from None
        await pace.pause()
    return {"sent": len(identified), "sequence_numbers": numbers}


def make_message(call: Call, sent: SentMessage, field: str) -> Message:
    """Returns a message as a client would send it. `field` is where the request has it. Raises `ControlError`."""
    fields: list[object] = [None] * _FIELD_COUNT
    for name, position in _FIELDS.items():
        value = getattr(sent, name)
        if value is not None:
            fields[position] = value
    data, is_json = _data(sent, field)
    if sent.content_type is not None or is_json:
        fields[_FIELDS["content_type"]] = Symbol(sent.content_type or _CONTENT_TYPE)
    annotations: dict[Symbol, object] = {}
    if sent.partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = sent.partition_key
    if sent.scheduled_for is not None:
        at_ms = read_time(f"{field}.scheduled_for", sent.scheduled_for)
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(at_ms)
    sections = [Described(ULong(PROPERTIES), fields)]
    if annotations:
        sections.insert(0, Described(ULong(MESSAGE_ANNOTATIONS), annotations))
    if sent.time_to_live_s is not None:
        time_to_live_ms = max(1, round(sent.time_to_live_s * 1000))
        in_header = write_time_to_live(fields, time_to_live_ms, call.services.sources.real_ms())
        sections.insert(0, Described(ULong(HEADER), [None, None, in_header]))
    if sent.application_properties:
        sections.append(Described(ULong(APPLICATION_PROPERTIES), dict(sent.application_properties)))
    sections.append(Described(ULong(DATA), data))
    try:
        encoded = b"".join(encode(section) for section in sections)
        return read_message(encoded, call.services.sources.real_ms)
    except (ValueError, BrokerError) as error:
        raise ControlError(
            400, "invalid_field", f"The message cannot be encoded: {error}.", field
        ) from None


def _data(sent: SentMessage, field: str) -> tuple[bytes, bool]:
    """Returns the bytes of a body, and whether they are JSON."""
    body, body_format = sent.body, sent.body_format
    if body_format is SentBodyFormat.AUTO:
        body_format = SentBodyFormat.TEXT if isinstance(body, str) else SentBodyFormat.JSON
    if body_format is SentBodyFormat.JSON:
        try:
            return json.dumps(body, ensure_ascii=False, allow_nan=False).encode(), True
        except ValueError:
            raise control_errors.bad_field(
                f"{field}.body", "The body must be valid JSON."
            ) from None
    if not isinstance(body, str):
        raise control_errors.bad_field(
            f"{field}.body", f"The body must be a text if body_format is {body_format.value}."
        )
    if body_format is SentBodyFormat.TEXT:
        return body.encode(), False
    try:
        return b64decode(body, validate=True), False
    except ValueError:
        raise control_errors.bad_field(f"{field}.body", "The body must be base64.") from None


ROUTES = (
    Route(
        "POST",
        "/messages",
        "sendMessages",
        "Send messages to a queue or topic",
        send,
        SendAnswer,
        body=SendBody,
        status=201,
        refusals={
            403: "A message is too large, or the entity is full.",
            503: "The broker is busy; try again.",
        },
    ),
)
