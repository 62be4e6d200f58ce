"""Messages in the REST data plane: headers and a body, or a JSON batch.

Translates a request into the encoded message that an AMQP client would send, and a delivered message into headers and
bytes. Values that a header cannot express are left out.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker.core.contract.errors import ArgumentError, MessageSizeExceeded
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Described,
    Symbol,
    Timestamp,
    ULong,
    decode,
    encode,
    encode_message,
    moment_of,
    plain,
    read_message,
    sections_of,
    timestamp_of,
    write_time_to_live,
)
from protocol.http.amqp_json import JsonTimes, json_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from broker.core.contract.message import Message
    from protocol.sources import ProtocolSources

_TIMES = JsonTimes(lambda moment: format_datetime(moment.astimezone(UTC), usegmt=True), str)

BATCH_CONTENT_TYPE = "application/vnd.microsoft.servicebus.json"
BROKER_PROPERTIES = "BrokerProperties"

_FIELDS = {
    "MessageId": 0,
    "To": 2,
    "Label": 3,
    "ReplyTo": 4,
    "CorrelationId": 5,
    "SessionId": 10,
    "ReplyToSessionId": 12,
}
"""Broker properties in the properties section, by position."""
_CONTENT_TYPE_FIELD = 6
_FIELD_COUNT = 13
_TEXT_ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
}
_READ_ONLY = frozenset(
    {
        "DeliveryCount",
        "EnqueuedSequenceNumber",
        "EnqueuedTimeUtc",
        "ExpiresAtUtc",
        "ForcePersistence",
        "LockToken",
        "LockedUntilUtc",
        "SequenceNumber",
        "Size",
        "State",
        "DeadLetterSource",
        "ContentType",
    }
)
"""Ignored. A client that forwards a received message sends them."""

_HTTP_HEADERS = frozenset(
    {
        *("age", "authorization", "brokerproperties", "cache-control", "connection", "cookie"),
        *("date", "etag", "expect", "expires", "forwarded", "host", "keep-alive", "last-modified"),
        *("location", "max-forwards", "origin", "pragma", "range", "referer", "retry-after"),
        *("server", "servicebussupplementaryauthorization", "set-cookie", "te", "traceparent"),
        *("tracestate", "trailer", "transfer-encoding", "upgrade", "upgrade-insecure-requests"),
        *("user-agent", "vary", "via", "warning", "www-authenticate", "x-real-ip", "x-request-id"),
    }
)
"""Headers of the request or the answer, and not properties of the message, as those that begin with one of
`_HTTP_PREFIXES`. Not all headers of HTTP: the manual of the service has a message property named Priority."""
_HTTP_PREFIXES = (
    *("accept", "access-control-", "content-", "if-", "proxy-", "sec-"),
    *("strict-transport-", "x-forwarded-", "x-ms-"),
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN_IN_PATH = re.compile(r"[\w~-][\w.~-]*", re.ASCII)
_HEADER_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?", re.ASCII)
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_NO_BATCH = "A batch must be a JSON array of messages, and not empty."
_STATES = ("Active", "Deferred", "Scheduled")


# --- in --------------------------------------------------------------------------------------


def read_single(
    body: bytes,
    content_type: str | None,
    headers: Iterable[tuple[str, str]],
    sources: ProtocolSources,
) -> Message:
    """Returns the message of one request. Raises `ArgumentError`."""
    broker_properties: Mapping[str, Any] = {}
    properties: dict[str, object] = {}
    for name, text in headers:
        if name.lower() == BROKER_PROPERTIES.lower():
            broker_properties = _mapping(_json(text, BROKER_PROPERTIES), BROKER_PROPERTIES)
        elif not _is_http(name):
            properties[name] = _header_value(text)
    return _message(body, content_type, broker_properties, properties, sources)


def read_batch(body: bytes, max_messages: int, sources: ProtocolSources) -> Iterator[Message]:
    """Yields the messages of a batch request, so that others can be served in between. Raises `ArgumentError`, or
    `MessageSizeExceeded` if there are too many."""
    for number, item in enumerate(_items(body), 1):
        if number > max_messages:
            raise MessageSizeExceeded(f"A batch has at most {max_messages} messages.")
        one = _mapping(item, f"Message {number} of the batch")
        text = one.get("Body", "")
        if not isinstance(text, str):
            raise ArgumentError(f"The Body of message {number} must be a string.")
        broker_properties = _mapping(one.get(BROKER_PROPERTIES) or {}, BROKER_PROPERTIES)
        properties = _mapping(one.get("UserProperties") or {}, "UserProperties")
        content_type = broker_properties.get("ContentType")
        if content_type is not None and not isinstance(content_type, str):
            raise ArgumentError("ContentType must be a string.")
        try:
            content = text.encode()
        except UnicodeEncodeError:
            raise ArgumentError(f"The Body of message {number} is not valid text.") from None
        yield _message(content, content_type, broker_properties, properties, sources)


def _items(body: bytes) -> Iterator[Any]:
    """Yields the items of a JSON array. Each is parsed when it is requested."""
    try:
        text = body.decode(json.detect_encoding(body))
        position = _skip_space(text, 0)
        if not text.startswith("[", position) or text.startswith(
            "]", position := _skip_space(text, position + 1)
        ):
            json.loads(text)
            raise ArgumentError(_NO_BATCH)
        while True:
            item, position = _DECODER.raw_decode(text, position)
            yield item
            position = _skip_space(text, position)
            if text.startswith("]", position):
                break
            if not text.startswith(",", position):
                raise ValueError
            position = _skip_space(text, position + 1)
        if _skip_space(text, position + 1) < len(text):
            raise ValueError
    except (ValueError, RecursionError):
        raise ArgumentError("A batch must be valid JSON.") from None


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _message(
    body: bytes,
    content_type: str | None,
    broker_properties: Mapping[str, Any],
    properties: Mapping[str, Any],
    sources: ProtocolSources,
) -> Message:
    fields: list[object] = [None] * _FIELD_COUNT
    annotations: dict[Symbol, object] = {}
    time_to_live_ms = None
    if content_type is not None:
        fields[_CONTENT_TYPE_FIELD] = Symbol(content_type)
    for name, value in broker_properties.items():
        if value is None or name in _READ_ONLY:
            continue
        if name in _FIELDS:
            fields[_FIELDS[name]] = _text(name, value)
        elif name in _TEXT_ANNOTATIONS:
            annotations[Symbol(_TEXT_ANNOTATIONS[name])] = _text(name, value)
        elif name in {"TimeToLive", "TimeToLiveTimeSpan"}:
            time_to_live_ms = _time_to_live_ms(value)
        elif name == "ScheduledEnqueueTimeUtc":
            annotations[Symbol("x-opt-scheduled-enqueue-time")] = _moment(name, value)
        else:
            raise ArgumentError(f"{BROKER_PROPERTIES} has no '{name[:100]}'.")
    for name, value in properties.items():
        if not isinstance(value, str | int | float | None):
            raise ArgumentError(f"The property '{name[:100]}' must be a simple value.")
    sections = [Described(ULong(PROPERTIES), fields)]
    if annotations:
        sections.insert(0, Described(ULong(MESSAGE_ANNOTATIONS), annotations))
    if time_to_live_ms is not None:
        in_header = write_time_to_live(fields, time_to_live_ms, sources.real_ms())
        sections.insert(0, Described(ULong(HEADER), [None, None, in_header]))
    if properties:
        sections.append(Described(ULong(APPLICATION_PROPERTIES), dict(properties)))
    sections.append(Described(ULong(DATA), body))
    try:
        message = read_message(b"".join(encode(section) for section in sections), sources.real_ms)
    except ValueError as error:
        raise ArgumentError(f"A property of the message cannot be encoded: {error}") from None
    return sources.message_ids.identify([message])[0]


def _is_http(name: str) -> bool:
    lowered = name.lower()
    return lowered in _HTTP_HEADERS or lowered.startswith(_HTTP_PREFIXES)


def _header_value(text: str) -> object:
    """Returns the value of a header: a JSON string, number or boolean, or else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text


