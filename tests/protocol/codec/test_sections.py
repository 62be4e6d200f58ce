"""What becomes of the bytes a sender writes."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from broker.core.contract.message_changes import MessageChanges
from config.model.definitions import UNLIMITED_MS
from protocol import codec
from protocol.codec import (
    Char,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    compound_of,
    decode,
    encode,
    encode_message,
    pack_header,
)
from tests.support.amqp_messages import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    LOCKED_UNTIL_MS,
    MESSAGE_ANNOTATIONS,
    NOW_MS,
    PROPERTIES,
    TOKEN,
    bare,
    encoded,
    messages,
    sdk_encoded,
    taken,
)
from tests.support.amqp_values import typed
from tests.support.protocol_sources import read_batch, read_message

# --- reading ------------------------------------------------------------------------------------


def test_the_bare_message_is_kept_as_it_came():
    """Properties, application properties, body and footer stay the sender's bytes."""
    data = encoded(HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER)
    message = read_message(data)
    assert encoded(PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER) == message.body
    assert encode({Symbol("x-opt-partition-key"): "key"}) == message.annotations
    assert pack_header(durable=True, priority=7) == message.header
    assert 5000 == message.time_to_live_ms
    assert len(data) == message.size


def test_sections_may_come_in_any_order():
    """The order does not change the message."""
    sections = [
        HEADER,
        DELIVERY_ANNOTATIONS,
        MESSAGE_ANNOTATIONS,
        PROPERTIES,
        APPLICATION_PROPERTIES,
        DATA,
        FOOTER,
    ]
    pieces = [encode(section) for section in sections]
    expected = read_message(b"".join(pieces))
    for order in permutations(pieces):
        message = read_message(b"".join(order))
        assert expected.body == message.body
        assert expected.annotations == message.annotations
        assert expected.header == message.header
        assert expected.time_to_live_ms == message.time_to_live_ms


@pytest.mark.parametrize("present", range(1, 64))
def test_any_section_may_be_left_out(present):
    """The quick way and the careful way over a message agree on every set of sections."""
    around = [HEADER, MESSAGE_ANNOTATIONS]
    inside = [PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER]
    outer = [section for bit, section in enumerate(around) if present >> bit & 1]
    kept = [section for bit, section in enumerate(inside, 2) if present >> bit & 1]
    chosen = [*outer, *kept]
    message = read_message(encoded(*chosen))
    # Delivery annotations at the end send the same message the careful way.
    careful = read_message(encoded(*chosen, DELIVERY_ANNOTATIONS))
    assert encoded(*kept) == message.body
    for name in ("body", "annotations", "header", "time_to_live_ms"):
        assert getattr(careful, name) == getattr(message, name)
    assert len(encoded(*chosen)) == message.size
    assert len(encoded(*chosen, DELIVERY_ANNOTATIONS)) == careful.size


@pytest.mark.parametrize(
    "descriptor",
    [
        lambda code, _: b"\x53" + bytes((code,)),
        lambda code, _: b"\x80" + bytes(7) + bytes((code,)),
        lambda _, name: encode(Symbol(name)),
        lambda _, name: b"\xb3" + len(name).to_bytes(4, "big") + name.encode(),
    ],
    ids=["short", "long", "symbol", "long-symbol"],
)
def test_descriptors_become_short(descriptor):
    """SDKs expect the one-byte descriptor, so every descriptor is stored in that form."""
    data = b"".join(
        b"\x00" + descriptor(section.descriptor, name) + encode(section.value)
        for section, name in (
            (HEADER, "amqp:header:list"),
            (MESSAGE_ANNOTATIONS, "amqp:message-annotations:map"),
            (PROPERTIES, "amqp:properties:list"),
            (APPLICATION_PROPERTIES, "amqp:application-properties:map"),
            (DATA, "amqp:data:binary"),
            (FOOTER, "amqp:footer:map"),
        )
    )
    message = read_message(data)
    assert bare(PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER) == message.body
    assert 5000 == message.time_to_live_ms


