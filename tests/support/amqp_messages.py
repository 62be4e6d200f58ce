"""Encoded messages: some to start from, and generated ones of every shape.

Owns sections, encodings as senders make them and the way back; no expectations.
`taken` gives a message as a queue holds it, at a fixed time under a fixed lock.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from hypothesis import strategies as st

from broker.core.contract.message_changes import MessageChanges
from protocol.codec import (
    Described,
    Int,
    Long,
    Symbol,
    UByte,
    UInt,
    ULong,
    decode,
    encode,
    encode_delivery,
)
from tests.support.amqp_values import scalars, texts, values
from tests.support.protocol_sources import read_message

NOW_MS = 1_700_000_000_000
TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
LOCKED_UNTIL_MS = NOW_MS + 30_000

HEADER = Described(ULong(0x70), [True, UByte(7), UInt(5000)])
DELIVERY_ANNOTATIONS = Described(ULong(0x71), {Symbol("x-opt-lock-token"): UUID(bytes=TOKEN)})
MESSAGE_ANNOTATIONS = Described(ULong(0x72), {Symbol("x-opt-partition-key"): "key"})
PROPERTIES = Described(ULong(0x73), ["an id", None, "a place", "a subject"])
APPLICATION_PROPERTIES = Described(ULong(0x74), {"colour": "red", "count": Int(3)})
DATA = Described(ULong(0x75), b"body")
FOOTER = Described(ULong(0x78), {Symbol("sum"): Long(1)})


def encoded(*sections):
    return b"".join(encode(section) for section in sections)


def bare(*sections):
    """Returns sections as they are stored: with a short descriptor."""
    return b"".join(
        b"\x00\x53" + bytes((section.descriptor,)) + encode(section.value) for section in sections
    )


def sections_of(data):
    """Returns the values of the sections of an encoding by their codes. Each section may occur
    once."""
    found: dict[int, Any] = {}
    position = 0
    while position < len(data):
        assert b"\x00\x53" == data[position : position + 2]
        section, position = decode(data, position)
        assert isinstance(section, Described)
        assert isinstance(section.descriptor, ULong)
        assert section.descriptor not in found
        found[int(section.descriptor)] = section.value
    return found


def taken(data=None, **fields):
    """Returns a message as a queue holds it, at a fixed time and with a fixed lock."""
    message = read_message(encoded(PROPERTIES, DATA) if data is None else data)
    message.sequence_number = 12
    message.enqueue_sequence_number = 11
    message.enqueued_time_ms = NOW_MS
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def delivered(message, token=TOKEN, **options):
    until_ms = 0 if token is None else LOCKED_UNTIL_MS
    return sections_of(b"".join(encode_delivery(message, token, until_ms, **options)))


def sdk_encoded(message):
    """Returns the bytes that the Python SDK sends for a message."""
    output = bytearray()
    raw = getattr(message, "raw_amqp_message", message)
    encode_payload(output, PyamqpTransport.to_outgoing_amqp_message(raw))
    return bytes(output)


message_changes = st.builds(
    MessageChanges,
    properties=st.dictionaries(texts, st.none() | scalars.map(encode), max_size=3),
    system=st.dictionaries(
        st.sampled_from(["messageid", "label", "contenttype", "sessionid", "partitionkey"]),
        st.none() | texts.map(encode),
        max_size=3,
    ),
    dead_letter_reason=st.none() | texts,
    dead_letter_description=st.none() | texts,
    dead_letter_source=st.none() | texts,
)

messages = st.builds(
    lambda header, annotations, properties, application_properties, body: (
        header + annotations + properties + application_properties + body
    ),
    st.just(b"") | st.just(encode(HEADER)),
    st.just(b"")
    | st.dictionaries(texts.map(Symbol), values, max_size=3).map(
        lambda value: encode(Described(ULong(0x72), value))
    ),
    st.just(b"")
    | st.lists(scalars, max_size=13).map(lambda value: encode(Described(ULong(0x73), value))),
    st.just(b"")
    | st.dictionaries(texts, values, max_size=3).map(
        lambda value: encode(Described(ULong(0x74), value))
    ),
    values.map(lambda value: encode(Described(ULong(0x77), value)))
    | st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(
        lambda parts: b"".join(encode(Described(ULong(0x75), part)) for part in parts)
    ),
)
