"""Reads ids, keys and the properties that rules test from the bytes of a message, for the core.

Returns plain Python values and never changes a message. A value is decoded only when it is needed. Raises only
`UndecodableMessage`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message import Message
from config.model.definitions import UNLIMITED_MS
from config.model.ticks import (
    DateTimeTicks,
    TimeSpanTicks,
    moment_from_ticks,
    span_from_ticks,
    ticks_of_moment,
    ticks_of_span,
)
from protocol.codec.changed_properties import CORRELATION_ID, GROUP_ID, MESSAGE_ID, PROPERTY_FIELDS
from protocol.codec.decimals import as_float
from protocol.codec.described_types import PROPERTIES_START
from protocol.codec.section_maps import entries_of
from protocol.codec.section_reader import body_sections, skip_fields
from protocol.codec.section_writer import ANNOTATIONS
from protocol.codec.value_decoder import compound, decode
from protocol.codec.value_encoder import encode
from protocol.codec.value_types import (
    Char,
    Decimal,
    Described,
    Float,
    Long,
    Symbol,
    Timestamp,
    ULong,
)
from protocol.native import compiled

if TYPE_CHECKING:
    from broker.core.contract.message import PropertyValue
    from config.model.ticks import Moment, Span

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_PER_MS = 10_000
_LONGEST = span_from_ticks(2**63 - 1)
"""`TimeSpan.MaxValue` of .NET. Python has longer time spans, which no message can hold."""
_LATEST = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)

_TIMESPAN = "com.microsoft:timespan"
_DATETIME_OFFSET = "com.microsoft:datetime-offset"

_TRACE_PARENT = re.compile("[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Reader:
    """Implements the core's `MessageReader`."""

    __slots__ = ()

    def session_id(self, body: bytes) -> str | None:
        """`group-id`, or None."""
        return _text_field(body, GROUP_ID)

    def session_ids(self, bodies: list[bytes | None]) -> list[str | None]:
        """The `group-id` of each body if it is a short string, as nearly always; None otherwise."""
        return compiled.read_session_ids(bodies)

    def message_id(self, body: bytes) -> str | None:
        """The id as text: SDKs forward a received id as another AMQP type (see `_text`)."""
        return _text_field(body, MESSAGE_ID)

    def heads(self, bodies: list[bytes | None]) -> list[bytes | None]:
        """The properties and application properties of canonical bodies: bodies without content. A message with very
        long ones has only its properties, or nothing."""
        return compiled.read_heads(bodies)

    def trace_parent(self, head: bytes) -> str | None:
        """The `traceparent` of the W3C, which SDKs write under one of two names."""
        if b"traceparent" not in head and b"Diagnostic-Id" not in head:
            return None
        try:
            properties = self.application_properties(Message(head))
        except UndecodableMessage:
            return None
        for name in ("traceparent", "Diagnostic-Id"):
            value = properties.get(name)
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and _TRACE_PARENT.fullmatch(text):
                return text
        return None

    def partition_key(self, annotations: bytes) -> str | None:
        """`x-opt-partition-key`, or None."""
        return _text_annotation(annotations, b"x-opt-partition-key")

    def via_partition_key(self, annotations: bytes) -> str | None:
        """`x-opt-via-partition-key`, or None."""
        return _text_annotation(annotations, b"x-opt-via-partition-key")

    def system_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """The `sys.` properties by lower-case name. Each is decoded when it is read."""
        return SystemProperties(message)

    def application_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """The application properties by name, with changes applied."""
        body = _body(message)
        start, end = body_sections(body)
        properties: dict[str, PropertyValue] = {}
        if end > start:
            properties = _plain_map(body, start + 3)
        changes = message.changes
        if changes is None:
            return properties
        for name, encoded in changes.properties.items():
            if encoded is None:
                properties.pop(name, None)
            else:
                properties[name] = plain(decode(encoded)[0])
        if changes.dead_letter_reason is not None:
            properties["DeadLetterReason"] = changes.dead_letter_reason
        if changes.dead_letter_description is not None:
            properties["DeadLetterErrorDescription"] = changes.dead_letter_description
        return properties

    def encode_property(self, value: PropertyValue) -> bytes:
        """Returns the encoded value that a rule action sets. Integers are long, as in the .NET SQL dialect."""
        if type(value) is int:
            return encode(Long(value) if -(2**63) <= value < 2**63 else ULong(value))
        if isinstance(value, timedelta | TimeSpanTicks):
            return encode(typed_span(value))
        # A time in a message is a timestamp, in milliseconds, as .NET writes a DateTime.
        return encode(value.moment if isinstance(value, DateTimeTicks) else value)


