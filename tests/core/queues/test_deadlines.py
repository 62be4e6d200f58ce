"""The calendar: earliest first, one moment for many, nothing left behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.core.queues.deadlines import Deadlines, Due


def test_the_earliest_moment_is_known():
    """The order in which times are added does not matter."""
    deadlines = Deadlines()
    assert None is deadlines.earliest_ms()
    for at_ms in (30, 10, 20):
        deadlines.add(Due.MESSAGE_LOCK, at_ms, [at_ms])
    assert 10 == deadlines.earliest_ms()


def test_what_is_due_comes_in_order_of_time_then_kind():
    """And what is not due stays."""
    deadlines = Deadlines()
    deadlines.add(Due.TIME_TO_LIVE, 10, ["expires"])
    deadlines.add(Due.SESSION_LOCK, 10, ["session"])
    deadlines.add(Due.MESSAGE_LOCK, 5, ["lock"])
    deadlines.add(Due.MESSAGE_LOCK, 11, ["later"])
    assert [
        (5, Due.MESSAGE_LOCK, {"lock"}),
        (10, Due.SESSION_LOCK, {"session"}),
        (10, Due.TIME_TO_LIVE, {"expires"}),
    ] == [(at_ms, kind, set(items)) for at_ms, kind, items in deadlines.take_due(10)]
    assert 11 == deadlines.earliest_ms()


def test_what_is_added_while_taking_is_taken_too():
    """If it is due."""
    deadlines = Deadlines()
    deadlines.add(Due.SCHEDULED, 1, ["first"])
    taken: list[str] = []
    for at_ms, _, items in deadlines.take_due(10):
        taken += items
        if at_ms == 1:
            deadlines.add(Due.TIME_TO_LIVE, 2, ["second"])
            deadlines.add(Due.TIME_TO_LIVE, 20, ["not yet"])
    assert ["first", "second"] == taken


def test_what_is_discarded_leaves_nothing():
    """Millions of locks that were settled in time must not pile up until they would have ended."""
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.add(Due.MESSAGE_LOCK, at_ms, ["a", "b"])
        deadlines.discard(Due.MESSAGE_LOCK, at_ms, ["a", "b"])
    assert {} == deadlines._buckets
    assert len(deadlines._moments) <= 100
    assert None is deadlines.earliest_ms()


def test_discarding_what_is_not_there_is_harmless():
    """It may have fallen due already."""
    deadlines = Deadlines()
    deadlines.discard(Due.SCHEDULED, 1, ["a"])
    deadlines.add(Due.MESSAGE_LOCK, 1, ["a"])
    deadlines.discard(Due.SCHEDULED, 1, ["a"])
    deadlines.discard(Due.MESSAGE_LOCK, 1, ["b"])
    assert 1 == deadlines.earliest_ms()


_MOVES = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "take"]),
        st.sampled_from(list(Due)),
        st.integers(0, 20),
        st.integers(0, 3),
    )
)


@given(_MOVES)
def test_it_agrees_with_a_plain_set(moves):
    """After any additions and removals, in any order."""
    deadlines = Deadlines()
    plain: set[tuple[int, Due, int]] = set()
    for move, kind, at_ms, item in moves:
        if move == "add":
            deadlines.add(kind, at_ms, [item])
            plain.add((at_ms, kind, item))
        elif move == "discard":
            deadlines.discard(kind, at_ms, [item])
            plain.discard((at_ms, kind, item))
        else:
            taken = [
                (when, what, one)
                for when, what, items in deadlines.take_due(at_ms)
                for one in items
            ]
            due = {entry for entry in plain if entry[0] <= at_ms}
            assert due == set(taken)
            assert [entry[:2] for entry in taken] == sorted(entry[:2] for entry in taken)
            plain -= due
        assert min((entry[0] for entry in plain), default=None) == deadlines.earliest_ms()
