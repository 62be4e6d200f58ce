"""What a receiver gets, down to the AMQP types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.message import MessageState
from broker.core.contract.message_changes import MessageChanges
from config.model.definitions import UNLIMITED_MS
from protocol.codec import (
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    decode,
    delivery_tag,
    encode,
    encode_delivery,
    encode_message,
    lock_token,
    pack_header,
)
from tests.support.amqp_messages import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    LOCKED_UNTIL_MS,
    NOW_MS,
    PROPERTIES,
    TOKEN,
    delivered,
    encoded,
    message_changes,
    messages,
    sdk_encoded,
    sections_of,
    taken,
)
from tests.support.amqp_values import typed

# --- delivering ---------------------------------------------------------------------------------


def test_a_plain_delivery_hands_out_the_stored_body():
    """The second part is the stored object, not a copy."""
    message = taken()
    _, body = encode_delivery(message, TOKEN, LOCKED_UNTIL_MS)
    assert body is message.body


@pytest.mark.parametrize("annotations", [b"", encode({Symbol("mine"): 1})], ids=["plain", "own"])
def test_the_types_of_the_sections_are_those_sdks_cast_to(annotations):
    """Java, Go and .NET cast without looking, so the AMQP type matters as much as the value."""
    message = taken(annotations=annotations, delivery_count=2, state=MessageState.DEFERRED)
    sections = delivered(message, with_state=True)
    assert typed([None, None, None, None, UInt(2)]) == typed(sections[0x70])
    assert typed({Symbol("x-opt-lock-token"): UUID(bytes=TOKEN)}) == typed(sections[0x71])
    own = {
        Symbol("x-opt-enqueued-time"): Timestamp(NOW_MS),
        Symbol("x-opt-sequence-number"): Long(12),
        Symbol("x-opt-enqueue-sequence-number"): Long(11),
        Symbol("x-opt-message-state"): Int(1),
        Symbol("x-opt-locked-until"): Timestamp(LOCKED_UNTIL_MS),
    }
    if annotations:
        own[Symbol("mine")] = Int(1)
    assert own.keys() == sections[0x72].keys()
    for name, value in own.items():
        assert typed(value) == typed(sections[0x72][name])
    assert PROPERTIES.value == sections[0x73]
    assert b"body" == sections[0x75]


@pytest.mark.parametrize("annotations", [b"", encode({Symbol("mine"): 1})], ids=["plain", "own"])
def test_a_delivery_without_a_lock_has_no_lock_annotations(annotations):
    """Receive-and-delete and peek show no token and no locked-until time."""
    sections = delivered(taken(annotations=annotations), None)
    assert {} == sections[0x71]
    assert Symbol("x-opt-locked-until") not in sections[0x72]
    assert 12 == sections[0x72][Symbol("x-opt-sequence-number")]


USUAL = {"x-opt-enqueued-time", "x-opt-sequence-number"}
FROM_ELSEWHERE = "x-opt-enqueue-sequence-number"
STATE = "x-opt-message-state"
LOCK = "x-opt-locked-until"


@pytest.mark.parametrize("annotations", [b"", encode({Symbol("mine"): 1})], ids=["plain", "own"])
@pytest.mark.parametrize(
    ("token", "options", "number", "expected"),
    [
        pytest.param(TOKEN, {}, 12, {LOCK}, id="peek-lock"),
        pytest.param(None, {}, 12, set(), id="receive and delete"),
        pytest.param(TOKEN, {"from_topic": True}, 12, {LOCK, FROM_ELSEWHERE}, id="subscription"),
        pytest.param(TOKEN, {}, 11, {LOCK, FROM_ELSEWHERE}, id="numbered elsewhere"),
        pytest.param(None, {"with_state": True}, 12, {STATE}, id="peek"),
        pytest.param(TOKEN, {"with_state": True}, 12, {LOCK, STATE}, id="deferred"),
    ],
)
def test_a_delivery_has_the_annotations_the_service_gives_it(
    annotations, token, options, number, expected
):
    """The Go and Python SDKs' own live tests count them."""
    message = taken(annotations=annotations, enqueue_sequence_number=number)
    found = set(delivered(message, token, **options)[0x72])
    assert USUAL | expected | ({"mine"} if annotations else set()) == found


