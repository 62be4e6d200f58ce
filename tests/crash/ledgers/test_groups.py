"""The ledger of batches: a partly stored batch is found, and a batch without an answer may be
stored or not."""

from __future__ import annotations

from tests.crash.ledgers.groups import GroupLedger
from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in

LINK = Link(number=0, incarnation=0)
BATCH = [("sender", 0), ("sender", 1), ("sender", 2)]


def ledger_with(batch: list[tuple[str, int]], arrived: int) -> GroupLedger:
    ledger = GroupLedger()
    ledger.sending_together(batch)
    for number, key in enumerate(batch[:arrived], 1):
        ledger.delivered(key, number, LINK)
        ledger.completing(key, LINK)
        ledger.completed(key)
    return ledger


def test_a_batch_in_doubt_may_be_there():
    """Whole is right."""
    assert {} == found_in(ledger_with(BATCH, arrived=3).audit())


def test_a_batch_in_doubt_may_be_missing():
    """Nothing is right."""
    assert {} == found_in(ledger_with(BATCH, arrived=0).audit())


def test_a_batch_in_doubt_must_not_be_there_in_part():
    """Two of three is wrong, though nothing was promised about any of them."""
    assert {"partial": 1} == found_in(ledger_with(BATCH, arrived=2).audit())


def test_an_accepted_batch_of_which_one_is_missing_is_partial_and_lost():
    """Both promises are broken."""
    ledger = ledger_with(BATCH, arrived=2)
    ledger.accepted_together(BATCH)
    assert {"partial": 1, "lost": 1} == found_in(ledger.audit())


def test_a_refused_batch_must_not_appear():
    """Not one message of it."""
    ledger = GroupLedger()
    ledger.sending_together(BATCH)
    ledger.refused_together(BATCH)
    ledger.delivered(BATCH[0], 1, LINK)
    assert {"refused yet delivered": 1, "partial": 1} == found_in(ledger.audit())
