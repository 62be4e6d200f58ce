"""The ledger with times: what an image must have, may have and must not have."""

from __future__ import annotations

import time

import pytest

from tests.crash.ledgers.report import Book
from tests.crash.power.timeline import Found, Timeline

PLACE, DEAD = ("queue", 0), ("queue", 1)
KEY, OTHER = ("sender", 1), ("sender", 2)


def found_at(timeline: Timeline, cut: float, found: Found) -> set[str]:
    book = Book()
    timeline.judge(cut, found, book, "")
    return {kind for kind, texts in book.violations.items() if texts}


def there(*keys: tuple[str, int]) -> Found:
    return Found({PLACE: set(keys)})


def test_an_accepted_message_that_is_missing_is_lost_and_before_that_in_doubt():
    """Between the two, and before it was sent, an image without it is right."""
    timeline = Timeline()
    before = time.monotonic_ns()
    timeline.sending([PLACE], [KEY])
    between = time.monotonic_ns()
    timeline.accepted([PLACE], [KEY])
    after = time.monotonic_ns() + 1
    assert {"lost"} == found_at(timeline, after, there())
    assert set() == found_at(timeline, after, there(KEY))
    assert set() == found_at(timeline, between, there()) | found_at(timeline, between, there(KEY))
    assert {"not sent yet"} == found_at(timeline, before - 1, there(KEY))


def test_a_removed_message_that_is_there_is_back():
    """While the removal is asked for, both are right."""
    timeline = Timeline()
    timeline.sending([PLACE], [KEY])
    timeline.accepted([PLACE], [KEY])
    timeline.removing(PLACE, KEY)
    between = time.monotonic_ns()
    timeline.removed(PLACE, KEY)
    after = time.monotonic_ns() + 1
    assert {"back"} == found_at(timeline, after, there(KEY))
    assert set() == found_at(timeline, between, there(KEY)) | found_at(timeline, between, there())


def test_a_removal_that_did_not_happen_takes_nothing_away():
    """The message was delivered again, so it must be there."""
    timeline = Timeline()
    timeline.sending([PLACE], [KEY])
    timeline.accepted([PLACE], [KEY])
    timeline.removing(PLACE, KEY, DEAD)
    timeline.delivered(PLACE, KEY)
    assert {"lost"} == found_at(timeline, time.monotonic_ns() + 1, there())


@pytest.mark.parametrize("places", [{}, {PLACE: {KEY}, DEAD: {KEY}}])
def test_a_moved_message_is_in_one_place(places: dict[tuple[str, int], set[tuple[str, int]]]):
    """Not in none, and not in both."""
    timeline = Timeline()
    timeline.sending([PLACE], [KEY])
    timeline.accepted([PLACE], [KEY])
    timeline.removing(PLACE, KEY, DEAD)
    assert {"moved in part"} == found_at(timeline, time.monotonic_ns() + 1, Found(places))


def test_messages_sent_as_one_are_stored_as_one():
    """Though neither was accepted."""
    timeline = Timeline()
    timeline.sending([PLACE], [KEY, OTHER])
    assert {"stored in part"} == found_at(timeline, time.monotonic_ns() + 1, there(KEY))


def test_a_value_is_the_last_that_was_confirmed_or_one_asked_for_since():
    """Never an earlier one."""
    timeline = Timeline()
    for value in ("one", "two"):
        timeline.setting("name", value)
        timeline.was_set("name")
    timeline.setting("name", "three")
    cut = time.monotonic_ns() + 1
    for value in ("two", "three"):
        assert set() == found_at(timeline, cut, Found(values={"name": value}))
    for wrong in ("one", None):
        assert {"value lost"} == found_at(timeline, cut, Found(values={"name": wrong}))


def test_a_message_that_was_not_sent_is_unknown():
    """A store makes up nothing."""
    assert {"unknown"} == found_at(Timeline(), 0, there(KEY))
