"""The ledger of a topic: missing and misplaced copies, and copies that were deleted with another
copy."""

from __future__ import annotations

from tests.crash.ledgers.copies import FanOutLedger
from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in

LINK = Link(number=0, incarnation=0)
MESSAGE = ("sender", 0)


def ledger_with(wanted_by: list[str], arrives_on: list[str], *, accepted: bool) -> FanOutLedger:
    ledger = FanOutLedger(["all", "some"])
    ledger.sending(MESSAGE, wanted_by)
    if accepted:
        ledger.accepted(MESSAGE)
    for name in arrives_on:
        if ledger.delivered(name, MESSAGE, 1, LINK):
            ledger.on[name].completing(MESSAGE, LINK)
            ledger.on[name].completed(MESSAGE)
    return ledger


def test_an_accepted_message_is_on_every_subscription_that_wants_it():
    """And on no other."""
    ledger = ledger_with(["all"], ["all"], accepted=True)
    assert {} == found_in(ledger.audit())


def test_a_message_in_doubt_must_not_be_on_some_subscriptions_only():
    """In doubt means all or none."""
    ledger = ledger_with(["all", "some"], ["all"], accepted=False)
    assert {"partial": 1} == found_in(ledger.audit())


def test_an_accepted_message_missing_from_one_subscription_is_lost_there():
    """Completing a copy elsewhere is no reason."""
    ledger = ledger_with(["all", "some"], ["some"], accepted=True)
    assert {"partial": 1, "lost": 1} == found_in(ledger.audit())


def test_an_accepted_message_on_no_subscription_is_lost_on_each():
    """Whole, but not there."""
    ledger = ledger_with(["all", "some"], [], accepted=True)
    assert {"lost": 2} == found_in(ledger.audit())


def test_a_message_on_a_subscription_whose_rule_refuses_it_is_misrouted():
    """A rule that was forgotten lets everything in."""
    ledger = ledger_with(["all"], ["all", "some"], accepted=True)
    assert {"misrouted": 1} == found_in(ledger.audit())


def test_a_copy_that_comes_again_after_its_completion_is_back():
    """Each subscription keeps its own account."""
    ledger = ledger_with(["all", "some"], ["all", "some", "some"], accepted=True)
    assert {"back": 1} == found_in(ledger.audit())


def test_a_message_that_was_not_sent_is_unknown():
    """The topic makes up nothing."""
    ledger = FanOutLedger(["all"])
    assert not ledger.delivered("all", MESSAGE, 1, LINK)
    assert {"unknown": 1} == found_in(ledger.audit())