@pytest.mark.parametrize(
    "body",
    [
        b"",
        encode(Described(ULong(0x75), b"")),
        encode(Described(ULong(0x75), b"x" * 255)),
        encode(Described(ULong(0x75), b"x" * 256)),
        encode(Described(ULong(0x75), b"one")) + encode(Described(ULong(0x75), b"two")),
        encode(Described(ULong(0x76), [1, "two"])),
        encode(Described(ULong(0x76), [])) + encode(Described(ULong(0x76), [3])),
        encode(Described(ULong(0x77), None)),
        encode(Described(ULong(0x77), {"a": [1, Described(Symbol("b"), 2)]})),
        encode(Described(ULong(0x77), "text" * 100)),
    ],
)
@pytest.mark.parametrize("footer", [b"", encode(FOOTER)])
def test_every_kind_of_body_is_kept(body, footer):
    """Data, sequences, a value, or nothing, with a footer or without."""
    data = encode(PROPERTIES) + body + footer
    assert data == read_message(encode(HEADER) + data).body


@pytest.mark.parametrize(
    ("fields", "header", "time_to_live_ms"),
    [
        ([], 0, None),
        ([None, None, None], 0, None),
        ([False], pack_header(durable=False), None),
        ([True], pack_header(durable=True, priority=None), None),
        ([True, UByte(0)], pack_header(durable=True, priority=0), None),
        ([None, UByte(255)], pack_header(priority=255), None),
        ([False, UByte(255)], pack_header(durable=False, priority=255), None),
        ([None, None, None, False], pack_header(first_acquirer=False), None),
        ([None, None, UInt(0)], 0, None),
        ([None, None, UInt(0xFFFFFFFF)], 0, 0xFFFFFFFF),
        ([None, None, UInt(7), True, UInt(3)], pack_header(first_acquirer=True), 7),
    ],
)
def test_headers_are_read(fields, header, time_to_live_ms):
    message = read_message(encoded(Described(ULong(0x70), fields), DATA))
    assert header == message.header
    assert time_to_live_ms == message.time_to_live_ms


DAYS_60_MS = 60 * 86_400_000


@pytest.mark.parametrize(
    ("header_ms", "created_ms", "expiry_ms", "expected_ms"),
    [
        pytest.param(None, NOW_MS, NOW_MS + 5_000, 5_000, id="properties alone"),
        pytest.param(9_000, NOW_MS, NOW_MS + 5_000, 5_000, id="the shorter in the properties"),
        pytest.param(3_000, NOW_MS, NOW_MS + 5_000, 3_000, id="the shorter in the header"),
        pytest.param(9_000, NOW_MS, None, 9_000, id="no expiry"),
        pytest.param(None, 0, 5_000, 5_000, id="a clock far from ours"),
        pytest.param(None, NOW_MS, NOW_MS - 5_000, 1, id="over before it began"),
        pytest.param(None, None, 5_000, 1, id="over long ago"),
        pytest.param(0xFFFFFFFF, 0, DAYS_60_MS, DAYS_60_MS, id="longer than a header can say"),
        pytest.param(None, 0, 1 << 60, None, id="for ever"),
    ],
)
@pytest.mark.parametrize("described_by_name", [False, True], ids=["usual", "odd"])
def test_the_shorter_time_of_header_and_properties_counts(
    header_ms, created_ms, expiry_ms, expected_ms, described_by_name
):
    """Both are the sender's. What the properties say is from creation to expiry."""
    times = [None if at_ms is None else Timestamp(at_ms) for at_ms in (expiry_ms, created_ms)]
    header = [None, None, None if header_ms is None else UInt(header_ms)]
    code = Symbol("amqp:properties:list") if described_by_name else ULong(0x73)
    properties = Described(code, ["id", *[None] * 7, *times, "session"])
    message = read_message(encoded(Described(ULong(0x70), header), properties, DATA))
    assert expected_ms == message.time_to_live_ms


