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