def test_a_forwarded_message_shows_its_first_number_even_if_it_is_the_same():
    message = taken(enqueue_sequence_number=12, changes=MessageChanges(hops=1))
    assert 12 == delivered(message)[0x72][Symbol(FROM_ELSEWHERE)]


@pytest.mark.parametrize("annotations", [b"", encode({Symbol("mine"): 1})], ids=["plain", "own"])
def test_a_peeked_message_says_until_when_it_was_locked(annotations):
    """Without a token: who peeks holds no lock."""
    encoding = encode_message(taken(annotations=annotations), None, LOCKED_UNTIL_MS)
    sections = sections_of(encoding)
    assert typed(Timestamp(LOCKED_UNTIL_MS)) == typed(sections[0x72][Symbol(LOCK)])
    assert {} == sections[0x71]


@pytest.mark.parametrize("token", [TOKEN, None], ids=["locked", "unlocked"])
def test_delivery_annotations_come_back_beside_the_lock_token(token):
    sent = Described(ULong(0x71), {Symbol("mine"): "yes", Symbol("x-opt-lock-token"): "stale"})
    sections = delivered(taken(encoded(sent, PROPERTIES, DATA)), token)
    expected: dict[Symbol, object] = {Symbol("mine"): "yes"}
    if token:
        expected[Symbol("x-opt-lock-token")] = UUID(bytes=token)
    assert typed(expected) == typed(sections[0x71])


@pytest.mark.parametrize("first_acquirer", [None, True, False])
@pytest.mark.parametrize("durable", [None, True, False])
@pytest.mark.parametrize("priority", [None, 0, 4, 255])
@pytest.mark.parametrize("time_to_live_ms", [None, 1000])
@pytest.mark.parametrize("token", [TOKEN, None])
def test_the_header_has_the_fields_of_the_sender(
    first_acquirer, durable, priority, time_to_live_ms, token
):
    message = taken(
        header=pack_header(durable=durable, priority=priority, first_acquirer=first_acquirer),
        time_to_live_ms=time_to_live_ms,
        delivery_count=9,
    )
    expected = [
        durable,
        None if priority is None else UByte(priority),
        None if time_to_live_ms is None else UInt(time_to_live_ms),
        first_acquirer,
        UInt(9),
    ]
    assert typed(expected) == typed(delivered(message, token)[0x70])


@pytest.mark.parametrize("changes", [None, MessageChanges(dead_letter_reason="r")])
def test_a_properties_section_is_always_there(changes):
    """Go reads the delivery count only where there are properties."""
    assert [] == delivered(taken(encode(DATA), changes=changes))[0x73]


@pytest.mark.parametrize("count", range(14))
@pytest.mark.parametrize("changes", [None, MessageChanges(system={"to": encode("there")})])
def test_a_time_to_live_leaves_the_sender_s_times_alone(count, changes):
    """Creation and expiry time are the sender's, however many fields it wrote."""
    fields = [*"abcdefgh", Timestamp(1), Timestamp(2), "group", UInt(3), "reply-group"][:count]
    data = encoded(*([Described(ULong(0x73), fields)] if count else []), DATA)
    sections = delivered(taken(data, time_to_live_ms=5000, changes=changes))
    expected: list[object] = [*fields]
    if changes is not None:
        expected += [None] * (3 - count)
        expected[2] = "there"
    assert typed(expected) == typed(sections[0x73])
    assert UInt(5000) == sections[0x70][2]
    assert b"body" == sections[0x75]