def _json(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentError(f"{what} must be valid JSON.") from None


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ArgumentError(f"{what} must be a JSON object.")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be a string.")
    return value


def _time_to_live_ms(value: Any) -> int:
    """Returns the milliseconds of a number of seconds or of a .NET time span."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e12:
        return int(value * 1000)
    if isinstance(value, str) and (match := _TIME_SPAN.fullmatch(value)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
        fraction_ms = int((match[5] or "").ljust(3, "0")[:3])
        if total_ms := (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms:
            return total_ms
    raise ArgumentError("TimeToLive must be a positive number of seconds.")


def _moment(name: str, value: Any) -> Timestamp:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return Timestamp(timestamp_of(read(_text(name, value))))
        except (ValueError, OverflowError):
            continue
    raise ArgumentError(f"{name} must be a date such as 'Tue, 03 Feb 2026 04:05:06 GMT'.")


# --- out -------------------------------------------------------------------------------------


class ReceivedMessage(NamedTuple):
    """A delivered message, as the answer to a request."""

    headers: Mapping[str, str]
    body: bytes
    name: str
    """The message id, or the sequence number if the id cannot be used in a path."""
    token: str
    """The lock token; empty if there is none."""


def write(message: Message, lock_token: bytes | None, locked_until_ms: int) -> ReceivedMessage:
    """Returns a delivered message. Must be called at once, because the message changes afterwards."""
    sections = read_sections(encode_message(message, lock_token, locked_until_ms))
    fields = [plain(field) for field in sections.get(PROPERTIES) or ()]
    fields += [None] * (_FIELD_COUNT - len(fields))
    annotations = sections.get(MESSAGE_ANNOTATIONS) or {}
    broker_properties: dict[str, object] = {
        name: str(value) for name, index in _FIELDS.items() if (value := fields[index]) is not None
    }
    for name, annotation in _TEXT_ANNOTATIONS.items():
        if (value := annotations.get(annotation)) is not None:
            broker_properties[name] = str(value)
    broker_properties |= {
        "DeliveryCount": message.delivery_count + 1,
        "EnqueuedSequenceNumber": message.enqueue_sequence_number,
        "EnqueuedTimeUtc": _http_date(message.enqueued_time_ms),
        "SequenceNumber": message.sequence_number,
        "State": _STATES[message.state],
    }
    if message.time_to_live_ms is not None:
        broker_properties["TimeToLive"] = message.time_to_live_ms / 1000
    if message.scheduled_enqueue_time_ms:
        scheduled = _http_date(message.scheduled_enqueue_time_ms)
        broker_properties["ScheduledEnqueueTimeUtc"] = scheduled
    token = ""
    if lock_token is not None:
        token = str(UUID(bytes=lock_token))
        broker_properties["LockToken"] = token
        broker_properties["LockedUntilUtc"] = _http_date(locked_until_ms)
    headers = {BROKER_PROPERTIES: json.dumps(broker_properties)}
    content_type = fields[_CONTENT_TYPE_FIELD]
    if isinstance(content_type, str) and _HEADER_TEXT.fullmatch(content_type):
        headers["Content-Type"] = content_type
    for name, value in (sections.get(APPLICATION_PROPERTIES) or {}).items():
        if _TOKEN.fullmatch(name) and not _is_http(name):
            headers[name] = json.dumps(json_value(value, _TIMES))
    name = str(broker_properties.get("MessageId", ""))
    if not _PLAIN_IN_PATH.fullmatch(name):
        name = str(message.sequence_number)
    return ReceivedMessage(headers, _body(sections), name, token)


def read_sections(data: bytes) -> dict[int, Any]:
    """Returns the values by section. The contents of several data sections are joined."""
    sections: dict[int, Any] = {}
    for code, start, _ in sections_of(data):
        value: Any = decode(data, start)[0]
        if code == DATA:
            sections[DATA] = sections.get(DATA, b"") + value
        elif code == SEQUENCE:
            sections.setdefault(SEQUENCE, []).extend(value)
        else:
            sections[code] = value
    return sections


def _body(sections: Mapping[int, Any]) -> bytes:
    """Returns bytes as they are, text as UTF-8, and any other AMQP value as JSON."""
    if DATA in sections:
        return bytes(sections[DATA])
    value = sections[SEQUENCE] if SEQUENCE in sections else sections.get(VALUE)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace")
    return json.dumps(json_value(value, _TIMES)).encode()


def _http_date(time_ms: int) -> str:
    return format_datetime(moment_of(time_ms), usegmt=True)
