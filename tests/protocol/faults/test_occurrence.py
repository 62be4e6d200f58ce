"""Which operations a rule acts on."""

from __future__ import annotations

import pytest

from protocol.faults.occurrence import Always, Every, First, Nth, Probability


@pytest.mark.parametrize(
    ("occurrence", "due"),
    [
        (Always(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (Nth(3), [3]),
        (Every(4), [4, 8]),
        (First(2), [1, 2]),
        (Probability(0.0, 7), []),
        (Probability(1.0, 7), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (Probability(0.3, 7), [2, 4, 7, 9]),
        (Probability(0.3, 8), [1, 3, 5, 6, 8]),
    ],
)
def test_the_same_operations_are_chosen_every_time(occurrence, due):
    """The numbers of a seed are part of what users rely on: a test that failed can be run again."""
    assert due == [number for number in range(1, 11) if occurrence.is_due(number)]


def test_a_probability_is_met_in_the_long_run():
    chosen = Probability(0.2, 1)
    assert 1_800 < sum(chosen.is_due(number) for number in range(1, 10_001)) < 2_200