@pytest.mark.parametrize("changes", [None, MessageChanges(system={"to": encode("there")})])
@pytest.mark.parametrize("annotations", [b"", encode({Symbol("mine"): 1})], ids=["plain", "own"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([], [NOW_MS + 2**40, NOW_MS]),
        ([None, Timestamp(5)], [5 + 2**40, 5]),
        ([Timestamp(6), Timestamp(5)], [6, 5]),
        ([Timestamp(6)], [6]),
    ],
)
def test_a_time_to_live_too_long_for_a_header_shows_in_the_properties(
    changes, annotations, sent, expected
):
    """SDKs take it from there, and what the sender wrote is not touched."""
    data = encoded(Described(ULong(0x73), [*[None] * 8, *sent]), DATA)
    message = taken(data, time_to_live_ms=2**40, changes=changes, annotations=annotations)
    sections = delivered(message)
    assert 0xFFFFFFFF == sections[0x70][2]
    assert typed([Timestamp(at_ms) for at_ms in expected]) == typed(sections[0x73][8:])
    assert b"body" == sections[0x75]


def test_a_time_to_live_without_end_is_in_no_section_but_the_header():
    assert PROPERTIES.value == delivered(taken(time_to_live_ms=UNLIMITED_MS))[0x73]


def test_message_changes_replace_application_properties():
    """Properties are set, replaced and removed; reason and description are added as texts."""
    changes = MessageChanges(
        properties={"colour": None, "count": encode(Long(4)), "new": encode(True), "no": None},
        dead_letter_reason="why",
        dead_letter_description="because",
    )
    data = encoded(PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER)
    sections = delivered(taken(data, changes=changes))
    expected = {
        "count": Long(4),
        "new": True,
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }
    assert typed(expected) == typed(sections[0x74])
    assert PROPERTIES.value == sections[0x73]
    assert b"body" == sections[0x75]
    assert FOOTER.value == sections[0x78]


def test_message_changes_without_properties_adds_no_section():
    assert 0x74 not in delivered(taken(changes=MessageChanges(hops=1)))


def test_message_changes_that_remove_all_properties_leaves_no_section():
    changes = MessageChanges(properties={"colour": None, "count": None})
    assert 0x74 not in delivered(taken(encoded(APPLICATION_PROPERTIES, DATA), changes=changes))


def test_rule_actions_change_system_properties():
    """Fields and annotations are replaced, added and removed; the content type stays a symbol."""
    changes = MessageChanges(
        system={
            "messageid": encode("new id"),
            "label": None,
            "contenttype": encode("text/plain"),
            "sessionid": encode("new session"),
            "partitionkey": encode("new key"),
            "viapartitionkey": None,
            "scheduledenqueuetimeutc": encode(Timestamp(5)),
            "timetolive": encode(5),
        }
    )
    annotations = {
        Symbol("x-opt-partition-key"): "old",
        Symbol("x-opt-via-partition-key"): "old",
        ULong(3): "kept",
    }
    message = taken(
        encoded(Described(ULong(0x72), annotations), PROPERTIES, DATA),
        changes=changes,
        scheduled_enqueue_time_ms=4,
    )
    sections = delivered(message)
    fields = ["new id", None, "a place", None, None, None, Symbol("text/plain")]
    assert typed([*fields, None, None, None, "new session"]) == typed(sections[0x73])
    found = sections[0x72]
    assert "new key" == found[Symbol("x-opt-partition-key")]
    assert Symbol("x-opt-via-partition-key") not in found
    assert typed(Timestamp(5)) == typed(found[Symbol("x-opt-scheduled-enqueue-time")])
    assert "kept" == found[ULong(3)]
    assert b"body" == sections[0x75]


def test_schedule_and_dead_letter_source_are_shown():
    message = taken(
        scheduled_enqueue_time_ms=NOW_MS - 5, changes=MessageChanges(dead_letter_source="orders")
    )
    annotations = delivered(message)[0x72]
    expected = typed(Timestamp(NOW_MS - 5))
    assert expected == typed(annotations[Symbol("x-opt-scheduled-enqueue-time")])
    assert typed("orders") == typed(annotations[Symbol("x-opt-deadletter-source")])


