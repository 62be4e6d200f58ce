"""The clock of a namespace follows the broker's at a distance, or stands still."""

from __future__ import annotations

from broker.core.namespace_clock import NamespaceClock


def test_it_follows_the_broker_at_a_distance():
    clock = NamespaceClock()
    clock.advance(100)
    assert 1_100 == clock.time_ms(1_000)
    assert 900 == clock.broker_time_ms(1_000)


def test_a_frozen_clock_stands_until_it_is_moved():
    clock = NamespaceClock()
    clock.advance(100)
    clock.freeze(1_000)
    assert 1_100 == clock.time_ms(5_000)
    clock.freeze(6_000)
    clock.advance(50)
    assert 1_150 == clock.time_ms(7_000)


def test_nothing_later_becomes_due_while_it_is_frozen():
    """What is due already was due in the past of the broker's clock, so it is done at once."""
    clock = NamespaceClock()
    clock.freeze(1_000)
    assert clock.broker_time_ms(1_001) is None
    clock.advance(50)
    due_ms = clock.broker_time_ms(1_001)
    assert due_ms is not None
    assert 1_000 >= due_ms
    assert clock.broker_time_ms(1_051) is None


def test_it_resumes_from_the_time_that_it_shows():
    clock = NamespaceClock()
    clock.freeze(1_000)
    clock.resume(9_000)
    assert 1_000 == clock.time_ms(9_000)
    assert 1_500 == clock.time_ms(9_500)
    clock.resume(9_600)
    assert 1_600 == clock.time_ms(9_600)
