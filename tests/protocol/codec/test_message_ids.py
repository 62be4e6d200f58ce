"""Messages whose sender gave them no id."""

from __future__ import annotations

import re

import pytest

from protocol.codec import Described, ULong, encode
from protocol.codec.message_ids import MessageIdGenerator
from protocol.codec.message_reader import Reader
from tests.support.amqp_messages import APPLICATION_PROPERTIES, DATA, bare, encoded
from tests.support.protocol_sources import read_message

PROPERTIES = 0x73
identify = MessageIdGenerator(bytes(range(8))).identify


def properties(*fields: object) -> Described:
    return Described(ULong(PROPERTIES), list(fields))


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (None,),
        (None, None, "a place"),
        (None, b"user" * 100, "a place"),
    ],
    ids=["empty", "null", "with-others", "long"],
)
def test_a_message_without_an_id_gets_one(fields):
    """A uuid in hex, as Azure gives it; the other fields and sections stay."""
    data = encoded(properties(*fields), APPLICATION_PROPERTIES, DATA)
    (message,) = identify([read_message(data)])
    message_id = Reader().message_id(message.body or b"")
    assert message_id is not None
    assert re.fullmatch("[0-9a-f]{32}", message_id)
    expected = bare(properties(message_id, *fields[1:]), APPLICATION_PROPERTIES, DATA)
    assert expected == message.body
    assert len(data) == message.size, "limits are of what was sent"


def test_a_message_without_properties_gets_an_id():
    """The section is made for it."""
    (message,) = identify([read_message(encode(DATA))])
    message_id = Reader().message_id(message.body or b"")
    assert bare(properties(message_id), DATA) == message.body
    assert len(encode(DATA)) == message.size


@pytest.mark.parametrize("own", ["", "mine", 7, b"\x00", "long" * 100])
def test_a_senders_id_is_kept(own):
    """An id of any type, also an empty one."""
    data = bare(properties(own, None, "a place"), DATA)
    (message,) = identify([read_message(data)])
    assert data == message.body
    assert len(data) == message.size


def test_ids_differ():
    """Two messages that say the same are still two messages."""
    one, two = identify([read_message(encode(DATA)), read_message(encode(DATA))])
    assert one.body != two.body
