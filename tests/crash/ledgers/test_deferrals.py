"""The ledger of deferral: a deferred message is not delivered, and can be received by number."""

from __future__ import annotations

from tests.crash.ledgers.deferrals import DeferralLedger
from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
MESSAGE = ("sender", 0)


def ledger_with_deferral(*, confirmed: bool) -> DeferralLedger:
    ledger = DeferralLedger()
    ledger.sending(MESSAGE)
    ledger.accepted(MESSAGE)
    ledger.delivered(MESSAGE, 7, FIRST_RUN)
    ledger.deferring(MESSAGE)
    if confirmed:
        ledger.deferred(MESSAGE)
    return ledger


def complete(ledger: DeferralLedger) -> None:
    ledger.completing(MESSAGE, SECOND_RUN)
    ledger.completed(MESSAGE)


def test_a_deferred_message_can_be_fetched_and_completed():
    """By the number it was delivered under."""
    ledger = ledger_with_deferral(confirmed=True)
    assert [MESSAGE] == ledger.set_aside
    ledger.fetched(MESSAGE, MESSAGE, ledger.number_of(MESSAGE))
    complete(ledger)
    assert [] == ledger.set_aside
    assert {} == found_in(ledger.audit())


def test_a_deferred_message_must_not_be_delivered():
    """Receivers skip it."""
    ledger = ledger_with_deferral(confirmed=True)
    ledger.delivered(MESSAGE, 7, SECOND_RUN)
    complete(ledger)
    assert {"deferred yet delivered": 1} == found_in(ledger.audit())


def test_a_deferred_message_that_cannot_be_fetched_is_missing():
    """No other client had it, so it is lost as well."""
    ledger = ledger_with_deferral(confirmed=True)
    ledger.not_found(MESSAGE)
    assert {"deferred yet missing": 1, "lost": 1} == found_in(ledger.audit())


def test_a_deferral_in_doubt_may_have_happened():
    """Then the message can be fetched."""
    ledger = ledger_with_deferral(confirmed=False)
    assert [MESSAGE] == ledger.set_aside_in_doubt
    ledger.fetched(MESSAGE, MESSAGE, 7)
    complete(ledger)
    assert {} == found_in(ledger.audit())


def test_a_deferral_in_doubt_may_not_have_happened():
    """Then the message comes again."""
    ledger = ledger_with_deferral(confirmed=False)
    ledger.not_found(MESSAGE)
    ledger.delivered(MESSAGE, 7, SECOND_RUN)
    complete(ledger)
    assert {} == found_in(ledger.audit())


def test_a_deferral_in_doubt_must_leave_the_message_somewhere():
    """Neither delivered nor fetched is lost."""
    ledger = ledger_with_deferral(confirmed=False)
    ledger.not_found(MESSAGE)
    assert {"lost": 1} == found_in(ledger.audit())


def test_a_completion_in_doubt_explains_that_nothing_is_found():
    """It may have happened."""
    ledger = ledger_with_deferral(confirmed=True)
    ledger.completing(MESSAGE, FIRST_RUN)
    assert [MESSAGE] == ledger.set_aside_in_doubt
    ledger.not_found(MESSAGE)
    assert {} == found_in(ledger.audit())


def test_a_fetched_message_must_be_the_one_of_that_number():
    """A sequence number never changes."""
    ledger = ledger_with_deferral(confirmed=True)
    ledger.fetched(MESSAGE, ("sender", 1), 7)
    complete(ledger)
    assert {"number changed": 1} == found_in(ledger.audit())


def test_a_completed_message_that_can_be_fetched_is_back():
    """Confirmed means gone."""
    ledger = ledger_with_deferral(confirmed=True)
    complete(ledger)
    ledger.fetched(MESSAGE, MESSAGE, 7)
    complete(ledger)
    assert {"back": 1} == found_in(ledger.audit())