def test_an_expiry_without_a_creation_time_is_counted_from_now():
    """By the real time: the sender knew no other."""
    properties = Described(ULong(0x73), ["id", *[None] * 7, Timestamp(1_060_000)])
    message = codec.read_message(encoded(properties, DATA), lambda: 1_000_000)
    assert 60_000 == message.time_to_live_ms


def test_annotations_of_a_broker_are_dropped():
    """A received message that is sent on leaves its old place in a queue behind."""
    annotations = {
        Symbol("x-opt-sequence-number"): Long(1),
        Symbol("x-opt-enqueued-time"): Timestamp(1),
        Symbol("mine"): "kept",
        Symbol("x-opt-locked-until"): Timestamp(1),
        Symbol("x-opt-message-state"): Int(1),
        Symbol("x-opt-enqueue-sequence-number"): Long(1),
        "x-opt-lock-token": UUID(bytes=TOKEN),
        Symbol("x-opt-deadletter-source"): "orders",
        Symbol("x-opt-via-partition-key"): "kept too",
        ULong(5): "reserved",
    }
    message = read_message(encoded(Described(ULong(0x72), annotations), DATA))
    kept = {
        Symbol("mine"): "kept",
        Symbol("x-opt-via-partition-key"): "kept too",
        ULong(5): "reserved",
    }
    assert typed(kept) == typed(decode(message.annotations)[0])


def test_annotations_that_are_all_dropped_leave_nothing():
    annotations = {Symbol("x-opt-sequence-number"): Long(1)}
    assert b"" == read_message(encoded(Described(ULong(0x72), annotations), DATA)).annotations


@pytest.mark.parametrize(("value", "expected"), [(Timestamp(NOW_MS), NOW_MS), (None, 0)])
def test_the_scheduled_enqueue_time_is_taken_out(value, expected):
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): value}
    message = read_message(encoded(Described(ULong(0x72), annotations), DATA))
    assert expected == message.scheduled_enqueue_time_ms
    assert b"" == message.annotations


def test_null_sections_count_as_absent():
    """A null where a list or map could be is not passed on: SDKs trip over it."""
    data = b"\x00\x53\x70\x40\x00\x53\x72\x40\x00\x53\x73\x40\x00\x53\x74\x40" + encode(DATA)
    assert encode(DATA) == read_message(data).body


def test_keys_of_annotations_and_footers_become_symbols():
    """As the service sends them on; what no symbol can be stays as it is."""
    values = [Int(number) for number in range(5)]
    keys = ["a", Symbol("b"), "ä", ULong(4), "long" * 100]
    entries = dict(zip(keys, values, strict=True))
    sections = [Described(ULong(code), entries) for code in (0x71, 0x72)]
    message = read_message(encoded(*sections, DATA, Described(ULong(0x78), entries)))
    keys = [Symbol("a"), Symbol("b"), "ä", ULong(4), Symbol("long" * 100)]
    expected = dict(zip(keys, values, strict=True))
    own, position = decode(message.annotations)
    assert typed(expected) == typed(own)
    assert typed(expected) == typed(decode(message.annotations, position)[0])
    assert bare(DATA, Described(ULong(0x78), expected)) == message.body


def test_delivery_annotations_are_kept_without_the_broker_s():
    """A token of another lock would be taken for this one's."""
    data = encoded(
        Described(ULong(0x71), {Symbol("x-opt-lock-token"): UUID(int=1), "mine": "kept"}), DATA
    )
    message = read_message(data)
    own, position = decode(message.annotations)
    assert {} == own
    assert typed({Symbol("mine"): "kept"}) == typed(decode(message.annotations, position)[0])
    assert len(data) == message.size


