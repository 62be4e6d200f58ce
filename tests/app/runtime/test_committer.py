"""Group commit: who waits for what, while more keeps coming."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.runtime import postponed_work
from broker.app.runtime.batch_commit import CommitWay
from broker.app.runtime.committer import BATCH_WEIGHT, Committer
from broker.app.runtime.inline_commit_policy import SMALL_WEIGHT
from broker.core.contract.effects import Drained, Reply
from broker.core.contract.records import MessageIdsForgotten, MessagesDeleted
from broker.core.contract.turn import Turn
from storage.contract import StorageError
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.effects import Effect
    from broker.core.contract.records import Record

ENOUGH_COMMITS = 1_000

RECORDS: dict[str, Record] = {
    "inline": MessagesDeleted([1], []),
    "thread": MessageIdsForgotten(1, 0),
}
"""Records that a quiet committer commits in this way."""


class Load:
    """Clients that ask for more as soon as they have their answer."""

    def __init__(self, store: FakeStore, record: Record = RECORDS["thread"]) -> None:
        self.failures: list[Exception] = []
        self.released = 0
        self._store = store
        self._record = record
        self.committer = Committer(
            store, self._release, _release_effects, self.failures.append, _ignore, time.perf_counter
        )

    def ask(self) -> None:
        self.committer.submit(_turn(self._record))

    def _release(self, turn: Turn) -> None:
        self.released += 1
        if self._store.commits < ENOUGH_COMMITS:
            self.ask()


def _turn(*records: Record) -> Turn:
    turn = Turn()
    turn.records += records
    return turn


def _release_effects(effects: list[Effect]) -> None:
    raise AssertionError(f"{effects} leave before their commit")


def _ignore(seconds: float, records: int, way: CommitWay) -> None:
    pass


@pytest.fixture(params=["inline", "thread"])
def load(request: pytest.FixtureRequest):
    load = Load(FakeStore(checks=False), RECORDS[request.param])
    yield load
    load.committer.close()


async def test_settling_waits_for_what_was_submitted(load: Load):
    """Everything that was submitted before is durable, in any batches."""
    load.ask()
    load.ask()
    await load.committer.settle()
    assert load.committer.has_released(2)


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
@pytest.mark.parametrize("way", ["inline", "thread", "memory"])
async def test_every_failure_of_a_commit_is_reported_and_nothing_is_released(
    failure: Exception, way: str
):
    """Every `settle` returns. Effects of the batch and of later turns are not released until the
    owner has restored memory from the store."""
    store = FakeStore(checks=False)
    store.failure = failure
    store.blocking = way != "memory"
    load = Load(store, RECORDS["thread" if way == "thread" else "inline"])
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
    committer = Committer(
        FakeStore(checks=False),
        release,
        _release_effects,
        failures.append,
        _ignore,
        time.perf_counter,
    )
    committer.submit(_turn(load._record))
    await committer.settle()
    committer.close()
    assert [bug] == failures


async def test_a_batch_takes_no_more_than_its_share_of_what_waits(load: Load):
    """Otherwise who comes after a flood waits for all of it in one commit."""
    taken: list[int] = []
    load._store.commit = lambda records: taken.append(len(records))  # type: ignore[method-assign]
    released: list[Turn] = []
    committer = Committer(
        load._store,
        released.append,
        _release_effects,
        load.failures.append,
        _ignore,
        time.perf_counter,
    )
    for _ in range(5):
        committer.submit(_turn(MessagesDeleted(range(BATCH_WEIGHT // 2), [])))
    loaded = [committer.is_loaded]
    await committer.settle()
    committer.close()
    assert [1, 2, 2] == taken
    assert 3 == len(released)
    assert committer.has_released(5)
    assert [True, False] == [*loaded, committer.is_loaded]
    assert [] == load.failures


async def test_small_turns_do_not_wait_for_a_large_one_after_them(load: Load):
    """Its commit takes long. Small turns after it have to wait anyway."""
    taken: list[list[int]] = []
    load._store.commit = lambda records: taken.append([len(one.ids) for one in records])  # type: ignore[method-assign]
    committer = Committer(
        load._store,
        lambda _: None,
        _release_effects,
        load.failures.append,
        _ignore,
        time.perf_counter,
    )
    for count in (1, 1, 2_000, 1):
        committer.submit(_turn(MessagesDeleted(range(count), [])))
    await committer.settle()
    committer.close()
    assert [[1], [1]] == taken[:2]
    assert [2_000, 1] == [count for batch in taken[2:] for count in batch]


class PostponingStore(FakeStore):
    """Sets an event when it may finish what it has postponed, which can be made to fail."""

    postpones = True

    def __init__(self) -> None:
        super().__init__(checks=False)
        self.finished = threading.Event()
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.error: Exception | None = None
        self.taken: list[int] = []

    def commit(self, records: Sequence[Record]) -> None:
        self.taken.append(len(records))
        if not records:
            self.finished.set()
            assert self.may_finish.wait(30)
            if self.error is not None:
                raise self.error


async def _finished(store: PostponingStore) -> None:
    await asyncio.get_running_loop().run_in_executor(None, store.finished.wait, 30)
    assert store.finished.is_set()


@pytest.mark.parametrize("way", ["inline", "thread"])
async def test_a_store_finishes_what_it_has_postponed_when_nothing_is_committed(way):
    """Once, and again after the next commit. Turns that come meanwhile are committed after it."""
    load = Load(store := PostponingStore(), RECORDS[way])
    store.commits = ENOUGH_COMMITS
    for _ in range(2):
        store.finished.clear()
        load.ask()
        await _finished(store)
        load.ask()
        await load.committer.settle()
        assert load.committer.idle
    load.committer.close()
    assert [] == load.failures
    assert 4 == store.taken.count(1) == load.released
    assert 1 == store.taken[0] == store.taken[-1]


async def test_a_store_that_cannot_finish_has_not_failed(monkeypatch):
    """What was committed is durable. It finishes after the next commit, or that one fails."""
    monkeypatch.setattr(postponed_work, "IDLE_S", 0.0)
    load = Load(store := PostponingStore())
    store.commits = ENOUGH_COMMITS
    store.error = StorageError("full")
    load.ask()
    await _finished(store)
    await load.committer.settle()
    store.error = None
    store.finished.clear()
    load.ask()
    await _finished(store)
    await load.committer.settle()
    load.committer.close()
    assert [] == load.failures
    assert 2 == load.released


@pytest.mark.parametrize("way", ["inline", "thread"])
async def test_a_store_finishes_on_request_under_load(way, monkeypatch):
    """After everything that was submitted before, and before the load ends. Two requests share a commit."""
    monkeypatch.setattr(postponed_work, "IDLE_S", 600.0)
    load = Load(store := PostponingStore(), RECORDS[way])
    for _ in range(2):
        store.taken.clear()
        load.ask()
        submitted = load.committer.submitted
        assert all(await asyncio.gather(load.committer.finish(), load.committer.finish()))
        assert load.committer.has_released(submitted)
        assert 1 == store.taken.count(0)
        assert 0 < store.taken.index(0)
        assert ENOUGH_COMMITS > load.released
    store.commits = ENOUGH_COMMITS
    await load.committer.settle()
    load.committer.close()
    assert [] == load.failures


async def test_nobody_waits_for_the_end_of_a_commit_while_only_postponed_work_is_done():
    """Nothing is told of its end, and a client that has sent much would stay paused."""
    store = PostponingStore()
    committer = Committer(
        store, lambda _: None, _release_effects, _raise, _ignore, time.perf_counter
    )
    store.may_finish.clear()
    committer.submit(_turn(MessageIdsForgotten(1, 0)))
    assert committer.is_writing
    await committer.settle()
    finishing = asyncio.get_running_loop().create_task(committer.finish())
    await asyncio.sleep(0)
    assert (False, False) == (committer.idle, committer.is_writing)
    store.may_finish.set()
    assert await finishing
    committer.close()


async def test_a_store_that_postpones_nothing_finishes_at_once(load: Load):
    load._store.commits = ENOUGH_COMMITS - 1
    load.ask()
    assert await load.committer.finish()
    assert ENOUGH_COMMITS == load._store.commits


@pytest.mark.parametrize("fails_before", [True, False])
async def test_a_request_to_finish_ends_if_the_store_fails(fails_before):
    """A commit before it, or the commit that finishes."""
    load = Load(store := PostponingStore())
    store.commits = ENOUGH_COMMITS
    store.error = StorageError("full")
    if fails_before:
        load.committer.submit(UnabsorbableTurn())
    assert not await load.committer.finish()
    assert not await load.committer.finish()
    load.committer.close()
    assert fails_before == len(load.failures)
    assert load.committer.idle


async def test_nobody_waits_for_ever_for_turns_behind_a_store_that_cannot_finish(monkeypatch):
    """A broker that stops meanwhile stops."""
    monkeypatch.setattr(postponed_work, "IDLE_S", 0.0)
    load = Load(store := PostponingStore())
    store.commits = ENOUGH_COMMITS
    store.error = StorageError("full")
    store.may_finish.clear()
    load.ask()
    await _finished(store)
    load.ask()
    settling = asyncio.get_running_loop().create_task(load.committer.settle())
    await asyncio.sleep(0)
    store.may_finish.set()
    async with asyncio.timeout(30):
        await settling
    assert load.committer.has_released(load.committer.submitted)
    load.committer.close()


@pytest.mark.parametrize("way", ["inline", "thread"])
async def test_a_committer_at_rest_does_not_use_the_store(monkeypatch, way):
    """Its owner loads or closes the store. What the store is finishing is waited for."""
    monkeypatch.setattr(postponed_work, "IDLE_S", 0.0)
    load = Load(store := PostponingStore(), RECORDS[way])
    store.commits = ENOUGH_COMMITS
    for _ in range(20):
        load.ask()
        await load.committer.rest()
        taken = len(store.taken)
        for _ in range(3):
            await asyncio.sleep(0.001)
        assert taken == len(store.taken)
    store.may_finish.clear()
    load.ask()
    await _finished(store)
    resting = asyncio.get_running_loop().create_task(load.committer.rest())
    await asyncio.sleep(0)
    assert not resting.done()
    store.may_finish.set()
    await resting
    load.committer.close()
    assert [] == load.failures


# --- inline and in the thread ----------------------------------------------------------------------


class WatchedStore(FakeStore):
    """Notes which records were committed in which thread, and that no two commits run at once."""

    def __init__(self) -> None:
        super().__init__(checks=False)
        self.committed: list[int] = []
        """The first id of each deletion, in the order of commits."""
        self.ways: list[str] = []
        self.takes_s = 0.0
        self.now_s = 0.0
        """A clock that moves by `takes_s` in each commit."""
        self.may_end = threading.Event()
        """Commits of the thread wait for it."""
        self.may_end.set()
        self.on_commit: Callable[[], object] = lambda: None
        self._is_running = threading.Lock()
        self._loop_thread = threading.get_ident()

    def commit(self, records: Sequence[Record]) -> None:
        assert self._is_running.acquire(blocking=False), "two commits run at once"
        self.now_s += self.takes_s
        self.on_commit()
        is_inline = threading.get_ident() == self._loop_thread
        if not is_inline:
            time.sleep(0.001)  # the event loop can do something else meanwhile
            self.may_end.wait()
        self.ways.append("inline" if is_inline else "thread")
        self.committed += [
            record.ids[0] for record in records if isinstance(record, MessagesDeleted)
        ]
        self._is_running.release()


class WatchedBackground:
    """Commits of a watched store in a thread of its own. Implements `BackgroundCommits`."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self.refuses = False
        self.is_tried_again = False
        """What was begun is not written, and the thread has to write it."""
        self._running: threading.Thread | None = None
        self.error: Exception | None = None
        self.needs_thread = True
        self.examination_is_due = False
        self.on_examined: Callable[[], object] = lambda: None

    def begin(self, records: Sequence[Record], *, caller_waits: bool = False) -> bool:
        del caller_waits
        if self.refuses:
            return False
        self._running = threading.Thread(target=self._run, args=(records,))
        self._running.start()
        return True

    def _run(self, records: Sequence[Record]) -> None:
        if not self.is_tried_again:
            self._store.commit(records)
            self._store.ways[-1] = "background"
        os.eventfd_write(self.descriptor, 1)

    def end(self) -> bool:
        assert self._running is not None, "nothing has begun"
        self._running.join()
        self._running = None
        os.eventfd_read(self.descriptor)
        if self.error is not None:
            raise self.error
        return not self.is_tried_again

    def examine(self) -> None:
        self._store.ways.append("examination")
        self.examination_is_due = False
        self.on_examined()

    def close(self) -> None:
        os.close(self.descriptor)


