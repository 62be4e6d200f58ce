"""A turn collects records; deletions that follow each other become one record."""

from __future__ import annotations

from broker.core.contract.records import MessagesDeleted, SequenceNumbersSkipped
from broker.core.contract.turn import Turn


def test_deletions_that_follow_each_other_are_one_record():
    """A hundred receivers that complete one message each cause one record."""
    turn = Turn()
    for number in range(1, 101):
        turn.record_deleted([number], [number])
    ids = list(range(1, 101))
    assert [MessagesDeleted(ids, ids)] == turn.records


def test_records_stay_in_their_order():
    """A deletion is not joined to one before another record."""
    turn = Turn()
    skipped = SequenceNumbersSkipped([(1, 0, 5)])
    turn.record_deleted([1], [1])
    turn.records.append(skipped)
    turn.record_deleted([2], [2])
    assert [MessagesDeleted([1], [1]), skipped, MessagesDeleted([2], [2])] == turn.records


def test_a_message_whose_payload_stays_has_a_record_of_its_own():
    """A store drops messages that have payloads of their own from its journal, so others are not mixed with them."""
    turn = Turn()
    turn.record_deleted([1], [1])
    turn.record_deleted([2], [])
    turn.record_deleted([3], [3])
    turn.record_deleted([4], [4])
    expected = [
        MessagesDeleted([1], [1]),
        MessagesDeleted([2], []),
        MessagesDeleted([3, 4], [3, 4]),
    ]
    assert expected == turn.records


def test_a_turn_weighs_as_much_as_its_deletions():
    """Joined deletions count as single ones do."""
    turn = Turn()
    turn.record_deleted([1], [1])
    turn.record_deleted([2, 3], [2, 3])
    assert 3 == turn.weight
