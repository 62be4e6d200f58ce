"""What the core can ask of a message's bytes."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message_changes import MessageChanges
from broker.core.routing.sql.system_properties import READ_ONLY, SETTABLE
from config.model.definitions import UNLIMITED_MS
from config.model.ticks import span_from_ticks
from protocol.codec import (
    Char,
    Decimal,
    Described,
    Float,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    decode,
    encode,
)
from protocol.codec.message_reader import Reader, plain
from tests.support.amqp_messages import (
    DATA,
    LOCKED_UNTIL_MS,
    NOW_MS,
    TOKEN,
    encoded,
    message_changes,
    messages,
    sdk_encoded,
    taken,
)
from tests.support.amqp_values import texts, typed

if TYPE_CHECKING:
    from broker.core.contract.message import MessageReader

GUID = UUID(bytes=TOKEN)
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
READER = Reader()


def body_with(fields):
    return encoded(Described(ULong(0x73), fields), DATA)


def with_properties(properties, **changes):
    return taken(encoded(Described(ULong(0x74), properties), DATA), **changes)


def test_it_is_what_the_core_expects():
    reader: MessageReader = READER
    assert reader.session_id(b"") is None


def test_the_head_of_a_body_has_its_properties():
    """Without what follows them, and without sections that are too long."""
    properties = encoded(Described(ULong(0x73), ["id"]))
    application = encoded(Described(ULong(0x74), {"color": "red"}))
    long = encoded(Described(ULong(0x74), {"text": "x" * 5000}))
    empty = b"\x00\x53\x73\x45"
    content = encoded(DATA)
    bodies = [
        properties + application + content,
        application + content,
        properties + long + content,
        empty + application + content,
        content,
        b"",
        None,
    ]
    heads = [properties + application, application, properties, empty + application, b"", b"", None]
    assert heads == READER.heads(bodies)
    for body in (bodies[0], application[:-1], properties[:3], b"\x00\x53\x73\xd0\xff\xff\xff\xff"):
        for end in range(len(body)):  # cut anywhere, nothing is read behind the end
            (head,) = READER.heads([body[:end]])
            assert head is not None
            assert head == body[: len(head)]


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"traceparent": PARENT}, PARENT),
        ({"Diagnostic-Id": PARENT}, PARENT),
        ({"Diagnostic-Id": "|hierarchical.1.", "traceparent": PARENT}, PARENT),
        ({"traceparent": PARENT.encode()}, PARENT),
        ({"traceparent": PARENT.upper()}, None),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, None),
        ({"traceparent": PARENT + "-more"}, None),
        ({"traceparent": 7}, None),
        ({"color": "traceparent"}, None),
        ({}, None),
    ],
)
def test_the_trace_that_a_sender_writes(properties, found):
    """SDKs use either name, and only the form of the W3C is known."""
    body = encoded(Described(ULong(0x74), properties), DATA)
    (head,) = READER.heads([body])
    assert head is not None
    assert found == READER.trace_parent(head)


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session_id", [None, "", "s", "é", "x" * 300, Symbol("s")], ids=lambda value: repr(value)[:9]
)
@pytest.mark.parametrize(
    "before",
    [[None] * 10, ["id", b"user", *"abcdef", Timestamp(1), Timestamp(2)], [GUID, *[None] * 9]],
    ids=["nulls", "full", "uuid"],
)
@pytest.mark.parametrize("after", [[], [None, None], [UInt(1), "y" * 300]])
def test_the_session_id_is_the_group_id(session_id, before, after):
    """With any fields before and after it, and any length of the list."""
    assert session_id == READER.session_id(body_with([*before, session_id, *after]))


@pytest.mark.parametrize("body", [encode(DATA), body_with([]), body_with(["id"] * 10)])
def test_without_group_id_there_is_no_session(body):
    assert READER.session_id(body) is None


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("1", ["1", ULong(1), b"1", Symbol("1")]),
        (str(GUID), [str(GUID), GUID, str(GUID).encode()]),
        ("", ["", b""]),
        ("ä" * 200, ["ä" * 200, ("ä" * 200).encode()]),
    ],
)
def test_ids_are_compared_by_their_text(text, sent):
    """An SDK that sends a received message again may change the type of its id: Python makes a
    string binary, .NET makes a uuid or a number a string."""
    for value in sent:
        body = body_with([value, *[None] * 4, value, *[None] * 4, value])
        assert text == READER.message_id(body)
        assert text == READER.session_id(body)
        system = READER.system_properties(taken(body))
        assert text == system["messageid"] == system["correlationid"]


def test_binary_ids_that_are_no_text_look_like_no_text_and_differ():
    found = {READER.message_id(body_with([value])) for value in (b"\xff", b"\xfe\xff", b"\xfe")}
    assert 3 == len(found)
    assert all(one is not None and one.startswith("\x1f") for one in found)


@given(texts)
def test_a_text_id_is_itself(text):
    assert text == READER.message_id(body_with([text]))


@pytest.mark.parametrize("body", [encode(DATA), body_with([]), body_with([None])])
def test_a_message_may_have_no_id(body):
    assert READER.message_id(body) is None


def test_the_sdk_s_ids_are_found():
    message = taken(sdk_encoded(ServiceBusMessage("x", session_id="s", message_id="m")))
    assert "s" == READER.session_id(message.body)
    assert "m" == READER.message_id(message.body)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({Symbol("x-opt-partition-key"): "key"}, "key"),
        ({"x-opt-partition-key": "key"}, "key"),
        ({Symbol("other-x-opt-partition-key"): "no", Symbol("x-opt-partition-key"): "key"}, "key"),
        ({Symbol("x-opt-partition-key"): None}, None),
        ({Symbol("a"): "x-opt-partition-key", ULong(1): 2}, None),
    ],
)
def test_the_partition_key_is_an_annotation(annotations, expected):
    assert expected == READER.partition_key(encode(annotations))
    assert READER.partition_key(b"") is None
    via = {str(name).replace("x-opt-", "x-opt-via-"): value for name, value in annotations.items()}
    assert expected == READER.via_partition_key(encode(via))
    assert READER.via_partition_key(encode(annotations)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x53\x73\xc0\x0e\x0b" + b"\x40" * 10 + b"\xa1\x01\xff",
        b"\x00\x53\x73\xc0\x05\x0b",
        b"\x00\x53\x73\xd0\x00",
    ],
    ids=["not UTF-8", "no fields", "no list"],
)
def test_a_session_id_that_cannot_be_read_is_refused(body):
    with pytest.raises(UndecodableMessage):
        READER.session_id(body)


# --- application properties ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (UInt(5), 5),
        (Long(-5), -5),
        (Float(1.5), 1.5),
        (1.5, 1.5),
        ("text", "text"),
        ("x" * 300, "x" * 300),
        (Symbol("symbol"), "symbol"),
        (Char("c"), "c"),
        (b"bytes", b"bytes"),
        (GUID, GUID),
        (Timestamp(NOW_MS), NOW),
        (Timestamp(2**62), datetime.max.replace(tzinfo=UTC)),
        (Timestamp(-(2**62)), datetime.min.replace(tzinfo=UTC)),
        (Decimal(bytes.fromhex("32800005")), 5.0),
        (Decimal(bytes.fromhex("b140000000003039")), -1.2345),
        (Decimal(bytes.fromhex("30380000000000000000000000003039")), 1.2345),
        (Decimal(bytes.fromhex("0c380000000000000000000000003039")), 1.2345),
        (Decimal(bytes.fromhex("7c000000")), bytes.fromhex("7c000000")),
        (Described(Symbol("com.microsoft:timespan"), Long(15_000_000)), timedelta(seconds=1.5)),
        (
            Described(Symbol("com.microsoft:datetime-offset"), Long(638_355_968_000_000_000)),
            NOW,
        ),
        (
            Described(Symbol("com.microsoft:datetime-offset"), Long(2**62)),
            datetime.max.replace(tzinfo=UTC),
        ),
        (Described(Symbol("com.microsoft:uri"), "sb://x"), "sb://x"),
        (Described(Symbol("of someone else"), UInt(1)), 1),
    ],
)
def test_application_properties_are_plain_values(value, expected):
    """What rules compare has no AMQP types left in it."""
    found = READER.application_properties(with_properties({"name": value}))
    assert {"name": expected} == found
    assert type(expected) is type(found["name"])


def test_names_keep_their_spelling():
    properties = {"Colour": "red", Symbol("é"): 1, "n" * 300: 2}
    found = READER.application_properties(with_properties(properties))
    assert properties == found
    assert {str} == {type(name) for name in found}


def test_without_a_section_there_are_no_application_properties():
    assert {} == READER.application_properties(taken())


def test_application_properties_show_message_changes():
    changes = MessageChanges(
        properties={"a": None, "b": encode(Long(2)), "missing": None},
        dead_letter_reason="why",
        dead_letter_description="because",
    )
    assert {
        "b": 2,
        "c": 3,
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    } == READER.application_properties(with_properties({"a": 1, "b": 1, "c": 3}, changes=changes))


def test_a_property_that_cannot_be_read_is_refused():
    """A text that is not UTF-8 is stored and delivered, but no rule can test it."""
    data = b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01\xff" + encode(DATA)
    with pytest.raises(UndecodableMessage):
        READER.application_properties(taken(data))


# --- system properties --------------------------------------------------------------------------


def test_every_system_property_is_known():
    """The names a rule may use are exactly the names there are values for."""
    assert {*SETTABLE, *READ_ONLY} == set(READER.system_properties(taken()))


def test_system_properties_of_a_full_message():
    fields = ["id", b"user", "to", "subject", "reply", "correlation", Symbol("type")]
    groups = ["session", None, "reply session"]
    annotations = {
        Symbol("x-opt-partition-key"): "key",
        Symbol("x-opt-via-partition-key"): "via",
    }
    message = taken(
        encoded(Described(ULong(0x72), annotations))
        + body_with([*fields, None, None, None, *groups]),
        time_to_live_ms=1000,
        scheduled_enqueue_time_ms=NOW_MS - 1000,
        delivery_count=2,
        lock_token=TOKEN,
        locked_until_ms=LOCKED_UNTIL_MS,
        changes=MessageChanges(dead_letter_source="orders"),
    )
    assert {
        "messageid": "id",
        "to": "to",
        "label": "subject",
        "replyto": "reply",
        "correlationid": "correlation",
        "contenttype": "type",
        "sessionid": "session",
        "replytosessionid": "reply session",
        "partitionkey": "key",
        "viapartitionkey": "via",
        "timetolive": timedelta(seconds=1),
        "expiresatutc": NOW + timedelta(seconds=1),
        "enqueuedtimeutc": NOW,
        "enqueuedsequencenumber": 11,
        "sequencenumber": 12,
        "scheduledenqueuetimeutc": NOW - timedelta(seconds=1),
        "deliverycount": 2,
        "deadlettersource": "orders",
        "lockeduntilutc": NOW + timedelta(seconds=30),
        "locktoken": GUID,
        "size": message.size,
        "state": 0,
        "forcepersistence": False,
    } == dict(READER.system_properties(message))


def test_system_properties_that_are_not_set_are_none():
    found = READER.system_properties(taken(encode(DATA)))
    assert found["messageid"] is None
    assert found["partitionkey"] is None
    assert found["locktoken"] is None
    assert found["scheduledenqueuetimeutc"] is None
    assert span_from_ticks(2**63 - 1) == found["timetolive"]


@pytest.mark.parametrize("time_to_live_ms", [None, 0xFFFFFFFF, UNLIMITED_MS, 2**64 - 1])
def test_every_time_to_live_fits_a_message(time_to_live_ms):
    """A rule action may copy it to another property. `TimeSpan.MaxValue` is the longest."""
    message = taken(encode(DATA))
    message.time_to_live_ms = time_to_live_ms
    found = READER.system_properties(message)["timetolive"]
    assert found == plain(decode(READER.encode_property(found))[0])


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_a_lone_surrogate_is_replaced_where_text_is_needed(code):
    """No store can hold it as text, and no rule action can write it."""
    character = chr(code)
    annotations = encode({Symbol("x-opt-partition-key"): Char(character)})
    assert "\ufffd" == READER.partition_key(annotations)
    message = with_properties({"name": Char(character)})
    found = READER.application_properties(message)["name"]
    assert "\ufffd" == found
    assert "\ufffd" == decode(READER.encode_property(found))[0]
    body = body_with([Char(character), *[None] * 9, Char(character)])
    assert "\ufffd" == READER.message_id(body) == READER.session_id(body)
    assert typed(Char(character)) == typed(decode(encode(Char(character)))[0])


def test_an_unknown_system_property_is_an_error():
    with pytest.raises(KeyError):
        READER.system_properties(taken())["colour"]


def test_system_properties_show_message_changes():
    changes = MessageChanges(system={"label": encode("new"), "to": None})
    found = READER.system_properties(taken(changes=changes))
    assert "new" == found["label"]
    assert found["to"] is None
    assert "an id" == found["messageid"]


# --- values of rule actions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, Long(5)),
        (2**63, ULong(2**63)),
        (True, True),
        (None, None),
        (1.5, 1.5),
        ("text", "text"),
        (b"bytes", b"bytes"),
        (GUID, GUID),
        (NOW, Timestamp(NOW_MS)),
        (timedelta(seconds=-1), Described(Symbol("com.microsoft:timespan"), Long(-10_000_000))),
    ],
)
def test_a_rule_action_s_value_is_encoded_as_dotnet_would(value, expected):
    """Integers are long, times are timestamps, spans are .NET's."""
    encoded_value = READER.encode_property(value)
    assert typed(expected) == typed(decode(encoded_value)[0])
    changes = MessageChanges(properties={"name": encoded_value})
    assert value == READER.application_properties(taken(changes=changes))["name"]


# --- hostile input ------------------------------------------------------------------------------


@given(messages, st.none() | message_changes)
def test_what_was_accepted_can_be_read(data, changes):
    """Every question has an answer for every well-formed message."""
    message = taken(data, changes=changes)
    READER.session_id(message.body)
    READER.message_id(message.body)
    READER.partition_key(message.annotations)
    dict(READER.system_properties(message))
    READER.application_properties(message)


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x00\x53\x73", b"\x00\x53\x73\xc0"]))
def test_no_bytes_break_the_reader(data, start):
    """An id is found, or there is none, or the body is undecodable; nothing else happens."""
    for read in (READER.session_id, READER.message_id, READER.partition_key):
        with suppress(UndecodableMessage):
            assert isinstance(read(start + data), str | None)
