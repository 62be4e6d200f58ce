"""Group commit: who waits for what, while more keeps coming."""

from __future__ import annotations

import pytest

from broker.app.runtime.committer import BATCH_WEIGHT, Committer
from broker.core.contract.records import MessagesDeleted
from broker.core.contract.turn import Turn
from storage.contract import StorageError
from tests.support.fake_store import FakeStore

ENOUGH_COMMITS = 1_000


class Load:
    """Clients that ask for more as soon as they have their answer."""

    def __init__(self, store: FakeStore) -> None:
        self.failures: list[Exception] = []
        self.released = 0
        self._store = store
        self.committer = Committer(store, self._release, self.failures.append, _ignore)

    def ask(self) -> None:
        turn = Turn()
        turn.records.append(MessagesDeleted([1], []))
        self.committer.submit(turn)

    def _release(self, turn: Turn) -> None:
        self.released += 1
        if self._store.commits < ENOUGH_COMMITS:
            self.ask()


def _ignore(seconds: float, records: int) -> None:
    pass


@pytest.fixture
def load():
    load = Load(FakeStore(checks=False))
    yield load
    load.committer.close()


async def test_settling_waits_for_what_was_submitted(load: Load):
    """Everything that was submitted before is durable, in any batches."""
    load.ask()
    load.ask()
    await load.committer.settle()
    assert 1 <= load._store.commits


async def test_settling_ends_under_load(load: Load):
    """Later turns are not waited for: a broker must be able to stop."""
    load.ask()
    await load.committer.settle()
    await load.committer.settle()
    assert ENOUGH_COMMITS > load._store.commits


async def test_settling_an_idle_committer_takes_no_time(load: Load):
    """There is nothing to wait for."""
    await load.committer.settle()
    assert 0 == load._store.commits


ODD_FAILURES = [
    StorageError("the disk is gone"),
    OSError(5, "Input/output error"),
    MemoryError(),
    RuntimeError("a bug"),
]


@pytest.mark.parametrize("failure", ODD_FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("blocking", [True, False], ids=["thread", "loop"])
async def test_every_failure_of_a_commit_is_reported_and_nothing_is_released(
    failure: Exception, blocking: bool
):
    """Every `settle` returns. Effects of the batch and of later turns are not released until the
    owner has restored memory from the store."""
    store = FakeStore(checks=False)
    store.failure = failure
    store.blocking = blocking
    load = Load(store)
    load.ask()
    load.ask()
    await load.committer.settle()
    assert [failure] == load.failures
    assert load.committer.idle
    load.committer.submit(Turn())
    assert 0 == load.released
    load.committer.restart()
    load.committer.submit(Turn())
    assert 1 == load.released
    load.committer.close()


class UnabsorbableTurn(Turn):
    """There is no memory to put it with the others."""

    @property
    def effects(self):
        raise MemoryError

    @effects.setter
    def effects(self, value: object) -> None: ...


async def test_a_turn_that_cannot_be_gathered_is_reported_and_no_part_of_it_is_stored(load: Load):
    """Later turns rest on it: a broker that dropped it and went on would lose what it accepts."""
    turn = UnabsorbableTurn()
    turn.records.append(MessagesDeleted([1], []))
    load.committer.submit(turn)
    await load.committer.settle()
    assert [MemoryError] == [type(failure) for failure in load.failures]
    load.ask()
    await load.committer.settle()
    assert (0, 0) == (load._store.commits, load.released)


async def test_a_release_that_fails_is_reported(load: Load):
    """It is a bug of the broker, and an answer is lost: the owner must be called."""
    bug = RuntimeError("a bug")

    def release(turn: Turn) -> None:
        raise bug

    failures: list[Exception] = []
    committer = Committer(FakeStore(checks=False), release, failures.append, _ignore)
    turn = Turn()
    turn.records.append(MessagesDeleted([1], []))
    committer.submit(turn)
    await committer.settle()
    committer.close()
    assert [bug] == failures


async def test_a_batch_takes_no_more_than_its_share_of_what_waits(load: Load):
    """Otherwise who comes after a flood waits for all of it in one commit."""
    taken: list[int] = []
    load._store.commit = lambda records: taken.append(len(records))  # type: ignore[method-assign]
    released: list[Turn] = []
    committer = Committer(load._store, released.append, load.failures.append, _ignore)
    for _ in range(5):
        turn = Turn()
        turn.records.append(MessagesDeleted(range(BATCH_WEIGHT // 2), []))
        committer.submit(turn)
    loaded = [committer.is_loaded]
    await committer.settle()
    committer.close()
    assert [2, 2, 1] == taken
    assert 3 == len(released)
    assert committer.has_released(5)
    assert [True, False] == [*loaded, committer.is_loaded]
    assert [] == load.failures
