"""Delayed work keeps its order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.amqp.faults.ordered_work import OrderedWork

if TYPE_CHECKING:
    from collections.abc import Callable


class Timers:
    def __init__(self) -> None:
        self.calls: dict[float, Callable[[], None]] = {}

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls[seconds] = call


def test_work_waits_for_the_work_before_it():
    timers, done = Timers(), []
    work = OrderedWork(timers.later)
    work.add(lambda: done.append("a"))
    assert ["a"] == done
    work.add(lambda: done.append("b"), 5)
    work.add(lambda: done.append("c"))
    work.add(lambda: done.append("d"), 3)
    work.add(lambda: done.append("e"))
    assert work.is_waiting
    timers.calls[3]()
    assert ["a"] == done, "d is ready, but b comes first"
    timers.calls[5]()
    assert ["a", "b", "c", "d", "e"] == done
    assert not work.is_waiting


def test_work_that_is_added_by_work_comes_last():
    timers, done = Timers(), []
    work = OrderedWork(timers.later)
    work.add(lambda: work.add(lambda: done.append("late")), 1)
    work.add(lambda: done.append("b"))
    timers.calls[1]()
    assert ["b", "late"] == done


def test_what_is_dropped_is_not_done():
    timers, done = Timers(), []
    work = OrderedWork(timers.later)
    work.add(lambda: done.append("a"), 1)
    work.clear()
    timers.calls[1]()
    assert [] == done