class WatchedLoad:
    """Submits numbered turns, and notes the order in which they are committed and released."""

    def __init__(self) -> None:
        self.prepared: list[object] = []
        """Numbers of turns that are prepared and not released."""
        self.dropped: list[object] = []
        self.preparation_fails = False
        self.on_prepared: Callable[[], object] = lambda: None
        self.store = WatchedStore()
        self.released: list[object] = []
        self.failures: list[Exception] = []
        self.ways: list[CommitWay] = []
        self.drained = 0
        """Effects released that depend on no commit."""
        self.committer = Committer(
            self.store,
            self._release,
            self._release_effects,
            self.failures.append,
            self._observe,
            lambda: self.store.now_s,
            preparation=self,
        )

    def prepare(self, turn: Turn) -> None:
        """As `Preparation` does."""
        self.prepared += [effect.request for effect in turn.effects if isinstance(effect, Reply)]
        turn.effects = []
        self.on_prepared()
        if self.preparation_fails:
            raise MemoryError

    def drop_prepared(self) -> None:
        self.dropped += self.prepared
        self.prepared.clear()

    def submit(self, number: int, *effects: Effect, size: int = 1) -> None:
        turn = _turn(MessagesDeleted([number] * size, []))
        turn.effects += (Reply(_Peer(), number), *effects)
        self.committer.submit(turn)

    def _release(self, turn: Turn) -> None:
        numbers = [effect.request for effect in turn.effects if isinstance(effect, Reply)]
        numbers += self.prepared
        self.prepared.clear()
        assert set(numbers) <= set(self.store.committed), "an effect leaves before its commit"
        self.released += numbers

    def _release_effects(self, effects: list[Effect]) -> None:
        assert {Drained} == set(map(type, effects)), "an effect leaves before its commit"
        self.drained += len(effects)

    def _observe(self, seconds: float, records: int, way: CommitWay) -> None:
        self.ways.append(way)