@pytest.mark.parametrize("name", ["x-opt-partition-key", "x-opt-via-partition-key"])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("ä key", "ä key"),
        ("ä key".encode(), "ä key"),
        (b"long" * 100, "long" * 100),
        (b"\xff", b"\xff"),
        (None, None),
    ],
)
def test_a_partition_key_that_comes_as_binary_becomes_text(name, sent, kept):
    """The Python SDK sends received keys so, and .NET and Go cannot read them so."""
    message = read_message(encoded(Described(ULong(0x72), {Symbol(name): sent}), DATA))
    assert typed({Symbol(name): kept}) == typed(decode(message.annotations)[0])


def test_binary_names_of_application_properties_become_strings():
    properties = {b"a": 1, "b": b"2", b"long" * 100: "3", "ä".encode(): None}
    message = read_message(encoded(PROPERTIES, Described(ULong(0x74), properties), DATA))
    expected = {"a": 1, "b": b"2", "long" * 100: "3", "ä": None}
    assert bare(PROPERTIES, Described(ULong(0x74), expected), DATA) == message.body


MALFORMED = {
    "nothing": b"",
    "no descriptor": b"\x40",
    "unknown section": encode(Described(ULong(0x79), b"")),
    "foreign symbol": encode(Described(Symbol("amqp:open:list"), [])),
    "descriptor of the wrong type": encode(Described("amqp:data:binary", b"")) + b"\x00",
    "data past the end": b"\x00\x53\x75\xa0\x05abc",
    "long data past the end": b"\x00\x53\x75\xb0\x00\x00\x00\x05abc",
    "garbage after the body": encode(DATA) + b"\x40",
    "properties past the end": b"\x00\x53\x73\xc0\x50\x01\xa1\x02ab",
    "fields past their list": b"\x00\x53\x73\xc0\x04\x01\xa1\x05a" + encode(DATA),
    "fewer bytes than fields": b"\x00\x53\x73\xc0\x02\x02\x40" + encode(DATA),
    "more bytes than fields": b"\x00\x53\x73\xc0\x03\x01\x40\x40" + encode(DATA),
    "list of size zero": b"\x00\x53\x73\xc0\x00\x00" + encode(DATA),
    "compound property": encode(Described(ULong(0x73), [["an id"]])) + encode(DATA),
    "unknown constructor": b"\x00\x53\x73\xc0\x02\x01\x46" + encode(DATA),
    "properties as map": encode(Described(ULong(0x73), {"a": 1})) + encode(DATA),
    "header as map": encode(Described(ULong(0x70), {"a": 1})) + encode(DATA),
    "durable as text": encode(Described(ULong(0x70), ["yes"])) + encode(DATA),
    "durable as number": encode(Described(ULong(0x70), [UInt(1)])) + encode(DATA),
    "first-acquirer as text": encode(Described(ULong(0x70), [*[None] * 3, "no"])) + encode(DATA),
    "negative time to live": encode(Described(ULong(0x70), [None, None, Int(-1)])) + encode(DATA),
    "odd map": b"\x00\x53\x74\xc1\x04\x01\xa1\x01a" + encode(DATA),
    "application properties as list": encode(Described(ULong(0x74), ["a", 1])) + encode(DATA),
    "numeric property name": encode(Described(ULong(0x74), {1: 1})) + encode(DATA),
    "binary property name not UTF-8": b"\x00\x53\x74\xc1\x05\x02\xa0\x01\xff\x40" + encode(DATA),
    "footer as list": encode(DATA) + encode(Described(ULong(0x78), ["a", 1])),
    "delivery annotations as list": encode(Described(ULong(0x71), ["a", 1])) + encode(DATA),
    "property name not UTF-8": b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\x40" + encode(DATA),
    "property list that lies": b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xc0\x01\x05" + encode(DATA),
    "annotation name not UTF-8": b"\x00\x53\x72\xc1\x05\x02\xa3\x01\xff\x40" + encode(DATA),
    "annotations as list": encode(Described(ULong(0x72), ["a", 1])) + encode(DATA),
    "annotation map past its end": b"\x00\x53\x72\xc1\x05\x02\xa3\x09a\x40" + encode(DATA),
    "schedule as text": encode(Described(ULong(0x72), {"x-opt-scheduled-enqueue-time": "soon"})),
    "data as text": encode(Described(ULong(0x75), "text")),
    "sequence as map": encode(Described(ULong(0x76), {})),
    "id not UTF-8": b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff" + encode(DATA),
    "id that ends inside a character": b"\x00\x53\x73\xc0\x05\x01\xa1\x02a\xc3" + encode(DATA),
    "id with an encoded surrogate": b"\x00\x53\x73\xc0\x06\x01\xa1\x03\xed\xa0\x80" + encode(DATA),
    "long id not UTF-8": b"\x00\x53\x73\xc0\x07\x01\xb1\x00\x00\x00\x01\xff" + encode(DATA),
    "symbol as id not UTF-8": b"\x00\x53\x73\xc0\x04\x01\xa3\x01\xff" + encode(DATA),
    "long symbol as id not UTF-8": b"\x00\x53\x73\xc0\x07\x01\xb3\x00\x00\x00\x01\xff"
    + encode(DATA),
    "surrogate as id": encode(Described(ULong(0x73), [Char("\ud800")])) + encode(DATA),
    "character outside Unicode": b"\x00\x53\x73\xc0\x06\x01\x73\x00\x11\x00\x00" + encode(DATA),
    "boolean that is neither": b"\x00\x53\x73\xc0\x03\x01\x56\x02" + encode(DATA),
    "property not UTF-8": b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01\xff" + encode(DATA),
    "long property not UTF-8": b"\x00\x53\x74\xc1\x0a\x02\xa1\x01a\xb1\x00\x00\x00\x01\xff"
    + encode(DATA),
    "property that is no boolean": b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x56\x02" + encode(DATA),
    "property outside Unicode": b"\x00\x53\x74\xc1\x09\x02\xa1\x01a\x73\x00\x11\x00\x00"
    + encode(DATA),
    "annotation not UTF-8": b"\x00\x53\x72\xc1\x07\x02\xa3\x01a\xa1\x01\xff" + encode(DATA),
    "partition key that is no boolean": b"\x00\x53\x72\xc1\x18\x02\xa3\x13x-opt-partition-key\x56\x02"
    + encode(DATA),
    "two headers": encoded(HEADER, HEADER, DATA),
    "two properties": encoded(PROPERTIES, PROPERTIES, DATA),
    "two properties, one empty": encoded(PROPERTIES, Described(ULong(0x73), []), DATA),
    "two application properties": encoded(APPLICATION_PROPERTIES, APPLICATION_PROPERTIES, DATA),
    "two message annotations": encoded(MESSAGE_ANNOTATIONS, MESSAGE_ANNOTATIONS, DATA),
    "two null sections": b"\x00\x53\x73\x40" * 2 + encode(DATA),
    "two values": encoded(Described(ULong(0x77), 1), Described(ULong(0x77), 2)),
    "data and value": encoded(DATA, Described(ULong(0x77), 1)),
    "data and sequence": encoded(DATA, Described(ULong(0x76), [])),
    "two footers": encoded(DATA, FOOTER, FOOTER),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_is_refused(data):
    with pytest.raises(UndecodableMessage):
        read_message(data)


@pytest.mark.parametrize("field", range(13))
@pytest.mark.parametrize("wide", [False, True])
def test_every_text_of_the_properties_is_checked(field, wide):
    """It is read later, when a scheduled message is due or is forwarded, and nobody is left then to be told."""
    text = b"\xb1\x00\x00\x00\x02a\xff" if wide else b"\xa1\x02a\xff"
    fields = b"\x40" * field + text
    with pytest.raises(UndecodableMessage):
        read_message(b"\x00\x53\x73" + compound_of(0xC0, field + 1, fields) + encode(DATA))
    sent = b"\x00\x53\x73" + compound_of(0xC0, field + 1, fields.replace(b"a\xff", b"\xc3\xa4"))
    assert sent + encode(DATA) == read_message(sent + encode(DATA)).body


def test_a_property_may_be_a_lone_surrogate():
    """A .NET `char` can be one. Only ids cannot, because they are stored as text."""
    properties = Described(ULong(0x74), {"a": Char("\ud800")})
    assert bare(properties, DATA) == read_message(encoded(properties, DATA)).body


@pytest.mark.parametrize("time_to_live", [ULong(2**64 - 1), ULong(2**63), Long(2**63 - 1)])
def test_a_time_to_live_that_no_store_can_hold_is_the_longest(time_to_live):
    header = Described(ULong(0x70), [None, None, time_to_live])
    assert UNLIMITED_MS == read_message(encoded(header, DATA)).time_to_live_ms


@pytest.mark.parametrize("moment", [ULong(2**64 - 1), ULong(2**63), Timestamp(2**63 - 1)])
def test_a_schedule_that_no_store_can_hold_is_the_last_moment(moment):
    """The end of the year 9999, the last that .NET can show."""
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): moment}
    message = read_message(encoded(Described(ULong(0x72), annotations), DATA))
    assert 253_402_300_799_999 == message.scheduled_enqueue_time_ms


