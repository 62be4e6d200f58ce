"""The ledger of duplicate detection: a repeated send is allowed, a second copy is not."""

from __future__ import annotations

from tests.crash.ledgers.duplicates import DuplicateLedger
from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
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
    complete(ledger, 1, FIRST_RUN)
    report = ledger.audit()
    assert {} == found_in(report)
    assert 1 == report.counts["sent again after doubt"]


def test_a_message_sent_twice_and_stored_twice_is_seen():
    """Two numbers are two messages."""
    ledger = ledger_with_a_resend()
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    complete(ledger, 2, FIRST_RUN)
    assert {"stored twice": 1} == found_in(ledger.audit())


def test_a_message_sent_again_after_its_completion_must_not_come_back():
    """The window contains ids of messages that are deleted."""
    ledger = ledger_with_a_resend()
    complete(ledger, 1, FIRST_RUN)
    ledger.sending(MESSAGE)
    ledger.accepted(MESSAGE)
    complete(ledger, 2, SECOND_RUN)
    assert {"back": 1, "stored twice": 1} == found_in(ledger.audit())


def test_a_message_dropped_as_a_duplicate_of_nothing_is_lost():
    """An id that is remembered without its message swallows the resend."""
    assert {"lost": 1} == found_in(ledger_with_a_resend().audit())


def test_a_message_whose_first_send_was_refused_unheard_is_stored_behind_later_ones():
    """The disk was full, had room for the second message, and the broker ended before the client
    was told of any of it."""
    ledger = DuplicateLedger()
    for index in (0, 1, 0, 1):
        ledger.sending(("sender", index))
    for number, index in enumerate((1, 0)):
        key = ("sender", index)
        ledger.accepted(key)
        ledger.delivered(key, number, FIRST_RUN)
        ledger.completing(key, FIRST_RUN)
        ledger.completed(key)
    assert {} == found_in(ledger.audit())


def test_messages_that_no_send_explains_the_order_of_are_seen():
    """The first was sent again only after it had been accepted, so that stored nothing."""
    ledger = DuplicateLedger()
    for index in (0, 1):
        ledger.sending(("sender", index))
        ledger.accepted(("sender", index))
    ledger.sending(("sender", 0))
    for number, index in enumerate((1, 0)):
        key = ("sender", index)
        ledger.delivered(key, number, FIRST_RUN)
        ledger.completing(key, FIRST_RUN)
        ledger.completed(key)
    assert {"out of order": 2, "stored out of order": 1} == found_in(ledger.audit())
