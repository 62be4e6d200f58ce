"""The ledger of duplicate detection: sending again is no news, a second copy is."""

from __future__ import annotations

from tests.crash.ledgers.duplicates import DuplicateLedger
from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in

FIRST_LIFE = Link(number=0, incarnation=0)
SECOND_LIFE = Link(number=1, incarnation=1)
MESSAGE = ("sender", 0)


def ledger_with_a_resend() -> DuplicateLedger:
    """In doubt at first, accepted when it was sent again."""
    ledger = DuplicateLedger()
    ledger.sending(MESSAGE)
    ledger.sending(MESSAGE)
    ledger.accepted(MESSAGE)
    return ledger


def complete(ledger: DuplicateLedger, number: int, link: Link) -> None:
    ledger.delivered(MESSAGE, number, link)
    ledger.completing(MESSAGE, link)
    ledger.completed(MESSAGE)


def test_a_message_sent_twice_and_stored_once_is_clean():
    """However often it was sent."""
    ledger = ledger_with_a_resend()
    complete(ledger, 1, FIRST_LIFE)
    report = ledger.audit()
    assert {} == found_in(report)
    assert 1 == report.counts["sent again after doubt"]


def test_a_message_sent_twice_and_stored_twice_is_seen():
    """Two numbers are two messages."""
    ledger = ledger_with_a_resend()
    ledger.delivered(MESSAGE, 1, FIRST_LIFE)
    complete(ledger, 2, FIRST_LIFE)
    assert {"stored twice": 1} == found_in(ledger.audit())


def test_a_message_sent_again_after_its_completion_must_not_come_back():
    """The window remembers what is long gone."""
    ledger = ledger_with_a_resend()
    complete(ledger, 1, FIRST_LIFE)
    ledger.sending(MESSAGE)
    ledger.accepted(MESSAGE)
    complete(ledger, 2, SECOND_LIFE)
    assert {"back": 1, "stored twice": 1} == found_in(ledger.audit())


def test_a_message_dropped_as_a_duplicate_of_nothing_is_lost():
    """An id that is remembered without its message swallows the resend."""
    assert {"lost": 1} == found_in(ledger_with_a_resend().audit())