@pytest.mark.parametrize("token", [TOKEN, None], ids=["locked", "unlocked"])
@pytest.mark.parametrize("time_to_live_ms", [None, 1000], ids=["for ever", "expiring"])
@pytest.mark.parametrize("late_ms", [0, 5], ids=["scheduled", "sent too late"])
def test_a_message_that_was_scheduled_says_so_and_is_otherwise_as_any(
    time_to_live_ms, token, late_ms
):
    """Its annotations are those of a message that was not, and two more.

    The live tests of the JavaScript SDK ask that a received message is still called scheduled if it
    waited for its time, but not if that time had passed when it was sent.
    """
    usual = delivered(taken(time_to_live_ms=time_to_live_ms), token)
    scheduled = delivered(
        taken(time_to_live_ms=time_to_live_ms, scheduled_enqueue_time_ms=NOW_MS - late_ms), token
    )
    when = scheduled[0x72].pop(Symbol("x-opt-scheduled-enqueue-time"))
    assert typed(Timestamp(NOW_MS - late_ms)) == typed(when)
    if not late_ms:
        state = scheduled[0x72].pop(Symbol("x-opt-message-state"))
        assert typed(Int(MessageState.SCHEDULED)) == typed(state)
    assert usual == scheduled


def test_management_shows_the_state_of_a_message_even_if_it_was_scheduled():
    message = taken(scheduled_enqueue_time_ms=NOW_MS)
    annotations = sections_of(encode_message(message))[0x72]
    assert MessageState.ACTIVE == annotations[Symbol("x-opt-message-state")]


def test_many_annotations_take_the_long_form():
    annotations = {Symbol(f"annotation {number}"): "x" * 50 for number in range(200)}
    message = taken(encoded(Described(ULong(0x72), annotations), DATA))
    found = delivered(message)[0x72]
    assert annotations.items() <= found.items()
    assert 204 == len(found)


def test_a_message_in_one_piece_is_the_delivery():
    message = taken()
    parts = encode_delivery(message, None, 0, with_state=True)
    assert b"".join(parts) == encode_message(message)


@given(st.binary(min_size=16, max_size=16))
def test_a_delivery_tag_is_the_token_in_mixed_order(token):
    """As .NET lays out a Guid, and back again."""
    assert UUID(bytes=token).bytes_le == delivery_tag(token)
    assert token == lock_token(delivery_tag(token))


@given(messages, st.none() | message_changes, st.none() | st.integers(1, 2**40))
def test_what_could_be_read_can_be_delivered(data, changes, time_to_live_ms):
    """Every accepted message, with any changes, has a delivery that can be decoded."""
    message = taken(data, changes=changes, time_to_live_ms=time_to_live_ms)
    encoding = encode_message(message, TOKEN, LOCKED_UNTIL_MS)
    position = 0
    codes = []
    while position < len(encoding):
        section, position = decode(encoding, position)
        assert isinstance(section, Described)
        assert isinstance(section.descriptor, ULong)
        codes.append(section.descriptor)
    assert [0x70, 0x71, 0x72, 0x73] == codes[:4]
    assert sorted(codes) == codes


