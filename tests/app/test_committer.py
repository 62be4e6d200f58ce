"""Group commit: who waits for what, while more keeps coming."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.app.committer import Committer
from broker.core.records import MessagesDeleted
from broker.core.turn import Turn
from storage.contract import StorageError
from storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.records import Record

ENOUGH_COMMITS = 1_000


class CountingStore(MemoryStore):
    """Commits in a thread, like a store on disk, and counts."""

    blocking = True

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.commits = 0
        self._fails = fails

    def commit(self, records: Sequence[Record]) -> None:
        self.commits += 1
        if self._fails:
            raise StorageError("the disk is gone")


class Load:
    """Clients that ask for more as soon as they have their answer."""

    def __init__(self, store: CountingStore) -> None:
        self.failures: list[StorageError] = []
        self._store = store
        self.committer = Committer(store, self._release, self.failures.append, _ignore)

    def ask(self) -> None:
        turn = Turn()
        turn.records.append(MessagesDeleted([1], []))
        self.committer.submit(turn)

    def _release(self, turn: Turn) -> None:
        if self._store.commits < ENOUGH_COMMITS:
            self.ask()


def _ignore(seconds: float, records: int) -> None:
    pass


@pytest.fixture
def load():
    load = Load(CountingStore())
    yield load
    load.committer.close()


async def test_settling_waits_for_what_was_submitted(load: Load):
    """Everything before is durable, whatever it was gathered with."""
    load.ask()
    load.ask()
    await load.committer.settle()
    assert 1 <= load._store.commits


async def test_settling_ends_under_load(load: Load):
    """What comes later is not waited for: a broker that is told to stop must be able to."""
    load.ask()
    await load.committer.settle()
    await load.committer.settle()
    assert ENOUGH_COMMITS > load._store.commits


async def test_settling_an_idle_committer_takes_no_time(load: Load):
    """There is nothing to wait for."""
    await load.committer.settle()
    assert 0 == load._store.commits


async def test_settling_ends_when_the_store_fails():
    """Whoever waits goes on and finds out."""
    load = Load(CountingStore(fails=True))
    load.ask()
    await load.committer.settle()
    assert 1 == len(load.failures)
    assert load.committer.idle
    load.committer.close()
