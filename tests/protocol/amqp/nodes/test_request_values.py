"""The values of a request are counted before they are decoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.commands import CancelScheduled, Peek, SetSessionState, SettleByToken
from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from protocol.amqp.nodes.management import BODY_MAX_VALUES
from protocol.amqp.nodes.request_values import check_values
from protocol.codec import Array, ArrayCode, Described, Long, ULong, encode
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, VALUE, section

if TYPE_CHECKING:
    from tests.support.amqp_frames import Frame

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**63).map(ULong) | st.text("ab") | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=9)
        | st.dictionaries(st.text("ab"), inner, max_size=9)
        | st.builds(Described, st.just(ULong(1)), inner)
        | st.lists(st.uuids(), max_size=9).map(lambda items: Array(ArrayCode.UUID, items))
    ),
)


def count(value: object) -> int:
    match value:
        case Described(descriptor, content):
            return 1 + count(descriptor) + count(content)
        case Array(_, items, _):
            return 1 + len(items)
        case list():
            return 1 + sum(map(count, value))
        case dict():
            return 1 + sum(count(key) + count(item) for key, item in value.items())
    return 1


@given(VALUES)
def test_every_value_is_counted(value):
    data = encode(value)
    total = count(value)
    check_values(data, 0, len(data), total)
    if total > 1:
        with pytest.raises(MessageSizeExceeded):
            check_values(data, 0, len(data), total - 1)


@given(st.binary(max_size=50), st.integers(1, 10))
def test_any_bytes_are_counted(data, most):
    try:
        check_values(data, 0, len(data), most)
    except (MessageSizeExceeded, UndecodableMessage):
        return


def test_items_of_items_of_an_array_are_counted():
    """Their constructor is not repeated."""
    array = (
        b"\xf0" + struct.pack(">II", 4 + 1 + 3 * 11, 3) + b"\xc0" + 3 * (b"\x0a\x09" + b"\x45" * 9)
    )
    with pytest.raises(MessageSizeExceeded):
        check_values(array, 0, len(array), 30)


def ask(broker: MemoryBroker, operation: str, body: bytes) -> list[Frame]:
    client = broker.connect()
    handle = client.reach("orders/$management")
    properties = {"operation": f"com.microsoft:{operation}"}
    request = section(PROPERTIES, ["id"]) + section(APPLICATION_PROPERTIES, properties) + body
    parts = amqp_frames.transfers(client.next_delivery(), request, handle=handle)
    return client.say(*parts)


def status(frames: list[Frame]) -> int:
    (answer,) = [frame for frame in frames if frame.name == "transfer"]
    return int(MemoryClient.application_properties(answer)["statusCode"])


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker("queues: {orders: }")


def test_a_request_with_too_many_values_is_refused(broker: MemoryBroker):
    """Eight million empty lists took 620 MB and two seconds."""
    number = 1_000_000
    items = b"\xd0" + struct.pack(">II", 4 + number, number) + b"\x45" * number
    body = b"\x00\x53\x77\xd1" + struct.pack(">II", 4 + 3 + len(items), 2) + b"\xa1\x01x" + items
    assert 400 <= status(ask(broker, "peek-message", body))
    assert not broker.commands[Peek]


def test_a_request_with_too_many_sections_is_refused(broker: MemoryBroker):
    assert 400 <= status(ask(broker, "peek-message", section(DATA, b"") * 100_000))


@pytest.mark.parametrize("kind", ["array of uuids", "list of uuids", "list of texts"])
def test_more_lock_tokens_than_a_batch_has_messages_are_accepted(broker: MemoryBroker, kind: str):
    """Azure settles 4,500 of them at most."""
    tokens = [UUID(int=number) for number in range(10_000)]
    items = {
        "array of uuids": Array(ArrayCode.UUID, tokens),
        "list of uuids": tokens,
        "list of texts": [str(one) for one in tokens],
    }
    body = {"disposition-status": "completed", "lock-tokens": items[kind]}
    ask(broker, "update-disposition", section(VALUE, body))
    assert 1 == broker.commands[SettleByToken]


def test_as_many_messages_as_a_batch_has_can_be_cancelled(broker: MemoryBroker):
    numbers = [Long(number) for number in range(broker.limits.batch_max_messages)]
    assert len(numbers) < BODY_MAX_VALUES
    ask(broker, "cancel-scheduled-message", section(VALUE, {"sequence-numbers": numbers}))
    assert 1 == broker.commands[CancelScheduled]


def test_a_large_session_state_is_one_value(broker: MemoryBroker):
    body = {"session-id": "a", "session-state": bytes(8_000_000)}
    ask(broker, "set-session-state", section(VALUE, body))
    assert 1 == broker.commands[SetSessionState]