# --- SDKs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        ServiceBusMessage(b"x" * 256),
        ServiceBusMessage(b""),
        ServiceBusMessage(None),
        ServiceBusMessage("text", application_properties={"a": 1, b"b": "two", "c": 1.5}),
        ServiceBusMessage(
            b"one",
            session_id="s",
            message_id="m",
            partition_key="s",
            content_type="text/plain",
            subject="subject",
            correlation_id="c",
            to="to",
            reply_to="r",
            reply_to_session_id="rs",
            time_to_live=timedelta(seconds=10),
            scheduled_enqueue_time_utc=datetime.fromtimestamp(NOW_MS / 1000, UTC),
        ),
        AmqpAnnotatedMessage(value_body={"a": [1, 2]}, footer={"f": 1}),
        AmqpAnnotatedMessage(data_body=[b"one", b"two"]),
        AmqpAnnotatedMessage(sequence_body=[[1, 2], ["a"]], delivery_annotations={"d": 1}),
        AmqpAnnotatedMessage(
            data_body=b"d",
            header=AmqpMessageHeader(durable=False, priority=3, first_acquirer=False),
            properties=AmqpMessageProperties(message_id="m", user_id=b"u", creation_time=1),
            annotations={"x": "y"},
        ),
    ],
)
def test_messages_of_the_python_sdk_come_back_as_they_were(message):
    """What an SDK sends, an SDK receives: every section the sender filled is there unchanged."""
    data = sdk_encoded(message)
    sent = decode_payload(memoryview(data))
    received = decode_payload(memoryview(encode_message(taken(data), TOKEN, LOCKED_UNTIL_MS)))
    assert sent.data == received.data
    assert sent.value == received.value
    assert sent.sequence == received.sequence
    assert sent.footer == received.footer
    assert sent.application_properties == received.application_properties
    sent_annotations = sent.message_annotations or {}
    assert sent_annotations.items() <= (received.message_annotations or {}).items()
    sent_delivery_annotations = sent.delivery_annotations or {}
    assert sent_delivery_annotations.items() <= (received.delivery_annotations or {}).items()
    for name in sent.properties._fields if sent.properties else ():
        assert getattr(sent.properties, name) == getattr(received.properties, name)
    for name in ("durable", "priority", "ttl", "first_acquirer"):
        assert getattr(sent.header, name, None) == getattr(received.header, name)


def test_the_python_sdk_shows_what_the_broker_says():
    """The SDK's received message has every property of the queue's."""
    scheduled = datetime.fromtimestamp(NOW_MS / 1000 - 60, UTC)
    data = sdk_encoded(
        ServiceBusMessage(
            "hello",
            session_id="s",
            message_id="m",
            time_to_live=timedelta(seconds=10),
            scheduled_enqueue_time_utc=scheduled,
        )
    )
    message = taken(data, delivery_count=3, state=MessageState.DEFERRED)
    message.changes = MessageChanges(
        dead_letter_reason="why", dead_letter_description="because", dead_letter_source="orders"
    )
    received = ServiceBusReceivedMessage.from_bytes(encode_message(message, TOKEN, LOCKED_UNTIL_MS))
    enqueued = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert "hello" == str(received)
    assert "m" == received.message_id
    assert "s" == received.session_id
    assert 12 == received.sequence_number
    assert 11 == received.enqueued_sequence_number
    assert enqueued == received.enqueued_time_utc
    assert enqueued + timedelta(seconds=30) == received.locked_until_utc
    assert enqueued + timedelta(seconds=10) == received.expires_at_utc
    assert timedelta(seconds=10) == received.time_to_live
    assert scheduled == received.scheduled_enqueue_time_utc
    assert UUID(bytes=TOKEN) == UUID(str(received.lock_token))
    assert 3 == received.delivery_count
    assert 1 == received.state.value
    assert "why" == received.dead_letter_reason
    assert "because" == received.dead_letter_error_description
    assert "orders" == received.dead_letter_source


@pytest.mark.parametrize(
    "message",
    [
        proton.Message(body="text", id="an id", subject="s", properties={"a": 1, "b": "c"}),
        proton.Message(body=b"data", inferred=True, durable=True, priority=9, ttl=5),
        proton.Message(body={"a": [1, 2.5]}, group_id="g", content_type="t"),
        proton.Message(),
    ],
)
def test_messages_of_proton_come_back_as_they_were(message):
    """A generic client's message is delivered with its own fields, body and properties."""
    stored = taken(bytes(message.encode()))
    received = proton.Message()
    received.decode(encode_message(stored, TOKEN, LOCKED_UNTIL_MS))
    for name in ("id", "subject", "group_id", "content_type", "properties", "durable", "priority"):
        assert getattr(message, name) == getattr(received, name)
    body: object = received.body
    assert message.body == (bytes(body) if isinstance(body, memoryview) else body)
    assert message.ttl == received.ttl
