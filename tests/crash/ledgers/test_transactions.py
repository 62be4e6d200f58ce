"""The ledger of transactions: every way in which a transaction can be visible in part."""

from __future__ import annotations

import pytest

from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in
from tests.crash.ledgers.transactions import End, TransactionLedger

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
INPUT = ("input", 0)


def ledger_with(end: End, *, outputs: str, input_again: bool) -> TransactionLedger:
    """One transaction that ended like this, and what was found of it."""
    ledger = TransactionLedger("ab")
    ledger.inputs.sending(INPUT)
    ledger.inputs.accepted(INPUT)
    ledger.input_delivered(INPUT, 1, FIRST_RUN)
    key = ledger.beginning(INPUT)
    if end in {End.COMMIT_IN_DOUBT, End.COMMITTED, End.REFUSED}:
        ledger.committing(key, FIRST_RUN)
    if end is End.COMMITTED:
        ledger.committed(key)
    if end is End.REFUSED:
        ledger.commit_refused(key)
    if end in {End.ROLLBACK_IN_DOUBT, End.ROLLED_BACK}:
        ledger.rolling_back(key)
    if end is End.ROLLED_BACK:
        ledger.rolled_back(key)
    for name in outputs:
        ledger.outputs[name].delivered(key, 1, SECOND_RUN)
        ledger.outputs[name].completing(key, SECOND_RUN)
        ledger.outputs[name].completed(key)
    if input_again:
        ledger.input_delivered(INPUT, 1, SECOND_RUN)
        ledger.inputs.completing(INPUT, SECOND_RUN)
        ledger.inputs.completed(INPUT)
    return ledger


@pytest.mark.parametrize(
    ("end", "outputs", "input_again"),
    [
        (End.COMMITTED, "ab", False),
        (End.COMMIT_IN_DOUBT, "ab", False),
        (End.COMMIT_IN_DOUBT, "", True),
        (End.ROLLED_BACK, "", True),
        (End.ROLLBACK_IN_DOUBT, "", True),
        (End.NOT_ASKED, "", True),
        (End.REFUSED, "", True),
    ],
)
def test_all_of_it_or_none_of_it_is_clean(end: End, outputs: str, input_again: bool):
    """As was confirmed; either way when it was not."""
    ledger = ledger_with(end, outputs=outputs, input_again=input_again)
    assert {} == found_in(ledger.audit())


@pytest.mark.parametrize(
    ("outputs", "input_again"),
    [("a", False), ("b", True), ("ab", True), ("", False), ("a", True)],
)
def test_a_commit_in_doubt_that_happened_in_part_is_partial(outputs: str, input_again: bool):
    """One output of two, outputs without the input's end, or that end without outputs."""
    ledger = ledger_with(End.COMMIT_IN_DOUBT, outputs=outputs, input_again=input_again)
    assert {"partial": 1} == found_in(ledger.audit())


@pytest.mark.parametrize("outputs", ["", "a", "b"])
def test_a_confirmed_commit_that_lacks_an_output_is_missing(outputs: str):
    """Confirmed means done, all of it."""
    ledger = ledger_with(End.COMMITTED, outputs=outputs, input_again=False)
    assert {"confirmed yet missing": 1} == found_in(ledger.audit())


def test_a_confirmed_commit_whose_input_comes_again_is_missing():
    """The settlement belongs to it like the sends."""
    ledger = ledger_with(End.COMMITTED, outputs="ab", input_again=True)
    assert {"confirmed yet missing": 1, "back": 1} == found_in(ledger.audit())


@pytest.mark.parametrize(
    "end", [End.NOT_ASKED, End.ROLLBACK_IN_DOUBT, End.ROLLED_BACK, End.REFUSED]
)
def test_what_was_not_committed_must_not_show(end: End):
    """Whether the rollback was asked for, confirmed or left to the broker's death."""
    ledger = ledger_with(end, outputs="a", input_again=True)
    assert {"rolled back yet present": 1} == found_in(ledger.audit())


def test_an_input_that_is_gone_without_a_commit_is_lost():
    """A transaction that was never discharged settles nothing."""
    ledger = ledger_with(End.NOT_ASKED, outputs="", input_again=False)
    assert {"lost": 1} == found_in(ledger.audit())


def test_each_try_at_an_input_is_judged_on_its_own():
    """The first came to nothing, the second was committed: the outputs of the first are wrong."""
    ledger = ledger_with(End.COMMIT_IN_DOUBT, outputs="a", input_again=False)
    ledger.input_delivered(INPUT, 1, SECOND_RUN)
    key = ledger.beginning(INPUT)
    ledger.committing(key, SECOND_RUN)
    ledger.committed(key)
    for output in ledger.outputs.values():
        output.delivered(key, 2, SECOND_RUN)
        output.completing(key, SECOND_RUN)
        output.completed(key)
    assert {"partial": 1} == found_in(ledger.audit())