class SystemProperties(Mapping[str, "PropertyValue"]):
    """`sys.*` of one message. A property that exists but is not set is None."""

    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    def __getitem__(self, name: str) -> PropertyValue:
        """Returns a property by its lower-case name."""
        read = _SYSTEM_PROPERTIES[name]
        changes = self._message.changes
        if changes is not None and name in changes.system:
            encoded = changes.system[name]
            return None if encoded is None else plain(decode(encoded)[0])
        return read(self._message)

    def __iter__(self) -> Iterator[str]:
        """Yields every name, whether the property is set or not."""
        return iter(_SYSTEM_PROPERTIES)

    def __len__(self) -> int:
        """Returns the number of names."""
        return len(_SYSTEM_PROPERTIES)


def plain(value: object) -> PropertyValue:
    """Returns a decoded value as the core compares it: without AMQP types, and times as datetimes."""
    convert = _PLAIN.get(type(value))
    if convert is not None:
        return convert(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def typed_span(span: Span) -> Described:
    """Returns a time span as .NET encodes it: AMQP has no type for it."""
    return Described(Symbol(_TIMESPAN), Long(ticks_of_span(span)))


def milliseconds_of_moment(moment: Moment) -> Timestamp:
    """Returns a time as an AMQP timestamp, rounded down to milliseconds."""
    return Timestamp((ticks_of_moment(moment) - ticks_of_moment(_EPOCH)) // _TICKS_PER_MS)


def moment_of(milliseconds: int) -> datetime:
    """Returns a timestamp as a UTC datetime, limited to the years that Python supports."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return _LATEST if milliseconds > 0 else _EARLIEST


# --- walking -----------------------------------------------------------------------------------


def _body(message: Message) -> bytes:
    assert message.body is not None, "a message is read once its body is in memory"
    return message.body


def _field_position(body: bytes, index: int) -> int:
    """Returns where a field of the properties section begins, or -1 if it is absent."""
    try:
        if body[:4] == b"\x00\x53\x73\xc0":
            return skip_fields(body, 6, index) if body[5] > index else -1
        if body[:3] != PROPERTIES_START:
            return -1
        first, count, _ = compound(body, 3)
        return skip_fields(body, first, index) if count > index else -1
    except IndexError as error:
        raise UndecodableMessage("the properties are shorter than their fields") from error


def _text_field(body: bytes, index: int) -> str | None:
    position = _field_position(body, index)
    if position < 0:
        return None
    # Entities with sessions or duplicate detection read ids of every message, and nearly all ids are
    # short strings.
    code = body[position : position + 1]
    if code == b"\xa1":
        return _short_text(body, position)
    return None if code == b"\x40" else _text(decode(body, position)[0])


def _short_text(body: bytes, position: int) -> str:
    try:
        return body[position + 2 : position + 2 + body[position + 1]].decode()
    except (IndexError, ValueError) as error:
        raise UndecodableMessage("an id cannot be read") from error


def _plain_map(data: bytes, start: int) -> dict[str, PropertyValue]:
    """Returns a checked map with string keys. Short strings, which are most frequent, are decoded without a call."""
    properties: dict[str, PropertyValue] = {}
    position, count, _ = compound(data, start)
    try:
        for _ in range(count >> 1):
            if data[position] == 0xA1:
                middle = position + 2 + data[position + 1]
                name = data[position + 2 : middle].decode()
            else:
                key, middle = decode(data, position)
                name = str(key)
            if data[middle] == 0xA1:
                position = middle + 2 + data[middle + 1]
                properties[name] = data[middle + 2 : position].decode()
            else:
                value, position = decode(data, middle)
                properties[name] = plain(value)
    except (IndexError, ValueError) as error:
        raise UndecodableMessage("an application property cannot be read") from error
    return properties


def _text_annotation(annotations: bytes, name: bytes) -> str | None:
    value = _annotation(annotations, name) if annotations else None
    return None if value is None else _text(value)


def _annotation(annotations: bytes, name: bytes) -> object:
    """Returns a decoded message annotation, or None if there is none of that name."""
    for key, _, middle, _ in entries_of(annotations, 0):
        if key == name:
            return decode(annotations, middle)[0]
    return None


def _text(value: object) -> str:
    """Returns an id or key as the service compares it: by its text, whatever its AMQP type.

    The Python SDK forwards string ids and partition keys of a received message as binary, .NET a uuid or ulong id as a
    string. Binary that is not UTF-8 becomes a text that no sender would choose.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except ValueError:
            return f"\x1fbinary:{value.hex()}"
    return str(value)


# --- conversions -------------------------------------------------------------------------------


def _described(value: Described) -> PropertyValue:
    content = value.value
    if value.descriptor == _TIMESPAN and isinstance(content, int):
        return span_from_ticks(content)
    if value.descriptor == _DATETIME_OFFSET and isinstance(content, int):
        try:
            return moment_from_ticks(content)
        except OverflowError:
            return _LATEST if content > 0 else _EARLIEST
    return plain(content)  # For example `com.microsoft:uri`: its text is its value.


_PLAIN: dict[type, Callable[..., PropertyValue]] = {
    Timestamp: moment_of,
    Described: _described,
    Char: str,
    Symbol: str,
    Float: float,
    Decimal: as_float,
}


# --- system properties -------------------------------------------------------------------------


def _property_field(index: int) -> Callable[[Message], PropertyValue]:
    def read(message: Message) -> PropertyValue:
        body = _body(message)
        position = _field_position(body, index)
        return None if position < 0 else plain(decode(body, position)[0])

    return read


def _id_field(index: int) -> Callable[[Message], PropertyValue]:
    """Reads a message id or correlation id, which rules compare as text (see `_text`)."""

    def read(message: Message) -> PropertyValue:
        return _text_field(_body(message), index)

    return read


def _sender_annotation(name: bytes) -> Callable[[Message], PropertyValue]:
    def read(message: Message) -> PropertyValue:
        return plain(_annotation(message.annotations, name)) if message.annotations else None

    return read


def _moment_or_none(milliseconds: int) -> datetime | None:
    return moment_of(milliseconds) if milliseconds else None


def _expires_at(message: Message) -> PropertyValue:
    if message.expires_at_ms:
        return moment_of(message.expires_at_ms)
    if message.time_to_live_ms is not None:
        return moment_of(message.enqueued_time_ms + message.time_to_live_ms)
    return _LATEST


def _time_to_live(message: Message) -> PropertyValue:
    milliseconds = message.time_to_live_ms
    if milliseconds is None or milliseconds >= UNLIMITED_MS:
        return _LONGEST
    return timedelta(milliseconds=milliseconds)


def _lock_token(message: Message) -> PropertyValue:
    return None if message.lock_token is None else UUID(bytes=message.lock_token)


_SYSTEM_PROPERTIES: dict[str, Callable[[Message], PropertyValue]] = {
    **{name: _property_field(index) for name, index in PROPERTY_FIELDS.items()},
    "messageid": _id_field(MESSAGE_ID),
    "correlationid": _id_field(CORRELATION_ID),
    **{name: _sender_annotation(annotation) for name, annotation in ANNOTATIONS.items()},
    "scheduledenqueuetimeutc": lambda message: _moment_or_none(message.scheduled_enqueue_time_ms),
    "timetolive": _time_to_live,
    "expiresatutc": _expires_at,
    "enqueuedtimeutc": lambda message: _moment_or_none(message.enqueued_time_ms),
    "enqueuedsequencenumber": lambda message: message.enqueue_sequence_number,
    "sequencenumber": lambda message: message.sequence_number,
    "deliverycount": lambda message: message.delivery_count,
    "deadlettersource": lambda message: (
        None if message.changes is None else message.changes.dead_letter_source
    ),
    "lockeduntilutc": lambda message: _moment_or_none(message.locked_until_ms),
    "locktoken": _lock_token,
    "size": lambda message: message.size,
    "state": lambda message: int(message.state),
    "forcepersistence": lambda _: False,
}
"""Every name that a filter may use, and how its value is read."""
