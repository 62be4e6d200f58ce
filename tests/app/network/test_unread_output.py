"""What all clients together leave unread has a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.app.network.unread_output import STALLED_S, UnreadOutput

if TYPE_CHECKING:
    from collections.abc import Callable


class Slow:
    """A connection whose client does not read."""

    def __init__(self) -> None:
        self.is_cut_off = False

    def abort(self) -> None:
        self.is_cut_off = True


class Time:
    """A clock that moves only when a test moves it, and then calls what is due."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._calls.append((self.now_s + delay_s, call))

    def advance(self, amount_s: float) -> None:
        self.now_s += amount_s
        due = [call for at_s, call in self._calls if at_s <= self.now_s]
        self._calls = [(at_s, call) for at_s, call in self._calls if at_s > self.now_s]
        for call in due:
            call()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def unread(time: Time) -> UnreadOutput:
    return UnreadOutput(100, lambda: time.now_s, time.call_later)


def test_the_client_that_left_most_unread_is_cut_off(time: Time, unread: UnreadOutput):
    """No other client is, and its output is not counted any more."""
    clients = slow, slower, slowest = Slow(), Slow(), Slow()
    unread.note(slow, 30)
    unread.note(slowest, 40)
    unread.note(slower, 35)
    time.advance(STALLED_S)
    assert [False, False, True] == [client.is_cut_off for client in clients]
    assert 65 == unread.total_bytes


def test_clients_that_catch_up_are_left_alone(time: Time, unread: UnreadOutput):
    """Many may get a burst at the same time."""
    clients = [Slow() for _ in range(10)]
    for client in clients:
        unread.note(client, 50)
    time.advance(STALLED_S / 2)
    for client in clients:
        unread.note(client, 0)
        unread.note(client, 50)
    time.advance(STALLED_S / 2)
    assert not any(client.is_cut_off for client in clients)
    time.advance(STALLED_S)
    assert 8 == sum(client.is_cut_off for client in clients)
    assert 100 == unread.total_bytes
