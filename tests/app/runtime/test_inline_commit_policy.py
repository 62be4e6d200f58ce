"""Which commits the event loop makes itself: by the size of the batch, and by how long commits took."""

from __future__ import annotations

import pytest

from broker.app.runtime.inline_commit_policy import (
    NOT_INLINE_MAX_S,
    QUICK_S,
    SLOW_FACTOR,
    SMALL_BYTES,
    SMALL_WEIGHT,
    InlineCommitPolicy,
    is_small,
)
from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    Record,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads
from broker.core.contract.turn import Turn
from tests.storage.sample_records import payload, row, stored

LARGE = b"x" * (SMALL_BYTES + 1)


def _turn(*records: Record) -> Turn:
    turn = Turn()
    turn.records += records
    return turn


SMALL_TURNS: dict[str, tuple[Record, ...]] = {
    "one message": (stored([1]),),
    "a message as it was sent": (MessagesStored([row(1)], SentPayloads(1, [b"a"], [b"b"])),),
    "some messages": (stored(range(SMALL_WEIGHT // 2)), MessagesDeleted(range(20), range(20))),
    "an update": (MessagesUpdated([row(1, delivery_count=1)]),),
    "a message and its id": (stored([1]), MessageIdsSeen(1, [("a", 5)])),
    "a session state": (SessionStateSet(1, "s", b"state", 0), SessionStateSet(1, "t", None, 0)),
}
LARGE_TURNS: dict[str, tuple[Record, ...]] = {
    "many messages": (stored(range(SMALL_WEIGHT + 1)),),
    "many deletions": (MessagesDeleted(range(SMALL_WEIGHT + 1), []),),
    "a long body": (MessagesStored([row(1)], [payload(1, LARGE)]),),
    "a long body, as it was sent": (MessagesStored([row(1)], SentPayloads(1, [LARGE], None)),),
    "long annotations": (MessagesStored([row(1)], SentPayloads(1, [b""], [LARGE])),),
    "bodies that are long together": (
        MessagesStored([row(1), row(2)], [payload(1, LARGE[: SMALL_BYTES // 2 + 1])] * 2),
    ),
    "long changes": (MessagesUpdated([row(1, changes=LARGE)]),),
    "a long session state": (SessionStateSet(1, "s", LARGE, 0),),
    "ids that are forgotten, any number": (MessageIdsForgotten(1, 0),),
    "a deleted entity, with any number of ids and states": (stored([1]), EntityDeleted(1)),
}


@pytest.mark.parametrize("name", SMALL_TURNS)
def test_small_turns_are_committed_inline(name: str):
    """One message, or few: the commit takes as long as its sync."""
    assert InlineCommitPolicy(lambda: 0.0).allows(_turn(*SMALL_TURNS[name]))


@pytest.mark.parametrize("name", LARGE_TURNS)
def test_turns_that_may_take_long_are_left_to_the_thread(name: str):
    """By the number of rows, by bytes, or because nobody knows how many rows they change."""
    assert not is_small(_turn(*LARGE_TURNS[name]))
    assert not InlineCommitPolicy(lambda: 0.0).allows(_turn(*LARGE_TURNS[name]))


class Disk:
    """Commits one small turn after the other, where the policy wants it, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.inline_s = 0.0
        """How long the event loop could do nothing else."""
        self._policy = InlineCommitPolicy(lambda: self.now_s)

    @property
    def is_inline(self) -> bool:
        return self._policy.allows(_turn(stored([1])))

    def commit(self, seconds: float) -> bool:
        """Returns whether the commit was inline."""
        inline = self.is_inline
        self.now_s += seconds
        self.inline_s += seconds * inline
        self._policy.note(seconds, inline=inline)
        return inline


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.000_1, 100), (0.001_9, 100), (0.004, 11), (0.01, 4), (0.1, 1)]
)
def test_a_slow_disk_is_left_to_the_thread_after_very_few_commits(seconds: float, expected: int):
    """The slower it is, the fewer commits stop the event loop, and none after that."""
    disk = Disk()
    ways = [disk.commit(seconds) for _ in range(100)]
    assert [True] * expected + [False] * (100 - expected) == ways


def test_one_commit_that_takes_a_few_milliseconds_changes_nothing():
    """Every disk and every scheduler has such moments."""
    disk = Disk()
    assert all(disk.commit(0.005 if number % 10 == 0 else 0.000_2) for number in range(1, 100))


def test_a_disk_that_has_become_quick_is_noticed_by_the_commits_of_the_thread():
    """Nothing is tried out on the event loop while the disk is slow."""
    disk = Disk()
    for _ in range(10):
        disk.commit(0.05)
    disk.now_s += NOT_INLINE_MAX_S
    assert not any(disk.commit(0.05) for _ in range(100))
    ways = [disk.commit(0.000_2) for _ in range(100)]
    assert ways.count(False) < 50
    assert ways[-1]


def test_inline_commits_return_only_after_many_times_the_duration_of_the_slow_one():
    """Quick commits in between do not shorten that."""
    disk = Disk()
    assert disk.commit(0.1)
    slow_until_s = disk.now_s + 0.1 * SLOW_FACTOR
    while not disk.commit(QUICK_S / 10):
        pass
    assert slow_until_s <= disk.now_s <= slow_until_s + QUICK_S


@pytest.mark.parametrize("period", [5, 20, 100, 500])
def test_stalls_stop_the_event_loop_for_a_small_part_of_the_time(period: int):
    """Also if the disk is quick most of the time, and stalls now and then for a tenth of a second."""
    disk = Disk()
    stalled_s = 0.0
    for number in range(1, 20_001):
        is_stall = number % period == 0
        inline = disk.commit(0.1 if is_stall else 0.000_2)
        stalled_s += 0.1 * (inline and is_stall)
    assert stalled_s <= disk.now_s / SLOW_FACTOR + 0.1


def test_a_very_long_stall_is_not_held_against_the_disk_for_ever():
    """A machine that was suspended, for instance."""
    disk = Disk()
    assert disk.commit(100.0)
    while disk.now_s < 101.0:
        disk.commit(0.000_2)
    assert not disk.is_inline
    disk.now_s = 100.0 + NOT_INLINE_MAX_S
    assert disk.is_inline
