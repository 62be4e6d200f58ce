"""Frames are shown with named fields, messages in short, secrets never; what is malformed is said to be."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp.wire_view.frame_cutting import FrameCutter
from protocol.amqp.wire_view.frame_decoding import decode_frame
from protocol.codec import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    delivery_tag,
    encode,
)
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    EMPTY_FRAME,
    HEADER,
    SASL_HEADER,
    attach_receiver,
    frame,
    open_frame,
    raw_frame,
    transfer,
)

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
SAS = "SharedAccessSignature sr=sb%3A%2F%2Fhost%2Forders&sig=c2VjcmV0%3D&se=1794909307&skn=RootKey"


def shown(data: bytes, *, is_output: bool = False):
    (one,) = FrameCutter(1 << 20).cut(data)
    decoded = decode_frame(one, is_output=is_output)
    json.dumps(decoded, allow_nan=False)
    return decoded


def section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


def message(*sections: bytes):
    return shown(transfer(0, b"".join(sections)))["message"]


def test_fields_have_names_and_those_that_are_null_are_left_out():
    decoded = shown(open_frame(hostname="somewhere"))
    assert ("open", 0, None) == (decoded["performative"], decoded["channel"], decoded["error"])
    assert "somewhere" == decoded["fields"]["hostname"]
    assert None not in decoded["fields"].values()


def test_sources_targets_and_modes_are_readable():
    filters: dict[Any, object] = {
        Symbol("com.microsoft:session-filter"): Described(ULong(0x137000000C), "s1")
    }
    fields = shown(attach_receiver(address="orders", filters=filters))["fields"]
    assert "receiver" == fields["role"]
    assert ("source", "orders") == (fields["source"]["type"], fields["source"]["address"])
    found = fields["source"]["filter"]["com.microsoft:session-filter"]
    assert {"descriptor": 0x137000000C, "value": "s1"} == found


def test_outcomes_and_errors_are_readable():
    error = Described(ULong(0x1D), [Symbol("com.microsoft:dead-letter"), "bad", {"Reason": "Bad"}])
    rejected = Described(ULong(0x25), [error])
    fields = shown(frame("disposition", True, UInt(3), UInt(5), True, rejected))["fields"]
    assert {
        "role": "receiver",
        "first": 3,
        "last": 5,
        "settled": True,
        "state": {
            "type": "rejected",
            "error": {
                "type": "error",
                "condition": "com.microsoft:dead-letter",
                "description": "bad",
                "info": {"Reason": "Bad"},
            },
        },
    } == fields


def test_descriptors_may_be_symbols():
    body = encode(Described(Symbol("amqp:close:list"), []))
    assert "close" == shown(raw_frame(body))["performative"]


@pytest.mark.parametrize(
    ("data", "performative", "fields"),
    [
        (HEADER, "header", {"protocol": "AMQP", "version": "1.0.0"}),
        (SASL_HEADER, "header", {"protocol": "SASL", "version": "1.0.0"}),
        (b"AMQP\x02\x01\x00\x00", "header", {"protocol": "TLS", "version": "1.0.0"}),
        (EMPTY_FRAME, "empty", {}),
    ],
)
def test_protocol_headers_and_heartbeats_are_shown(data, performative, fields):
    decoded = shown(data)
    assert (performative, fields, None) == (
        decoded["performative"],
        decoded["fields"],
        decoded["error"],
    )


# --- SASL ----------------------------------------------------------------------------------------


def sasl(code: int, *fields: object):
    return shown(raw_frame(encode(Described(ULong(code), list(fields))), kind=1))


def test_of_a_password_only_the_user_is_shown():
    decoded = sasl(0x41, Symbol("PLAIN"), b"\0RootKey\0hunter2", "host")
    assert {
        "mechanism": "PLAIN",
        "initial_response": "***",
        "hostname": "host",
        "user": "RootKey",
    } == decoded["fields"]
    assert "hunter2" not in json.dumps(sasl(0x41, Symbol("PLAIN"), b"hunter2"))
    assert "hunter2" not in json.dumps(sasl(0x43, b"hunter2"))


def test_mechanisms_and_outcomes_are_readable():
    offered = sasl(0x40, Array(0xB3, [Symbol("PLAIN"), Symbol("ANONYMOUS")]))
    assert {"mechanisms": ["PLAIN", "ANONYMOUS"]} == offered["fields"]
    assert {"code": "auth"} == sasl(0x44, UByte(1))["fields"]


# --- messages ------------------------------------------------------------------------------------


def test_a_message_is_shown_in_short():
    assert {
        "header": {"durable": True},
        "message_annotations": {"x-opt-enqueued-time": "1970-01-01T00:00:01Z"},
        "properties": {"message_id": "a", "group_id": "s"},
        "application_properties": {"color": "red", "n": 1},
        "body": {"type": "data", "bytes": 1000, "preview": "h" * 200 + "…"},
    } == message(
        section(0x70, [True]),
        section(0x72, {Symbol("x-opt-enqueued-time"): Timestamp(1000)}),
        section(0x73, ["a", *[None] * 9, "s"]),
        section(0x74, {"color": "red", "n": 1}),
        section(0x75, b"h" * 1000),
    )


def test_binary_bodies_have_a_size_only():
    assert {"type": "data", "bytes": 4, "preview": None} == message(section(0x75, b"\xff\0\1\2"))[
        "body"
    ]


def test_values_are_shown_as_they_are():
    request = {"message-count": UInt(3), "lock-tokens": Array(0x98, [UUID(int=1)])}
    body = message(section(0x77, request))["body"]
    tokens = ["00000000-0000-0000-0000-000000000001"]
    assert {"message-count": 3, "lock-tokens": tokens} == body["preview"]
    declare = Described(ULong(0x31), [])
    assert {"type": "declare"} == message(section(0x77, declare))["body"]["preview"]


def test_a_message_that_continues_is_shown_as_far_as_it_goes():
    payload = section(0x73, ["a"]) + section(0x75, "ä".encode() * 100)
    cut = payload[:-51]
    decoded = shown(transfer(0, cut, more=True))["message"]
    assert {"message_id": "a"} == decoded["properties"]
    assert decoded["is_cut"]
    assert "ä" * 74 == decoded["body"]["preview"]


def test_frames_that_continue_a_message_show_no_content():
    first, second = FrameCutter(1 << 20).cut(
        transfer(0, section(0x75, b"x" * 50)[:10], more=True)
        + transfer(None, section(0x75, b"secret"))
    )
    assert decode_frame(first, is_output=False)["message"] is not None
    decoded = decode_frame(second, is_output=False)
    assert (None, True) == (decoded["message"], decoded["fields"]["continues_message"])


def test_the_messages_of_a_batch_are_shown():
    inner = [section(0x73, [name]) + section(0x75, name.encode()) for name in ("a", "b")]
    batch = b"".join(section(0x75, one) for one in inner)
    decoded = shown(transfer(0, batch, message_format=BATCH_FORMAT))["message"]
    assert 2 == decoded["batch_messages"]
    assert ["a", "b"] == [one["properties"]["message_id"] for one in decoded["batch"]]
    assert ["a", "b"] == [one["body"]["preview"] for one in decoded["batch"]]


def test_the_tag_of_a_locked_message_is_its_lock_token():
    token = UUID("00112233-4455-6677-8899-aabbccddeeff")
    locked = section(0x72, {Symbol("x-opt-locked-until"): Timestamp(1000)})
    data = transfer(0, locked, tag=delivery_tag(token.bytes))
    assert str(token) == shown(data, is_output=True)["fields"]["lock_token"]
    assert "lock_token" not in shown(data)["fields"]


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [SAS, JWT, "unknown-form", SAS.encode(), 7])
def test_the_token_of_a_put_token_is_blanked(token):
    decoded = message(
        section(0x74, {"operation": "put-token", "name": "sb://host/orders"}),
        section(0x77, token),
    )
    text = json.dumps(decoded)
    assert "sb://host/orders" in text
    for secret in ("c2VjcmV0", "eyJ", "unknown-form"):
        assert secret not in text
    if token == SAS:
        assert "skn=RootKey" in decoded["body"]["preview"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (
            "Endpoint=sb://h/;SharedAccessKeyName=Root;SharedAccessKey=aGVsbG8=;EntityPath=q",
            "aGVsbG8",
        ),
        (
            "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=x&sig=aGVsbG8",
            "aGVsbG8",
        ),
        (SAS, "c2VjcmV0"),
        (f"Authorization: Bearer {JWT}", "c2lnbmF0dXJl"),
        (JWT, "eyJzdWIiOiJtZSJ9"),
        ('{"user": "me", "password": "hunter2"}', "hunter2"),
        ('{"apiKey":"hunter2"}', "hunter2"),
        ("amqp://me:hunter2@host/", "hunter2"),
    ],
)
def test_secrets_in_texts_are_blanked(text, secret):
    for one in (
        message(section(0x75, text.encode())),
        message(section(0x77, text)),
        message(section(0x74, {"note": text})),
        shown(open_frame(hostname=text)),
    ):
        assert secret not in json.dumps(one)
        assert "***" in json.dumps(one)


def test_properties_with_the_name_of_a_secret_are_blanked():
    names = ["password", "client_secret", "Authorization", "token", "x-api-key", "access-token"]
    decoded = message(section(0x74, dict.fromkeys(names, "hunter2")))
    assert dict.fromkeys(names, "***") == decoded["application_properties"]
    harmless = {"lock-token": "a", "continuation-token": "b", "tokens": 3, "operation": "c"}
    assert harmless == message(section(0x74, harmless))["application_properties"]


# --- malformed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (raw_frame(b"\x00\x53\x99\x45"), "there is no performative 153"),
        (raw_frame(b"\x40"), "the body of a frame must be a performative"),
        (raw_frame(b"\x00\x53\x10\xa1\x01x"), "the fields of a performative must be a list"),
        (raw_frame(b"\x00\x53\x10\xc0\x50\x01"), "a value runs past the end of what holds it"),
        (raw_frame(b"\x00\x53\x10\x45", kind=9), "frames of type 9 are unknown"),
        (b"\0\0\0\x0c\x01\0\0\0\x00\x53\x10\x45", "the body of a frame cannot begin at byte 4"),
    ],
)
def test_a_malformed_frame_is_shown_with_the_reason(data, error):
    decoded = shown(data)
    assert ("malformed", error) == (decoded["performative"], decoded["error"])


def test_bytes_that_are_no_frame_are_shown_as_such():
    (one,) = FrameCutter(65_536).cut(b"\xff\xff\xff\xffpassword=hunter2")
    decoded = decode_frame(one, is_output=False)
    assert "malformed" == decoded["performative"]
    assert "hunter2" not in json.dumps(decoded)


def test_a_malformed_message_is_shown_as_far_as_it_goes():
    decoded = message(section(0x73, ["a"]), b"\x00\x53\x75\xa0\x50")
    assert {"message_id": "a"} == decoded["properties"]
    assert "malformed" in decoded


def test_a_frame_that_is_too_large_to_be_shown_has_a_name():
    properties = {Symbol(str(n)): "x" * 200 for n in range(200)}
    decoded = shown(frame("open", "c", *[None] * 8, properties))
    assert ("open", "the frame is too large to be shown") == (
        decoded["performative"],
        decoded["error"],
    )


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_any_bytes_are_shown(body, kind):
    shown(raw_frame(body, kind=kind))


@given(st.binary(max_size=200))
def test_any_message_is_shown(payload):
    shown(transfer(0, payload))
    shown(transfer(0, payload, message_format=BATCH_FORMAT, more=True))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1).map(lambda number: ULong(number) if number >= 0 else number)
    | st.integers(-(2**63), 2**63 - 1).map(Timestamp)
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | st.text("abc").map(Symbol)
    | st.binary()
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("ab"), inner, max_size=3)
        | st.builds(Described, st.sampled_from([ULong(0x24), ULong(0x1D), ULong(0x77)]), inner)
    ),
    max_leaves=6,
)


@given(
    st.sampled_from([*range(0x10, 0x19), *range(0x40, 0x45)]),
    st.lists(VALUES, max_size=14),
    st.builds(section, st.integers(0x70, 0x78), VALUES),
)
def test_fields_of_any_type_are_shown(code, fields, payload):
    """Also those that the specification does not allow: the broker closes the connection, and people look why."""
    shown(raw_frame(encode(Described(ULong(code), fields)) + payload, kind=code >= 0x40))


@pytest.mark.parametrize("role", [[1], {"a": 1}, "sender", UInt(1)])
def test_a_role_that_is_no_boolean_is_shown_as_it_is(role):
    assert role == shown(frame("attach", "n", UInt(0), role))["fields"]["role"]


def test_deep_values_are_cut():
    value: object = "end"
    for _ in range(40):
        value = [value]
    assert "…" in json.dumps(message(section(0x77, value)), ensure_ascii=False)