@pytest.fixture
def watched():
    load = WatchedLoad()
    yield load
    load.committer.close()
    assert [] == load.failures


async def test_a_small_turn_is_durable_and_released_when_it_is_submitted(watched: WatchedLoad):
    """No other thread is involved, and nothing waits."""
    watched.submit(1)
    assert (["inline"], [1]) == (watched.store.ways, watched.released)
    assert watched.committer.idle
    assert watched.committer.has_released(1)


async def test_a_turn_behind_a_commit_of_the_thread_waits_for_it(watched: WatchedLoad):
    """A small turn may not overtake the large one that it rests on."""
    watched.store.may_end.clear()
    watched.submit(1, size=SMALL_WEIGHT + 1)
    await asyncio.sleep(0)  # the thread begins
    watched.submit(2)
    assert [] == watched.store.committed
    watched.store.may_end.set()
    await watched.committer.settle()
    assert [1, 2] == watched.store.committed == watched.released
    assert ["thread", "inline"] == watched.store.ways
    assert [CommitWay.THREAD, CommitWay.INLINE] == watched.ways


@pytest.fixture
def background(watched: WatchedLoad):
    """The watched store can commit in the background."""
    background = WatchedBackground(watched.store)
    watched.store.background_commits = background
    yield background
    background.close()


