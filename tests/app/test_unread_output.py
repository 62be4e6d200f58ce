"""What all clients together leave unread has a bound."""

from __future__ import annotations

from broker.app.unread_output import UnreadOutput


class Slow:
    """A connection whose client does not read."""

    def __init__(self) -> None:
        self.is_cut_off = False

    def abort(self) -> None:
        self.is_cut_off = True


def test_the_connection_that_left_most_unread_is_cut_off():
    """Nobody else is, and what it left counts no more."""
    unread = UnreadOutput(100)
    slow, slower, slowest = Slow(), Slow(), Slow()
    unread.note(slow, 20)
    unread.note(slowest, 40)
    unread.note(slower, 30)
    unread.note(slowest, 45)
    assert not slowest.is_cut_off
    unread.note(slow, 30)
    assert [False, False, True] == [one.is_cut_off for one in (slow, slower, slowest)]
    assert 60 == unread.total_bytes


def test_a_client_that_has_caught_up_left_nothing():
    unread = UnreadOutput(100)
    one, other = Slow(), Slow()
    unread.note(one, 90)
    unread.note(one, 0)
    unread.note(other, 90)
    assert 90 == unread.total_bytes
    assert not one.is_cut_off
