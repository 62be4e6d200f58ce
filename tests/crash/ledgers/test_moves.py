"""The ledger of moves: a message in both places, in none, or in the wrong one."""

from __future__ import annotations

from tests.crash.ledgers.messages import Ledger, Link
from tests.crash.ledgers.moves import MoveLedger
from tests.crash.ledgers.report import found_in

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
MESSAGE = ("sender", 0)


def ledger_with_a_move(*, confirmed: bool) -> MoveLedger:
    ledger = MoveLedger(Ledger())
    ledger.here.sending(MESSAGE)
    ledger.here.accepted(MESSAGE)
    come_here(ledger, FIRST_RUN)
    ledger.moving(MESSAGE, FIRST_RUN)
    if confirmed:
        ledger.moved(MESSAGE)
    return ledger


def come_here(ledger: MoveLedger, link: Link) -> None:
    ledger.here.delivered(MESSAGE, 1, link)
    ledger.came_here(MESSAGE)


def come_there(ledger: MoveLedger) -> None:
    ledger.came_there(MESSAGE, 1, SECOND_RUN)
    ledger.there.completing(MESSAGE, SECOND_RUN)
    ledger.there.completed(MESSAGE)


def found(ledger: MoveLedger) -> dict[str, int]:
    return found_in(ledger.here.audit().plus(ledger.audit()))


def test_a_completion_in_doubt_after_a_message_came_back_is_no_lost_move() -> None:
    ledger = ledger_with_a_move(confirmed=False)
    come_here(ledger, SECOND_RUN)
    ledger.here.completing(MESSAGE, SECOND_RUN)
    assert {} == found(ledger)


def test_a_confirmed_move_arrives():
    """Once."""
    ledger = ledger_with_a_move(confirmed=True)
    come_there(ledger)
    assert {} == found(ledger)


def test_a_confirmed_move_that_does_not_arrive_is_lost():
    """It left the one place and never came to the other."""
    assert {"lost": 1} == found(ledger_with_a_move(confirmed=True))


def test_a_confirmed_move_that_did_not_leave_is_back():
    """And what was promised to be there is lost."""
    ledger = ledger_with_a_move(confirmed=True)
    come_here(ledger, SECOND_RUN)
    ledger.here.completing(MESSAGE, SECOND_RUN)
    ledger.here.completed(MESSAGE)
    assert {"back": 1, "lost": 1} == found(ledger)


def test_a_move_in_doubt_may_have_happened():
    """Then the message is there."""
    ledger = ledger_with_a_move(confirmed=False)
    come_there(ledger)
    assert {} == found(ledger)


def test_a_move_in_doubt_may_not_have_happened():
    """Then the message is still here."""
    ledger = ledger_with_a_move(confirmed=False)
    come_here(ledger, SECOND_RUN)
    ledger.here.completing(MESSAGE, SECOND_RUN)
    ledger.here.completed(MESSAGE)
    assert {} == found(ledger)


def test_a_move_in_doubt_must_leave_the_message_somewhere():
    """In neither place is lost."""
    assert {"lost on the way": 1} == found(ledger_with_a_move(confirmed=False))


def test_a_message_that_comes_back_after_it_arrived_is_in_two_places():
    """A copy is not a move."""
    ledger = ledger_with_a_move(confirmed=False)
    come_there(ledger)
    come_here(ledger, SECOND_RUN)
    ledger.here.completing(MESSAGE, SECOND_RUN)
    ledger.here.completed(MESSAGE)
    assert {"in two places": 1} == found(ledger)


def test_a_message_that_arrives_after_it_came_back_is_in_two_places():
    """The other way round."""
    ledger = ledger_with_a_move(confirmed=False)
    come_here(ledger, SECOND_RUN)
    come_there(ledger)
    ledger.here.completing(MESSAGE, SECOND_RUN)
    ledger.here.completed(MESSAGE)
    assert {"in two places": 1} == found(ledger)