async def test_a_large_turn_is_committed_in_the_background_if_the_store_can(
    watched: WatchedLoad, background: WatchedBackground
):
    """It begins when it is submitted, and the event loop goes on."""
    del background
    watched.store.may_end.clear()
    watched.submit(1, size=SMALL_WEIGHT + 1)
    watched.submit(2)
    await asyncio.sleep(0.01)
    assert ([], [], False) == (watched.store.committed, watched.released, watched.committer.idle)
    watched.store.may_end.set()
    await watched.committer.settle()
    assert [1, 2] == watched.store.committed == watched.released
    assert ["background", "inline"] == watched.store.ways
    assert [CommitWay.BACKGROUND, CommitWay.INLINE] == watched.ways
    assert watched.committer.idle
    assert watched.committer.has_released(2)


async def test_what_cannot_be_begun_in_the_background_is_committed_by_the_thread(
    watched: WatchedLoad, background: WatchedBackground
):
    """There is more to do than to write."""
    background.refuses = True
    watched.submit(1, size=SMALL_WEIGHT + 1)
    await watched.committer.settle()
    assert (["thread"], [1]) == (watched.store.ways, watched.released)


async def test_what_the_background_could_not_write_is_committed_by_the_thread(
    watched: WatchedLoad, background: WatchedBackground
):
    """Completions on a full disk, for instance. Later turns wait for it."""
    background.is_tried_again = True
    watched.submit(1, size=SMALL_WEIGHT + 1)
    watched.submit(2)
    await watched.committer.settle()
    assert (["thread", "inline"], [1, 2]) == (watched.store.ways, watched.released)


