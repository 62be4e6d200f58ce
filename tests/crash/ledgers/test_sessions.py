"""The ledger of sessions: an old state, two holders at once, order within a session."""

from __future__ import annotations

import pytest

from tests.crash.ledgers.messages import Link
from tests.crash.ledgers.report import found_in
from tests.crash.ledgers.sessions import SessionLedger

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
SESSION, OTHER = "session", "other"


def new_ledger() -> SessionLedger:
    return SessionLedger([SESSION, OTHER])


def complete(ledger: SessionLedger, key: tuple[str, int], number: int, link: Link) -> None:
    ledger.messages.delivered(key, number, link)
    ledger.messages.completing(key, link)
    ledger.messages.completed(key)


def test_a_confirmed_state_is_read_again():
    """Null before it is set, then what was set."""
    ledger = new_ledger()
    ledger.state_seen(SESSION, None)
    ledger.setting_state(SESSION, b"one")
    ledger.state_set(SESSION)
    ledger.state_seen(SESSION, b"one")
    assert {} == found_in(ledger.audit())


def test_a_confirmed_state_that_fell_back_is_lost():
    """The state before it was set is not the state."""
    ledger = new_ledger()
    for state in (b"one", b"two"):
        ledger.setting_state(SESSION, state)
        ledger.state_set(SESSION)
    ledger.state_seen(SESSION, b"one")
    assert {"state lost": 1} == found_in(ledger.audit())


def test_a_state_that_was_cleared_must_not_return():
    """Null is a state like any other."""
    ledger = new_ledger()
    for state in (b"one", None):
        ledger.setting_state(SESSION, state)
        ledger.state_set(SESSION)
    ledger.state_seen(SESSION, b"one")
    assert {"state lost": 1} == found_in(ledger.audit())


def test_a_state_in_doubt_may_be_the_old_or_the_new_and_then_stays():
    """The first look settles it."""
    ledger = new_ledger()
    ledger.setting_state(SESSION, b"one")
    ledger.state_seen(SESSION, None)
    ledger.state_seen(SESSION, b"one")
    assert {"state lost": 1} == found_in(ledger.audit())


def test_a_session_given_to_two_links_is_held_twice():
    """A session has one holder."""
    ledger = new_ledger()
    for number in (1, 2):
        ledger.taken(SESSION, number, 0)
    assert {"held twice": 1} == found_in(ledger.audit())


def test_a_session_given_back_or_dropped_can_be_held_again():
    """The next holder may get its answer before the last one does."""
    ledger = new_ledger()
    for number in (1, 2):
        ledger.taken(SESSION, number, 0)
        ledger.giving_back(SESSION)
    ledger.taken(SESSION, 3, 0)
    ledger.all_dropped(1_000)
    ledger.taken(SESSION, 4, 1_000)
    assert {} == found_in(ledger.audit())


@pytest.mark.parametrize(("heard_ms", "found"), [(90, {}), (1_000, {"held twice": 1})])
def test_a_broker_may_notice_a_broken_connection_before_its_client(
    heard_ms: int, found: dict[str, int]
):
    """The first holder hears of it soon after the second has the session, or it was held twice."""
    ledger = new_ledger()
    ledger.taken(SESSION, 1, 0)
    ledger.taken(SESSION, 2, 0)
    ledger.all_dropped(heard_ms)
    assert found == found_in(ledger.audit())


def test_a_session_that_never_becomes_free_is_reported():
    """A lock that outlived its holder would do that."""
    ledger = new_ledger()
    ledger.not_taken()
    ledger.never_free(SESSION)
    assert {"never free": 1} == found_in(ledger.audit())


def test_order_is_that_of_each_session():
    """Other sessions may be ahead or behind."""
    ledger = new_ledger()
    for key in ((SESSION, 0), (OTHER, 0), (SESSION, 1)):
        ledger.messages.sending(key)
        ledger.messages.accepted(key)
    complete(ledger, (OTHER, 0), 2, FIRST_RUN)
    complete(ledger, (SESSION, 1), 3, FIRST_RUN)
    complete(ledger, (SESSION, 0), 1, SECOND_RUN)
    assert {"out of order": 1} == found_in(ledger.audit())


def test_a_message_of_a_session_that_is_gone_is_lost():
    """As in any queue."""
    ledger = new_ledger()
    ledger.messages.sending((SESSION, 0))
    ledger.messages.accepted((SESSION, 0))
    assert {"lost": 1} == found_in(ledger.audit())


def test_sessions_are_listed_by_their_states():
    """One with a state is missing, one without is listed."""
    ledger = new_ledger()
    ledger.setting_state(SESSION, b"one")
    ledger.state_set(SESSION)
    ledger.sessions_seen([OTHER])
    assert {"session forgotten": 2} == found_in(ledger.audit())
