"""How many connections browse at a time."""

from __future__ import annotations

import pytest

from protocol.amqp.browsing_slots import BrowsingSlots
from protocol.amqp.links.browsing_link import ANSWERS_PER_TURN, BrowsingTurns


class Timer:
    """Calls functions when the test says so."""

    def __init__(self):
        self.calls = []

    def call_later(self, delay_s, call):
        del delay_s
        self.calls.append(call)

    def fire(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Browser:
    """A browsing link that peeks as long as it has credit."""

    def __init__(self, credit=1_000):
        self.asked = 0
        self.credit = credit

    def ask(self):
        if self.asked == self.credit:
            return False
        self.asked += 1
        return True


@pytest.fixture
def timer():
    return Timer()


@pytest.fixture
def slots(timer):
    return BrowsingSlots(timer.call_later, slots=2)


def connection(slots, browser):
    turns = BrowsingTurns(slots)
    turns.request(browser)
    return turns


def answer(turns, browser):
    """Answers a peek. The link then requests another."""
    turns.answered(browser)
    turns.request(browser)


def test_connections_take_turns(slots, monkeypatch):
    """Each peeks again after those that wait, and only once its answers are written."""
    monkeypatch.setattr("protocol.amqp.links.browsing_link.ANSWERS_PER_TURN", 1)
    browsers = [Browser() for _ in range(3)]
    first, second, third = (connection(slots, browser) for browser in browsers)
    assert [1, 1, 0] == [browser.asked for browser in browsers]
    answer(first, browsers[0])
    assert [1, 1, 0] == [browser.asked for browser in browsers]
    first.output_written()
    assert [1, 1, 1] == [browser.asked for browser in browsers]
    answer(second, browsers[1])
    second.output_written()
    answer(third, browsers[2])
    third.output_written()
    assert [2, 2, 1] == [browser.asked for browser in browsers]


def test_a_client_that_reads_gets_several_answers_in_a_turn(slots):
    """Else it would wait for all others after each of them."""
    browsers = [Browser() for _ in range(3)]
    first, _, _ = (connection(slots, browser) for browser in browsers)
    for _ in range(ANSWERS_PER_TURN):
        assert 0 == browsers[2].asked
        answer(first, browsers[0])
        first.output_written()
    assert [ANSWERS_PER_TURN, 1, 1] == [browser.asked for browser in browsers]


def test_a_connection_alone_does_not_wait_for_its_output(slots):
    """It is stopped by its full socket only."""
    browser = Browser()
    turns = connection(slots, browser)
    for _ in range(5):
        answer(turns, browser)
    assert 6 == browser.asked
    turns.pause()
    answer(turns, browser)
    assert 6 == browser.asked
    turns.resume()
    assert 7 == browser.asked


def test_a_client_that_does_not_read_loses_its_slot_to_one_that_waits(slots, timer):
    """Not at once, and it continues when it has read."""
    browsers = [Browser() for _ in range(3)]
    first, second, _ = (connection(slots, browser) for browser in browsers)
    for turns, browser in ((first, browsers[0]), (second, browsers[1])):
        answer(turns, browser)
        turns.pause()
        turns.output_written()
    timer.fire()
    assert 0 == browsers[2].asked
    timer.fire()
    assert 1 == browsers[2].asked
    first.resume()
    assert 2 == browsers[0].asked
    timer.fire()
    assert [] == timer.calls


def test_a_client_that_does_not_read_keeps_its_slot_while_no_other_waits(slots, timer):
    """There is no timer either."""
    browser = Browser()
    turns = connection(slots, browser)
    answer(turns, browser)
    turns.pause()
    assert [] == timer.calls


def test_a_connection_without_credit_gives_its_slot_back(slots):
    """However many are like that."""
    holders = [connection(slots, Browser()) for _ in range(2)]
    without = [connection(slots, Browser(credit=0)) for _ in range(2_000)]
    last = Browser()
    connection(slots, last)
    holders[0].clear()
    assert 1 == last.asked
    assert 2_000 == len(without)


def test_a_connection_that_ends_gives_its_slot_back(slots):
    """Or its place among those that wait."""
    browsers = [Browser() for _ in range(4)]
    first, _, third, _ = (connection(slots, browser) for browser in browsers)
    third.clear()
    first.clear()
    assert [1, 1, 0, 1] == [browser.asked for browser in browsers]


def stall(turns, browser):
    """The client does not read its answer."""
    answer(turns, browser)
    turns.pause()
    turns.output_written()


def test_an_honest_client_does_not_wait_for_hundreds_that_do_not_read(slots, timer):
    """They keep each slot until they lose it, which takes a second. It comes before all that wait since before it."""
    hostile = [(connection(slots, browser), browser) for browser in (Browser() for _ in range(300))]
    honest = Browser()
    turns = connection(slots, honest)
    checks = 0
    while not honest.asked:
        for one, browser in hostile:
            if browser.asked and not one.is_paused:
                stall(one, browser)
        timer.fire()
        checks += 1
    assert checks <= 3
    answer(turns, honest)
    turns.output_written()
    checks = 0
    while honest.asked < 2:
        for one, browser in hostile:
            if browser.asked and not one.is_paused:
                stall(one, browser)
        timer.fire()
        checks += 1
    assert checks <= 3


class Holder:
    """A connection that notes when it gets a slot."""

    def __init__(self, name, granted):
        self.name = name
        self._granted = granted
        self.is_paused = False

    def slot_granted(self):
        self._granted.append(self.name)


def test_clients_that_did_not_read_come_last_and_do_come(timer):
    """Clients that read before come first, then the newest. Every fourth slot goes to the client that has waited
    longest."""
    slots = BrowsingSlots(timer.call_later, slots=1)
    granted: list[str] = []
    names = ("hostile", "reader", "a", "b", "c", "d")
    holders = {name: Holder(name, granted) for name in names}
    slots.take(holders["hostile"])
    holders["hostile"].is_paused = True
    slots.release(holders["hostile"])  # as the check does with a client that does not read
    slots.take(holders["reader"])
    slots.release(holders["reader"])
    slots.take(holders["a"])
    for name in ("hostile", "b", "c", "d", "reader"):
        assert not slots.take(holders[name])
    slots.release(holders["a"])
    for name in ("reader", "d", "c", "hostile", "b"):
        assert name == granted[-1]
        slots.release(holders[name])
    assert not slots.is_awaited
