"""The ledger of entities: missing, reappearing or partly changed entities, and messages of a
deleted entity."""

from __future__ import annotations

import pytest

from tests.crash.ledgers.entities import EntityLedger
from tests.crash.ledgers.report import found_in

QUEUE = "queue"
PLACE = "queue, born 1"


def ledger_with(*values: str | None) -> EntityLedger[str]:
    """An entity that was set to each of these, and confirmed."""
    ledger: EntityLedger[str] = EntityLedger([QUEUE])
    for value in values:
        ledger.changing(QUEUE, value)
        ledger.changed(QUEUE)
    return ledger


@pytest.mark.parametrize("values", [(None,), ("one",), ("one", "two"), ("one", None)])
def test_an_entity_is_as_was_confirmed(values: tuple[str | None, ...]):
    """There, changed or gone."""
    ledger = ledger_with(*values)
    ledger.seen(QUEUE, values[-1])
    assert {} == found_in(ledger.audit())


@pytest.mark.parametrize(
    ("values", "seen", "kind"),
    [
        pytest.param(("one",), None, "gone", id="created"),
        pytest.param(("one", None), "one", "back", id="deleted"),
        pytest.param(("one", "two"), "one", "half", id="changed"),
        pytest.param(("one", "two"), "one and two", "half", id="mixed"),
    ],
)
def test_an_entity_is_not_as_was_confirmed(
    values: tuple[str | None, ...], seen: str | None, kind: str
):
    """Each kind of contradiction has its name."""
    ledger = ledger_with(*values)
    ledger.seen(QUEUE, seen)
    assert {kind: 1} == found_in(ledger.audit())


@pytest.mark.parametrize("seen", ["one", "two"])
def test_a_change_in_doubt_may_have_happened_or_not(seen: str):
    """The next change starts from what is seen."""
    ledger = ledger_with("one")
    ledger.changing(QUEUE, "two")
    ledger.seen(QUEUE, seen)
    assert seen == ledger.value(QUEUE)
    assert {} == found_in(ledger.audit())


@pytest.mark.parametrize("seen", [None, "half of two"])
def test_a_change_in_doubt_is_made_whole_or_not_at_all(seen: str | None):
    """Neither the old nor the new is wrong."""
    ledger = ledger_with("one")
    ledger.changing(QUEUE, "two")
    ledger.seen(QUEUE, seen)
    assert {"gone" if seen is None else "half": 1} == found_in(ledger.audit())


def test_a_refused_change_is_reported():
    """Nothing is asked for that could be refused."""
    ledger = ledger_with("one")
    ledger.changing(QUEUE, "two")
    ledger.change_refused(QUEUE, "no")
    ledger.seen(QUEUE, "one")
    assert {"change refused": 1} == found_in(ledger.audit())


def test_a_list_that_disagrees_with_a_look_is_reported():
    """An entity is in its list or it does not exist."""
    ledger = ledger_with("one")
    ledger.wrongly_listed(QUEUE)
    assert {"half": 1} == found_in(ledger.audit())


def test_messages_come_out_as_they_were_put_in():
    """Those in doubt, or not."""
    ledger = ledger_with("one")
    ledger.putting([PLACE], "accepted")
    ledger.put([PLACE], "accepted")
    ledger.putting([PLACE], "in doubt")
    for text in ("accepted", "in doubt", None):
        ledger.taking(PLACE)
        ledger.took(PLACE, text)
    assert {} == found_in(ledger.audit())


def test_a_message_of_an_earlier_run_is_seen():
    """The messages of an entity are deleted with it."""
    ledger = ledger_with("one")
    ledger.putting([PLACE], "old")
    ledger.put([PLACE], "old")
    ledger.taking("queue, born 2")
    ledger.took("queue, born 2", "old")
    assert {"message of an earlier run": 1} == found_in(ledger.audit())


def test_a_message_that_is_missing_is_lost():
    """The entity is empty, and something was accepted."""
    ledger = ledger_with("one")
    ledger.putting([PLACE], "accepted")
    ledger.put([PLACE], "accepted")
    ledger.taking(PLACE)
    ledger.took(PLACE, None)
    assert {"message lost": 1} == found_in(ledger.audit())


def test_a_receive_in_doubt_explains_one_missing_message():
    """It went with the answer that never came; a second one did not."""
    ledger = ledger_with("one")
    for text in ("first", "second"):
        ledger.putting([PLACE], text)
        ledger.put([PLACE], text)
    ledger.taking(PLACE)
    ledger.taking(PLACE)
    ledger.took(PLACE, "second")
    ledger.taking(PLACE)
    ledger.took(PLACE, None)
    assert {} == found_in(ledger.audit())


def test_a_message_that_comes_out_twice_is_back():
    """It was received in receive-and-delete."""
    ledger = ledger_with("one")
    ledger.putting([PLACE], "accepted")
    ledger.put([PLACE], "accepted")
    for _ in range(2):
        ledger.taking(PLACE)
        ledger.took(PLACE, "accepted")
    assert {"message back": 1} == found_in(ledger.audit())
