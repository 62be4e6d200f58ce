"""Times of clients after the end of an owner: which answer counts, and how times are described."""

from __future__ import annotations

import time

from tests.crash.first_answers import FirstAnswers, percentiles


def test_a_send_that_began_before_the_end_of_the_owner_does_not_count() -> None:
    """The old owner may have answered it."""
    times_s: list[float] = []
    answers = FirstAnswers("Endpoint=sb://nowhere;SharedAccessKeyName=a;SharedAccessKey=b")
    before_s = time.monotonic()
    answers.owner_ends(times_s)
    answers._answered(before_s)
    assert [] == times_s
    answers._answered(time.monotonic())
    answers._answered(time.monotonic())
    assert 1 == len(times_s)
    answers.wait()


def test_the_median_and_the_slowest_are_named() -> None:
    assert "none" == percentiles([])
    assert "1: 0.50 s (p50), 0.50 s (p99), 0.50 s (slowest)" == percentiles([0.5])
    times_s = [number / 100 for number in range(200)]
    assert "200: 1.00 s (p50), 1.98 s (p99), 1.99 s (slowest)" == percentiles(times_s)