async def test_a_slow_disk_is_written_in_the_background(
    watched: WatchedLoad, background: WatchedBackground
):
    """Small turns, too. When the disk is quick again, the event loop commits them itself."""
    del background
    watched.store.takes_s = 0.1
    for number in range(20):
        watched.submit(number)
        await watched.committer.settle()
    assert ["inline"] + ["background"] * 19 == watched.store.ways
    watched.store.takes_s = 0.000_1
    watched.store.now_s += 60
    for number in range(20, 60):
        watched.submit(number)
        await watched.committer.settle()
    assert "inline" == watched.store.ways[-1]
    assert list(range(60)) == watched.released


async def test_a_commit_in_the_background_that_fails_is_reported(
    watched: WatchedLoad, background: WatchedBackground
):
    """Nothing is released, and turns that wait behind it are dropped."""
    background.error = StorageError("the disk is gone")
    watched.submit(1, size=SMALL_WEIGHT + 1)
    watched.submit(2)
    await watched.committer.settle()
    assert ([background.error], []) == (watched.failures, watched.released)
    assert watched.committer.idle
    watched.failures.clear()
    background.error = None
    watched.committer.restart()
    watched.submit(3, size=SMALL_WEIGHT + 1)
    await watched.committer.settle()
    assert [3] == watched.released


async def test_answers_are_prepared_while_the_disk_writes(
    watched: WatchedLoad, background: WatchedBackground
):
    """They are released when the commit has ended."""
    background.needs_thread = False
    watched.store.may_end.clear()
    watched.on_prepared = watched.store.may_end.set
    watched.submit(1)
    assert ([1], ["background"]) == (watched.released, watched.store.ways)
    assert (True, [CommitWay.INLINE]) == (watched.committer.idle, watched.ways)


async def test_prepared_answers_to_a_commit_that_fails_are_dropped(
    watched: WatchedLoad, background: WatchedBackground
):
    """The disk fails, or memory does. The commit has ended in both cases, so that the next one can begin."""
    background.needs_thread = False
    background.error = StorageError("the disk is gone")
    watched.submit(1)
    watched.committer.restart()
    background.error = None
    watched.preparation_fails = True
    watched.submit(2)
    watched.committer.restart()
    watched.preparation_fails = False
    watched.submit(3)
    assert ([1, 2], [3]) == (watched.dropped, watched.released)
    assert [StorageError, MemoryError] == list(map(type, watched.failures))
    watched.failures.clear()


async def test_a_prepared_commit_that_is_tried_again_is_released_after_that(
    watched: WatchedLoad, background: WatchedBackground
):
    """The disk was full, and a commit to the tables has space."""
    background.needs_thread = False
    background.is_tried_again = True
    watched.submit(1)
    assert (["inline"], [1]) == (watched.store.ways, watched.released)


