"""The record of messages that were sent together has the same rows as one row for each message."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender
from broker.core.contract.records import MessagesDeleted, MessagesStored, PayloadRow
from broker.core.contract.sent_rows import SentPayloads, SentRows
from broker.core.messages.message_rows import rows_of
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition
from storage.memory import MemoryStore
from tests.support.core_dialogue import Advance, CoreDialogue, S, message, send

HOUR_MS = 3_600_000


def record_of(dialogue: CoreDialogue, *messages) -> MessagesStored:
    record, *_ = dialogue.run(send(*messages)).records
    assert isinstance(record, MessagesStored)
    return record


PLAIN = QueueDefinition()
EXPIRING = QueueDefinition(default_time_to_live_ms=HOUR_MS)
SESSIONS = QueueDefinition(requires_session=True)


@pytest.mark.parametrize(
    ("definition", "messages", "as_columns"),
    [
        (PLAIN, ["a", "bb", "ccc"], True),
        (PLAIN, ["a"], True),
        (EXPIRING, ["a"], True),
        (SESSIONS, [message("a", session="x")], True),
        (PLAIN, ["a", message("b", partition_key="p")], True),
        (PLAIN, [message("a", time_to_live_ms=5), message("b", time_to_live_ms=5)], True),
        (PLAIN, [message("a", time_to_live_ms=5), "b"], False),
        (PLAIN, ["a", message("b", at_ms=1 << 50)], False),
        (PLAIN, ["a", message("b", at_ms=1)], False),
        (EXPIRING, ["a", message("b", time_to_live_ms=2 * HOUR_MS)], True),
        (EXPIRING, ["a", message("b", time_to_live_ms=5)], False),
        (SESSIONS, [message("a", session="x"), message("b", session="y")], True),
    ],
)
def test_columns_and_rows_are_equal(definition, messages, as_columns):
    """Messages with different times are recorded row by row."""
    dialogue = CoreDialogue(definition)
    dialogue.run(Advance(7))
    messages = [message(one) if isinstance(one, str) else one.copy() for one in messages]
    record = record_of(dialogue, *messages)
    assert as_columns is isinstance(record.rows, SentRows)
    assert as_columns is isinstance(record.payloads, SentPayloads)
    assert rows_of(messages) == list(record.rows)
    assert [PayloadRow(m.id, m.body, m.annotations) for m in messages] == list(record.payloads)
    assert rows_of(messages)[1:] == list(record.rows[1:])
    assert list(record.payloads)[1:] == list(record.payloads[1:])
    assert rows_of(messages)[-1] == record.rows[len(messages) - 1]


def test_messages_of_a_topic_keep_its_numbers():
    """The only subscription gets them with the numbers of the topic, which it does not share."""
    dialogue = CoreDialogue(
        entities={"q": TopicDefinition(), "q/Subscriptions/s": SubscriptionDefinition()},
        attach=False,
    )
    dialogue.run(AttachSender(S, "q"))
    dialogue.namespace._directory.entity("q").main.skip_numbers(40)
    messages = [message("a"), message("b")]
    record = record_of(dialogue, *messages)
    assert isinstance(record.rows, SentRows)
    assert rows_of(messages) == list(record.rows)
    assert [(1, 41), (2, 42)] == [
        (row.sequence_number, row.enqueue_sequence_number) for row in record.rows
    ]


def test_the_record_does_not_change_with_its_messages():
    """The store may write it later, from another thread."""
    messages = [message("a"), message("b")]
    record = record_of(CoreDialogue(), *messages)
    before = list(rows_of(messages))
    messages[0].delivery_count = 3
    messages[1].body = None
    assert before == list(record.rows)
    assert [b"a", b"b"] == [payload.body for payload in record.payloads]


def test_a_store_in_memory_forgets_each_message_by_itself():
    """One message of a batch that stays does not keep the bodies of the others."""
    dialogue = CoreDialogue()
    record = record_of(dialogue, "a", "b", "c")
    store = MemoryStore()
    store.commit([record])
    assert list(record.rows) == list(store.load().messages)
    first, second, third = (row.id for row in record.rows)
    store.commit([MessagesDeleted([first], [first]), MessagesDeleted([third], [third])])
    assert [second] == [row.id for row in store.load().messages]
    assert {second: (b"b", b"")} == store.read_payloads([first, second, third])
