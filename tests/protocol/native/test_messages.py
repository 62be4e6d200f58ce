"""What the compiled module makes of a message is what the codec makes of it, bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message import Message
from protocol.codec.message_reader import Reader
from protocol.codec.section_reader import read_any
from protocol.codec.section_writer import _shape_of, encode_any, encode_deliveries
from protocol.native import compiled
from tests.support.amqp_messages import NOW_MS, TOKEN

SLOTS = Message.__slots__

simple_values = st.sampled_from(
    [
        b"\x40",
        b"\x41",
        b"\x42",
        b"\x43",
        b"\x44",
        b"\x45",
        b"\x50\x07",
        b"\x50\xff",
        b"\x52\x00",
        b"\x52\x09",
        b"\x53\x01",
        b"\x54\xff",
        b"\x56\x00",
        b"\x56\x01",
        b"\x56\x02",
        b"\x60\x00\x01",
        b"\x70\x00\x00\x00\x00",
        b"\x70\x00\x00\x13\x88",
        b"\x70\xff\xff\xff\xff",
        b"\x74\x22\x50\x00\x07",
        b"\x80" + bytes(8),
        b"\x83" + bytes(8),
        b"\x83" + (1_700_000_000_000).to_bytes(8),
        b"\x83" + (1_700_000_005_000).to_bytes(8),
        b"\x83\x7f" + b"\xff" * 7,
        b"\x83\x80" + bytes(7),
        b"\x83" + b"\xff" * 8,
        b"\x98" + TOKEN,
        b"\xa0\x02ab",
        b"\xa1\x00",
        b"\xa1\x02ab",
        b"\xa1\x02\xc3\xa4",
        b"\xa1\x01\xff",
        b"\xa3\x03sym",
        b"\xb0\x00\x00\x00\x03abc",
        b"\xb1\x00\x00\x00\x02xy",
        b"\xc0\x01\x00",
        b"\xc1\x01\x00",
        b"\x00\x53\x24\x45",
        b"\x00\xa3\x01x\x40",
        b"\xe0\x02\x00\x40",
        b"\x3f",
        b"\xa1\x09short",
        b"\xb0\xff\xff\xff\xff",
        b"",
    ]
)
names = st.sampled_from(
    [
        b"x-opt-scheduled-enqueue-time",
        b"x-opt-partition-key",
        b"x-opt-via-partition-key",
        b"x-opt-sequence-number",
        b"x-option",
        b"mine",
        "schön".encode(),
        b"\xff",
        b"",
    ]
)
name_codes = st.sampled_from([b"\xa3", b"\xa3", b"\xa1", b"\xa1", b"\xa0"])
keys = st.builds(lambda code, name: code + bytes((len(name),)) + name, name_codes, names)


def compound(short: int, items: list[bytes], wide: bool, extra: int) -> bytes:
    """A list or map, whose count is wrong by `extra`."""
    content = b"".join(items)
    count = max(0, len(items) + extra)
    if wide or len(content) > 250:
        return bytes((short + 0x10,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content
    return bytes((short, len(content) + 1, count)) + content


wrong_counts = st.sampled_from([0] * 12 + [1, -1])
lists = st.builds(
    compound,
    st.just(0xC0),
    st.lists(simple_values, max_size=13),
    st.booleans(),
    wrong_counts,
)
maps = st.builds(
    compound,
    st.just(0xC1),
    st.lists(st.tuples(keys, simple_values), max_size=3).map(
        lambda entries: [part for entry in entries for part in entry]
    ),
    st.booleans(),
    wrong_counts,
)
compounds = lists | maps | st.just(b"\x45") | st.just(b"\x40")


def section(code: int, content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    start = st.sampled_from([b"\x00\x53"] * 8 + [b"\x00\x80" + bytes(7)])
    return st.builds(lambda start, content: start + bytes((code,)) + content, start, content)


def maybe(strategy: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.just(b"") | strategy


bodies = section(
    0x75, simple_values | st.binary(max_size=300).map(lambda b: b"\xb0" + len(b).to_bytes(4) + b)
)
parts = st.tuples(
    maybe(section(0x70, lists | compounds)),
    maybe(section(0x71, maps)),
    maybe(section(0x72, maps)),
    maybe(section(0x73, lists | compounds)),
    maybe(section(0x74, maps | compounds)),
    bodies | section(0x77, simple_values | compounds) | st.just(b""),
    maybe(section(0x78, maps)),
).map(b"".join)


@st.composite
def messages(draw):
    """Messages of every shape, some cut short and some with a changed byte."""
    data = bytearray(draw(parts))
    change = draw(st.sampled_from(["none", "none", "none", "cut", "byte"]))
    if data and change == "cut":
        del data[draw(st.integers(0, len(data) - 1)) :]
    elif data and change == "byte":
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def fields_of(message):
    return {name: getattr(message, name) for name in SLOTS}


@given(messages())
@example(b"")
@example(b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0\x00\x00\x00\x01a")
@example(b"\x00\x53\x70\xc0\x05\x03\x40\x40\x52\x07\x00\x53\x75\xa0\x01a")
def test_a_message_is_read_as_the_codec_reads_it(data):
    """Or not at all; then the codec reads it. No malformed message is accepted."""
    (message,) = compiled.read_messages([data])
    if message is not None:
        assert fields_of(read_any(data, lambda: NOW_MS)) == fields_of(message)


ANNOTATED = bytes.fromhex("005372") + compound(0xC1, [b"\xa3\x04mine", b"\xa1\x01a"], False, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x53\x75\xa0\x01a",
        b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0\x00\x00\x00\x01a",
        b"\x00\x53\x70\x45\x00\x53\x73\x45\x00\x53\x77\xa1\x01a",
        ANNOTATED + b"\x00\x53\x73\xc0\x04\x01\xa1\x01i\x00\x53\x75\xa0\x01a",
        b"\x00\x53\x74\xc1\x07\x02\xa1\x01k\xa1\x01v\x00\x53\x75\xa0\x01a",
    ],
)
def test_a_plain_message_is_read(data):
    """The test above would also pass if none were."""
    (message,) = compiled.read_messages((data,))
    assert fields_of(read_any(data, lambda: NOW_MS)) == fields_of(message)


def test_a_batch_is_read_in_its_order():
    """With None where the codec has to read."""
    one, none, two = compiled.read_messages(
        [b"\x00\x53\x75\xa0\x01a", b"junk", b"\x00\x53\x75\xa0\x02bc"]
    )
    assert one is not None
    assert none is None
    assert two is not None
    assert [b"\x00\x53\x75\xa0\x01a", b"\x00\x53\x75\xa0\x02bc"] == [one.body, two.body]


def test_what_is_not_bytes_is_an_error():
    """And no crash."""
    with pytest.raises(TypeError):
        compiled.read_messages([bytearray(b"\x00\x53\x75\xa0\x01a")])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        compiled.read_messages(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compiled.set_message_type(object, Message)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compiled.set_message_type(Message(b""), Message)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compiled.give_ids([object()], b"0" * 16, 1)  # type: ignore[list-item]
    with pytest.raises(ValueError):
        compiled.write_heads([], [], 0, 0, b"", b"")
    with pytest.raises(ValueError):
        compiled.write_heads([], [], -1, 0, b"", bytes(7))
    with pytest.raises(TypeError):
        compiled.write_heads((), (), 0, 0, b"", bytes(7))  # type: ignore[arg-type]


moments = st.sampled_from([0, 1, NOW_MS])


@st.composite
def stored(draw):
    message = Message(draw(st.sampled_from([b"\x00\x53\x75\xa0\x01a", b"\x00\x53\x73\x45"])))
    message.header = draw(st.integers(0, 0x1FFF).filter(lambda value: value >> 11 < 3))
    message.header &= ~(0x1FF << 1) | min(message.header >> 1 & 0x1FF, 256) << 1
    message.time_to_live_ms = draw(st.sampled_from([None, 1, 0xFFFFFFFF, 0x100000000]))
    message.sequence_number = draw(st.integers(1, 2**63 - 1))
    message.enqueue_sequence_number = draw(st.sampled_from([1, message.sequence_number]))
    message.enqueued_time_ms = draw(moments)
    message.scheduled_enqueue_time_ms = draw(moments)
    message.delivery_count = draw(st.integers(0, 2**31))
    message.state = draw(st.integers(0, 2))
    return message


tokens = st.sampled_from([None, TOKEN])
SHAPE = _shape_of(Message(b""))


@given(
    st.lists(st.tuples(stored(), tokens), min_size=1, max_size=4),
    moments,
    st.booleans(),
    st.booleans(),
)
def test_messages_are_written_as_the_codec_writes_each(messages, until_ms, from_topic, state):
    """Whatever is the same in some of them, and whatever differs."""
    stored_messages = [message for message, _ in messages for _ in range(2)]
    lock_tokens = [token for _, token in messages for _ in range(2)]
    heads, bodies = encode_deliveries(
        stored_messages, lock_tokens, until_ms, from_topic=from_topic, with_state=state
    )
    for message, token, head, body in zip(stored_messages, lock_tokens, heads, bodies, strict=True):
        expected = encode_any(message, token, until_ms, from_topic=from_topic, with_state=state)
        assert b"".join(expected) == head + body


def test_places_behind_the_end_of_a_template_are_ignored():
    """And nothing is written there."""
    places = bytes((200, 4, 5, 6, 7, 8, 250))
    (head,) = compiled.write_heads(
        [Message(b"\x00\x53\x73\x45")], [TOKEN], 0, SHAPE, b"template", places
    )
    assert b"temp" == head[:4]
    assert 8 == len(head)


def test_an_unusual_message_is_left_to_the_codec():
    """Its annotations, its changes or its absent body, or because it needs another template."""
    plain, annotated, absent = Message(b""), Message(b"", annotations=b"\xc1\x01\x00"), Message(b"")
    absent.body = None
    durable = Message(b"", header=1)
    for other in (annotated, absent, durable):
        messages = [plain, plain, other, plain]
        assert 2 == len(compiled.write_heads(messages, [None] * 4, 0, SHAPE, b"head", bytes(7)))
        assert 1 == len(compiled.write_heads(messages, [None] * 4, 3, SHAPE, b"head", bytes(7)))
    assert [] == compiled.write_heads([plain], [None], 1, SHAPE, b"head", bytes(7))
    assert [] == compiled.write_heads(
        [plain], [None], 0, SHAPE, b"head", bytes((1, 0, 0, 0, 0, 0, 0))
    )
    assert [] == compiled.write_heads(
        [plain], [b"short"], 0, SHAPE, b"head", bytes((1, 0, 0, 0, 0, 0, 0))
    )


@given(messages())
def test_an_id_is_given_once(data):
    """To every message that has none; a second time changes nothing."""
    try:
        message = read_any(data, lambda: NOW_MS)
    except UndecodableMessage:
        return
    number = compiled.give_ids([message], b"0123456789abcdef", 7)
    body = message.body
    assert number == compiled.give_ids([message], b"0123456789abcdef", number)
    assert body == message.body


@example([b"\x40"] * 10 + [b"\xa1\x02ab"])
@example([b"\xa1\x02id"] + [b"\x40"] * 9 + [b"\xa1\x02\xc3\xa4", b"\x43"])
@example([b"\x40"] * 10 + [b"\xa1\x01\xff"])
@given(st.lists(simple_values, max_size=13))
def test_session_ids_are_those_that_the_codec_reads(fields):
    """Or None, and then the codec reads them. Nothing is read behind the end of a body that is cut off."""
    content = b"".join(fields)
    body = b"\x00\x53\x73\xc0" + bytes([len(content) + 1, len(fields)]) + content
    (found,) = compiled.read_session_ids([body])
    if found is not None:
        assert found == Reader().session_id(body)
    for end in range(len(body)):
        assert [None] == compiled.read_session_ids([body[:end]])


def test_session_ids_are_read_from_a_list_of_bodies():
    """A message without a body has none."""
    fields = b"\xa1\x02id" + b"\x40" * 9 + b"\xa1\x03a\xc3\xa4"
    body = b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 11]) + fields
    assert ["a\u00e4", None] == compiled.read_session_ids([body, body.replace(b"\xc3", b"\xff")])
    assert [None, None] == compiled.read_session_ids([None, b""])
    with pytest.raises(TypeError):
        compiled.read_session_ids(["text"])  # type: ignore[list-item]