async def test_the_disk_is_examined_while_a_small_commit_is_written(
    watched: WatchedLoad, background: WatchedBackground
):
    """A larger commit is written by the thread then, which examines the disk, too."""
    background.needs_thread = False
    background.examination_is_due = True
    watched.store.may_end.clear()
    background.on_examined = watched.store.may_end.set
    watched.submit(1)
    assert (["examination", "background"], [1]) == (watched.store.ways, watched.released)
    background.examination_is_due = True
    watched.submit(2, size=SMALL_WEIGHT + 1)
    await watched.committer.settle()
    assert ["examination", "background", "thread"] == watched.store.ways


async def test_a_failed_examination_is_a_failure_of_the_store(
    watched: WatchedLoad, background: WatchedBackground, monkeypatch: pytest.MonkeyPatch
):
    """The files were deleted, and the commit was written to them: it is not kept, and not answered."""
    background.needs_thread = False
    background.examination_is_due = True
    gone = StorageError("the files are gone")

    def fail() -> None:
        raise gone

    monkeypatch.setattr(background, "examine", fail)
    watched.submit(1)
    assert ([], [1], [gone]) == (watched.released, watched.dropped, watched.failures)
    watched.failures.clear()


async def test_settling_ends_if_a_commit_cannot_be_begun(
    watched: WatchedLoad, background: WatchedBackground, monkeypatch: pytest.MonkeyPatch
):
    """There is no memory for it, for instance."""
    watched.store.may_end.clear()
    watched.submit(1, size=SMALL_WEIGHT + 1)
    watched.submit(2, size=SMALL_WEIGHT + 1)
    failure = MemoryError()

    def fail(records: Sequence[Record]) -> bool:
        raise failure

    monkeypatch.setattr(background, "begin", fail)
    watched.store.may_end.set()
    await watched.committer.settle()
    assert ([failure], [1]) == (watched.failures, watched.released)
    assert (True, False) == (watched.committer.idle, watched.committer.is_loaded)
    watched.failures.clear()


@pytest.mark.parametrize("needs_thread", [False, True])
async def test_background_commits_keep_their_order_in_any_mixture(
    watched: WatchedLoad, background: WatchedBackground, *, needs_thread: bool
):
    """With all three ways to commit, and turns at every moment of the commits before them."""
    background.needs_thread = needs_thread
    for number in range(300):
        background.refuses = number % 11 < 3
        watched.submit(number, size=SMALL_WEIGHT + 1 if number % 5 == 0 else 1)
        if number % 3 == 0:
            await asyncio.sleep(0.000_5 * (number % 4))
    await watched.committer.settle()
    assert list(range(300)) == watched.store.committed == watched.released
    assert {"background", "inline", "thread"} == set(watched.store.ways)


async def test_commits_and_releases_keep_their_order_in_any_mixture(watched: WatchedLoad):
    """Small and large turns in turns, submitted at every moment of the commits before them."""
    for number in range(200):
        watched.submit(number, size=SMALL_WEIGHT + 1 if number % 7 == 0 else 1)
        if number % 3 == 0:
            await asyncio.sleep(0.000_5 * (number % 4))
    await watched.committer.settle()
    assert list(range(200)) == watched.store.committed == watched.released
    assert {"inline", "thread"} == set(watched.store.ways)


async def test_an_effect_that_depends_on_no_commit_does_not_wait_for_one(watched: WatchedLoad):
    """It leaves while an earlier turn is committed, and the answers of its own turn come later."""
    watched.store.may_end.clear()
    watched.submit(1, size=SMALL_WEIGHT + 1)
    await asyncio.sleep(0)  # the thread begins
    watched.submit(2, Drained(_Peer()))
    assert ([], 1) == (watched.released, watched.drained)
    watched.store.may_end.set()
    await watched.committer.settle()
    assert ([1, 2], 1) == (watched.released, watched.drained)