# --- batches ------------------------------------------------------------------------------------


def test_a_batch_of_the_python_sdk_is_taken_apart():
    """One message for each that was added, in order, each with its own sections."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=10_000)
    originals = [ServiceBusMessage(f"body {number}" * 30, session_id="s") for number in range(3)]
    for original in originals:
        batch.add_message(original)
    output = bytearray()
    encode_payload(output, batch._message)
    messages, size_bytes = read_batch(bytes(output))
    assert batch.size_in_bytes == size_bytes
    assert [read_message(sdk_encoded(original)).body for original in originals] == [
        message.body for message in messages
    ]


def test_what_envelopes_a_batch_is_passed_over():
    """Sections around a batch repeat those of the first message."""
    inner = encoded(HEADER, PROPERTIES, DATA)
    batch = encoded(
        MESSAGE_ANNOTATIONS,
        PROPERTIES,
        APPLICATION_PROPERTIES,
        Described(ULong(0x75), inner),
        Described(ULong(0x75), encode(DATA)),
    )
    (first, second), size_bytes = read_batch(batch)
    assert len(encode(Described(ULong(0x75), inner))) + len(encode(DATA)) + 5 == size_bytes
    assert encoded(PROPERTIES, DATA) == first.body
    assert 5000 == first.time_to_live_ms
    assert encode(DATA) == second.body
    assert b"" == first.annotations


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encoded(PROPERTIES),
        encoded(Described(ULong(0x77), encode(DATA))),
        encoded(Described(ULong(0x75), encode(DATA)), Described(ULong(0x75), b"no message")),
        encoded(Described(ULong(0x75), b"")),
        encoded(Described(ULong(0x75), encode(DATA)))[:-1],
    ],
    ids=["nothing", "no data", "value", "one bad", "empty message", "truncated"],
)
def test_a_batch_is_refused_as_a_whole(data):
    with pytest.raises(UndecodableMessage):
        read_batch(data)


# --- hostile input ------------------------------------------------------------------------------


@given(st.binary(max_size=100))
def test_no_bytes_break_the_reader(data):
    _refused_or_deliverable(data)


# Descriptors, constructors and sizes lead further into the reader than other bytes.
telling_bytes = st.sampled_from(
    bytes.fromhex("000102404553707273747577 80a0a1a3b0b1c0c1d0d1e0f0ff7f")
) | st.integers(0, 255)


@given(messages, st.data())
def test_no_mutation_breaks_the_reader(data, draw):
    """A bit flipped, bytes cut out, put in or overwritten: refused, or delivered like any other."""
    mutated = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(mutated)))
        stop = draw.draw(st.integers(start, min(len(mutated), start + 6)))
        mutated[start:stop] = bytes(draw.draw(st.lists(telling_bytes, max_size=6)))
    _refused_or_deliverable(bytes(mutated))


def _refused_or_deliverable(data):
    try:
        message = taken(data)
    except UndecodableMessage:
        return
    message.time_to_live_ms = 5
    message.changes = MessageChanges(
        properties={"a": encode(1)}, system={"messageid": encode("m"), "partitionkey": None}
    )
    again = read_message(encode_message(message, TOKEN, LOCKED_UNTIL_MS))
    assert 5 == again.time_to_live_ms


@given(st.binary(max_size=100))
def test_no_bytes_break_the_reader_of_batches(data):
    with suppress(UndecodableMessage):
        read_batch(encode(Described(ULong(0x75), data)))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("long_one", [0, 1, 2])
def test_short_and_long_data_sections_of_a_batch_come_in_any_order(count, long_one):
    """Short ones in a row are read without looking for other sections; others may be between them."""
    message = encode(Described(ULong(0x75), b"body"))
    large = encode(Described(ULong(0x75), b"x" * 300))
    annotations = encode(Described(ULong(0x72), {Symbol("x-opt-partition-key"): "a"}))
    short = encode(Described(ULong(0x75), message)) * count
    long = encode(Described(ULong(0x75), large))
    parts = [short, short]
    parts.insert(long_one, long)
    messages, size_bytes = read_batch(annotations + b"".join(parts))
    bodies = [message] * count, [message] * count
    expected = [
        *([large] if long_one == 0 else []),
        *bodies[0],
        *([large] if long_one == 1 else []),
    ]
    expected += [*bodies[1], *([large] if long_one == 2 else [])]
    assert expected == [one.body for one in messages]
    assert sum(map(len, parts)) == size_bytes


@pytest.mark.parametrize("missing", [1, 5, 12, 13])
def test_a_batch_that_ends_inside_a_data_section_is_refused(missing):
    """Also if complete ones precede it."""
    one = encode(Described(ULong(0x75), encode(Described(ULong(0x75), b"body"))))
    with pytest.raises(UndecodableMessage):
        read_batch((one * 3)[:-missing])


@pytest.mark.parametrize("size_bytes", [10, 300])
def test_a_batch_of_too_many_messages_is_refused_before_they_are_read(size_bytes):
    """A million small ones took 470 MB. The last one is malformed, and is not looked at."""
    one = encode(Described(ULong(0x75), encode(Described(ULong(0x75), bytes(size_bytes)))))
    assert 3 == len(read_batch(one * 3, 3)[0])
    for data in (one * 4, one * 4 + b"malformed", encode(HEADER) + one * 4):
        with pytest.raises(MessageSizeExceeded):
            read_batch(data, 3)


def test_other_sections_of_a_batch_come_once():
    """They are skipped one by one, and there could be millions."""
    one = encode(Described(ULong(0x75), encode(DATA)))
    with pytest.raises(UndecodableMessage):
        read_batch(encode(HEADER) * 2 + one)


@pytest.mark.parametrize("descriptor", [[ULong(0x75)], {}, Described(ULong(0x75), ULong(0x75)), []])
def test_a_descriptor_that_is_a_compound_value_is_refused(descriptor):
    """It is not decoded, because it may be as large as the message."""
    with pytest.raises(UndecodableMessage, match="descriptor"):
        read_message(encode(Described(descriptor, b"body")))


def test_descriptors_of_descriptors_are_not_followed_for_long():
    """A body of zeros is such a value: eight million took two seconds."""
    with pytest.raises(UndecodableMessage, match="nested"):
        read_message(b"\x00\x53\x77" + bytes(1_000))
