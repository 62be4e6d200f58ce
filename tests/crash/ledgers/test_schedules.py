"""The ledger of scheduled messages: delivered too early, delivered after a cancellation, or never
delivered."""

from __future__ import annotations

from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in
from tests.crash.ledgers.schedules import ScheduleLedger

LINK = Link(number=0, incarnation=0)
MESSAGE, NEXT = ("sender", 0), ("sender", 1)
DUE_MS = 1_000


def ledger_with(*keys: tuple[str, int], accepted: bool = True) -> ScheduleLedger:
    ledger = ScheduleLedger()
    for key in keys:
        ledger.due(key, DUE_MS)
    ledger.sending_together(keys)
    if accepted:
        ledger.accepted_together(keys)
    return ledger


def come(ledger: ScheduleLedger, key: tuple[str, int], number: int, now_ms: int = DUE_MS) -> None:
    if ledger.came(key, number, LINK, now_ms):
        ledger.completing(key, LINK)
        ledger.completed(key)


def test_a_message_that_comes_when_it_is_due_is_clean():
    """In any order."""
    ledger = ledger_with(MESSAGE, NEXT)
    come(ledger, NEXT, 1)
    come(ledger, MESSAGE, 2)
    assert {} == found_in(ledger.audit())


def test_a_message_that_comes_before_its_time_is_early():
    """Not by a millisecond."""
    ledger = ledger_with(MESSAGE)
    come(ledger, MESSAGE, 1, now_ms=DUE_MS - 1)
    assert {"early": 1} == found_in(ledger.audit())


def test_a_scheduled_message_that_never_comes_is_lost():
    """Confirmed by its number means stored."""
    assert {"lost": 1} == found_in(ledger_with(MESSAGE).audit())


def test_a_message_that_still_waits_is_not_lost():
    """It was seen."""
    ledger = ledger_with(MESSAGE)
    ledger.waits(MESSAGE)
    assert {} == found_in(ledger.audit())


def test_a_message_that_comes_twice_is_seen():
    """Activated before a kill and once more after it."""
    ledger = ledger_with(MESSAGE)
    come(ledger, MESSAGE, 1)
    come(ledger, MESSAGE, 2)
    assert {"back": 1, "stored twice": 1} == found_in(ledger.audit())


def test_a_cancelled_message_must_not_come():
    """Confirmed is confirmed."""
    ledger = ledger_with(MESSAGE)
    ledger.cancelling(MESSAGE, 0)
    ledger.cancelled(MESSAGE)
    come(ledger, MESSAGE, 1)
    assert {"cancelled yet present": 1} == found_in(ledger.audit())


def test_a_cancelled_message_must_not_wait():
    """It would come."""
    ledger = ledger_with(MESSAGE)
    ledger.cancelling(MESSAGE, 0)
    ledger.cancelled(MESSAGE)
    ledger.waits(MESSAGE)
    assert {"cancelled yet present": 1} == found_in(ledger.audit())


def test_a_cancellation_in_doubt_may_have_happened_or_not():
    """Both are right."""
    gone, there = ledger_with(MESSAGE), ledger_with(MESSAGE)
    for ledger in (gone, there):
        ledger.cancelling(MESSAGE, 0)
    come(there, MESSAGE, 1)
    assert {} == found_in(gone.audit()) == found_in(there.audit())


def test_nothing_to_cancel_before_the_time_is_a_loss():
    """No other client could have received it."""
    ledger = ledger_with(MESSAGE)
    ledger.cancelling(MESSAGE, 0)
    ledger.not_cancelled(MESSAGE, DUE_MS - 1)
    come(ledger, MESSAGE, 1)
    assert {"gone before its time": 1} == found_in(ledger.audit())


def test_messages_of_one_request_share_their_fate():
    """One of two is wrong, though neither was confirmed."""
    ledger = ledger_with(MESSAGE, NEXT, accepted=False)
    come(ledger, MESSAGE, 1)
    assert {"partial": 1} == found_in(ledger.audit())


def test_a_waiting_message_that_was_not_sent_is_unknown():
    """The broker makes up nothing."""
    ledger = ScheduleLedger()
    ledger.waits(MESSAGE)
    assert {"unknown": 1} == found_in(ledger.audit())


def test_a_message_completed_while_its_cancellation_is_refused_is_not_lost():
    """It became due in between, and the receiver's completion is valid."""
    ledger = ledger_with(MESSAGE)
    ledger.cancelling(MESSAGE, 0)
    come(ledger, MESSAGE, 1)
    ledger.not_cancelled(MESSAGE, DUE_MS + 1)
    assert {} == found_in(ledger.audit())