async def test_an_effect_that_depends_on_no_commit_leaves_before_an_inline_commit(
    watched: WatchedLoad,
):
    """The client works with it while the disk syncs."""
    watched.store.on_commit = lambda: drained.append(watched.drained)
    drained: list[int] = []
    watched.submit(1, Drained(_Peer()))
    assert ([1], [1]) == (drained, watched.released)


class _UncertainOwnership:
    """Another process may own the store."""

    is_certain = False

    async def confirm(self) -> None: ...


async def test_nothing_leaves_early_while_another_process_may_own_the_store():
    """A delivery would be of a message that the other process delivers, too."""
    released: list[Turn] = []
    ownership: Any = _UncertainOwnership()
    committer = Committer(
        FakeStore(checks=False),
        released.append,
        _release_effects,
        _raise,
        _ignore,
        time.perf_counter,
        ownership,
    )
    turn = _turn(MessagesDeleted([1], []))
    turn.effects.append(Drained(_Peer()))
    committer.submit(turn)
    assert [] == released
    await committer.settle()
    committer.close()
    assert [[Drained]] == [list(map(type, one.effects)) for one in released]


async def test_a_turn_without_records_waits_for_the_ownership_and_writes_nothing():
    """The thread has nothing to do for it, and no commit is counted."""
    store = FakeStore(checks=False)
    released: list[Turn] = []
    observed: list[CommitWay] = []
    ownership: Any = _UncertainOwnership()
    committer = Committer(
        store,
        released.append,
        _release_effects,
        _raise,
        lambda _seconds, _records, way: observed.append(way),
        time.perf_counter,
        ownership,
    )
    committer.submit(_answered_turn())
    assert [] == released
    await committer.settle()
    committer.close()
    assert (1, 0, []) == (len(released), store.commits, observed)


async def test_a_slow_disk_is_left_to_the_thread(watched: WatchedLoad):
    """The event loop waits for one very slow commit, and then only the clients wait for the disk."""
    watched.store.takes_s = 0.1
    for number in range(20):
        watched.submit(number)
        await watched.committer.settle()
    assert ["inline"] + ["thread"] * 19 == watched.store.ways
    assert list(range(20)) == watched.released


async def test_a_disk_that_becomes_quick_is_used_inline_again(watched: WatchedLoad):
    """After a while, which depends on how slow it was."""
    watched.store.takes_s = 0.01
    for number in range(5):
        watched.submit(number)
        await watched.committer.settle()
    watched.store.takes_s = 0.000_1
    watched.store.now_s += 60
    for number in range(100):
        watched.submit(number)
        await watched.committer.settle()
    assert "inline" == watched.store.ways[-1]


async def test_a_turn_that_is_submitted_while_another_is_released_comes_after_it(
    watched: WatchedLoad, monkeypatch: pytest.MonkeyPatch
):
    """It is committed after the release has ended: effects keep the order of their turns."""
    steps: list[str] = []

    def release(turn: Turn) -> None:
        numbers = [effect.request for effect in turn.effects if isinstance(effect, Reply)]
        steps.append(f"{numbers} begins")
        if not steps[1:]:
            watched.submit(2)
        steps.append(f"{numbers} ends")

    monkeypatch.setattr(watched.committer, "_release", release)
    watched.submit(1)
    assert not watched.committer.has_released(2)
    await watched.committer.settle()
    assert ["[1] begins", "[1] ends", "[2] begins", "[2] ends"] == steps
    assert watched.committer.has_released(2)


async def test_turns_that_were_dropped_after_a_failure_are_not_waited_for_for_ever(load: Load):
    """Otherwise the timer of everything that becomes due would wait for them."""
    load._store.failure = StorageError("the disk is gone")
    for _ in range(3):
        load.ask()
        await load.committer.settle()
    load._store.failure = None
    load._store.commits = ENOUGH_COMMITS
    load.committer.restart()
    load.ask()
    await load.committer.settle()
    assert load.committer.has_released(load.committer.submitted)


class _Peer:
    """A peer that is told something."""

    def receive(self, effect: object) -> None:
        del effect


def _answered_turn(*records: Record) -> Turn:
    turn = _turn(*records)
    turn.effects.append(Reply(_Peer(), None))
    return turn


def _raise(error: Exception) -> None:
    raise error
