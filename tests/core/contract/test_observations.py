"""What is observed for a report is bounded, and does not depend on messages being readable."""

from __future__ import annotations

from broker.core.contract import observations
from broker.core.contract.message import Message
from broker.core.contract.observations import MESSAGE_IDS_MAX, Observations
from config.model.limits import STRICT
from protocol.codec import PROPERTIES, Described, Reader, ULong, encode


def message(message_id: str) -> Message:
    return Message(encode(Described(ULong(PROPERTIES), [message_id])))


def made() -> Observations:
    return Observations(STRICT, Reader())


def test_messages_are_counted_and_the_first_ones_are_named():
    observed = made()
    for start in range(0, 8, 2):
        batch = [message(str(start)), message(str(start + 1))]
        observed.note_unmatched("events", batch, 2)
    assert 8 == observed.unmatched["events"].count
    assert ["0", "1", "2", "3", "4"] == observed.unmatched["events"].message_ids
    assert MESSAGE_IDS_MAX == 5
    observed.clear()
    assert {} == observed.unmatched


def test_the_largest_amount_is_kept_beside_the_limit():
    observed = made()
    for amount in (4_600, 5_000, 4_501):
        observed.note_over_quota("batch_max_messages", "orders", amount)
    found = observed.over_quota["batch_max_messages", "orders"]
    assert (3, 5_000, 4_500) == (found.count, found.largest, found.limit)


def test_a_message_that_cannot_be_read_has_no_id():
    observed = made()
    observed.note_unmatched("events", [Message(b"\x00\x53\x73\xa1")], 1)
    assert [None] == observed.unmatched["events"].message_ids


def test_the_number_of_entities_is_bounded(monkeypatch):
    monkeypatch.setattr(observations, "OBSERVED_MAX", 2)
    observed = made()
    for path in "abca":
        observed.note_unmatched(path, [], 1)
        observed.note_over_quota("batch_max_bytes", path, 1)
    assert {"a": 2, "b": 1} == {path: one.count for path, one in observed.unmatched.items()}
    assert 2 == len(observed.over_quota)
