"""Messages with very many values are refused before these are decoded."""

from __future__ import annotations

import struct

import pytest

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import encode, read_batch, read_message, section_reader
from protocol.codec.described_types import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
)
from protocol.codec.section_reader import VALUES_MAX
from protocol.codec.value_count import ValueBudget, count_values
from tests.support.message_sections import section

BODY = section(DATA, b"body")
NULL, EMPTY_TEXT = b"\x40", b"\xa1\x00"


def now_ms() -> int:
    return 0


def list_of(item: bytes, count: int) -> bytes:
    return b"\xd0" + struct.pack(">II", 4 + count * len(item), count) + item * count


def map_of(key: bytes, value: bytes, count: int) -> bytes:
    items = (key + value) * count
    return b"\xd1" + struct.pack(">II", 4 + len(items), 2 * count) + items


def described(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


MANY_NULLS = list_of(NULL, VALUES_MAX)
MESSAGES = {
    "header": described(HEADER, MANY_NULLS) + BODY,
    "delivery annotations": described(
        DELIVERY_ANNOTATIONS, map_of(EMPTY_TEXT, NULL, VALUES_MAX // 2)
    )
    + BODY,
    "annotations": described(MESSAGE_ANNOTATIONS, map_of(b"\x43", NULL, VALUES_MAX // 2)) + BODY,
    "properties": described(PROPERTIES, MANY_NULLS) + BODY,
    "application properties": described(
        APPLICATION_PROPERTIES, map_of(EMPTY_TEXT, NULL, VALUES_MAX // 2)
    )
    + BODY,
    "a list in a property": described(APPLICATION_PROPERTIES, map_of(EMPTY_TEXT, MANY_NULLS, 1))
    + BODY,
    "footer": BODY + described(FOOTER, map_of(EMPTY_TEXT, NULL, VALUES_MAX // 2)),
    "data sections": section(DATA, b"") * (VALUES_MAX + 1),
    "sequence sections": section(SEQUENCE, []) * (VALUES_MAX + 1),
    "several sections": described(MESSAGE_ANNOTATIONS, map_of(b"\x43", NULL, VALUES_MAX // 4))
    + described(APPLICATION_PROPERTIES, map_of(EMPTY_TEXT, NULL, VALUES_MAX // 4))
    + BODY,
}


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_with_too_many_values_is_refused(data):
    """A message of 20 MB in four million sections stopped all clients for twelve seconds."""
    with pytest.raises(UndecodableMessage, match="more than 20000"):
        read_message(data, now_ms)


@pytest.mark.parametrize("prefix", ["", "ü"], ids=["plain names", "other names"])
def test_a_message_may_have_more_properties_than_the_service_allows(prefix):
    """The service has 64 KB for properties. Ten thousand of them do not fit into that."""
    properties = {f"{prefix}{number:04}": "" for number in range(9_000)}
    assert len(encode(properties)) > 64_000
    message = read_message(section(APPLICATION_PROPERTIES, properties) + BODY, now_ms)
    assert message.body == section(APPLICATION_PROPERTIES, properties) + BODY


@pytest.mark.parametrize("kind", [VALUE, SEQUENCE])
def test_the_values_of_a_body_do_not_count(kind):
    data = described(kind, list_of(NULL, 10 * VALUES_MAX))
    assert read_message(data, now_ms).body == data


def test_the_messages_of_a_batch_have_one_limit_together(monkeypatch):
    """Messages that the compiled module reads do not count: that takes little time."""
    monkeypatch.setattr(section_reader, "BATCH_VALUES_MAX", 100)
    plain = section(APPLICATION_PROPERTIES, {"name": 1}) + BODY
    other = section(MESSAGE_ANNOTATIONS, {"x" * 1100: 1}) + BODY
    few = [plain] * 1_000 + [other] * 25
    messages, _ = read_batch(b"".join(section(DATA, one) for one in few), now_ms, 10_000)
    assert len(few) == len(messages)
    many = [other] * 26
    with pytest.raises(UndecodableMessage, match="more than 100"):
        read_batch(b"".join(section(DATA, one) for one in many), now_ms, 10_000)


def test_a_budget_is_used_up_once():
    budget = ValueBudget(5)
    data = encode([1, [2, 3]])
    assert 5 == count_values(data, 0, len(data), 10)
    budget.take_values(data, 0, len(data))
    with pytest.raises(UndecodableMessage):
        budget.take(1)
