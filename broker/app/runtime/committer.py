"""Group commit: effects wait until the records of their turn are durable.

While a commit runs, the next turns wait, and then they are committed together. There is no await per message. Effects that
do not depend on what is not durable yet leave at once (`uncommitted_turns.py`). A small
turn without effects waits for the next one, because nobody waits for it, and on a slow disk the next one would wait for
its commit. The size of a batch is limited, so that no turn waits long for the commit before its own. Batches are
committed and released in order, one at a time, by the event loop itself or by the commit thread
(`inline_commit_policy.py` decides which). An answer leaves only after its commit has returned, in both cases. If several
processes share the store, it leaves only while this one certainly owns the store (`ownership_lease.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import structlog

from broker.app.runtime.inline_commit_policy import SMALL_WEIGHT, InlineCommitPolicy, is_small
from broker.app.runtime.uncommitted_turns import UncommittedTurns
from broker.core.contract.turn import Turn
from storage.contract import OwnershipLost, StorageError, StorageFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.app.runtime.ownership_lease import OwnershipLease
    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")

BATCH_WEIGHT = 4_096
"""The limit of rows and effects in a batch of turns: some twenty milliseconds of commit."""
LOADED_WEIGHT = 1_024
"""If more than this waits for the store, long work should wait as well: see `is_loaded`."""
UNAWAITED_S = 0.005
"""How long a small turn without effects waits for a later turn, to be committed with it."""
IDLE_S = 0.02
"""If nothing is committed for so long, the store finishes what it has postponed."""


class CommitObserver(Protocol):
    """Called after each commit."""

    def __call__(self, seconds: float, records: int, *, inline: bool) -> None:
        """`inline` means that the event loop itself has committed, and not the commit thread."""


class Committer:
    """Commits turns, and then calls `release` with them. Effects that need not wait for a commit are released before, as a
    turn of their own."""

    def __init__(
        self,
        store: Store,
        release: Callable[[Turn], None],
        failed: Callable[[Exception], None],
        observe: CommitObserver,
        stopwatch_s: Callable[[], float],
        ownership: OwnershipLease | None = None,
    ) -> None:
        self._ownership = ownership
        """None if no other process can own the store."""
        self._store = store
        self._release = release
        self._failed = failed
        self._observe = observe
        self._stopwatch_s = stopwatch_s
        self._waiting: deque[tuple[Turn, int]] = deque()
        """Turns and their weights. If no commit is running, nobody waits for them."""
        self._uncommitted = UncommittedTurns()
        """The waiting turns, and those that are being committed beside the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the wait of turns that nobody waits for."""
        self._waiting_weight = 0
        self._running_weight = 0
        """The weight of the batch that is being committed."""
        self._submitted = 0
        self._released = 0
        """Turns submitted and turns released so far; both count from the start of the process."""
        self.failure: Exception | None = None
        """Why a commit failed. Nothing is released after that until `restart`."""
        self._running: asyncio.Task[None] | None = None
        """Commits the waiting turns."""
        self._is_inside_submit = False
        """A turn is committed and released within `submit`. Turns that this submits are later turns."""
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        """Numbers of turns, ascending, and the futures that wait until so many turns are released."""
        self._thread = ThreadPoolExecutor(1, "commit") if store.blocking else None
        self._maintenance_thread = ThreadPoolExecutor(1, "maintenance")
        self._is_maintaining = False
        self._commit_count = 0
        self._finish_timer: asyncio.TimerHandle | None = None
        """Waits until nothing is committed any more."""
        self._finish_is_due = False
        """Whether the store has to finish what it has postponed before the next batch."""
        self._finishing: list[asyncio.Future[bool]] = []
        """They wait until the store has finished that: True, or until a commit has failed: False."""
        self._policy = InlineCommitPolicy(stopwatch_s)

    def submit(self, turn: Turn) -> None:
        """Commits a turn. Its effects are released once it and all earlier turns are durable."""
        self._submitted += 1
        if self.failure is not None:
            return  # it depends on records that were not stored
        try:
            is_free = self._running is None and not self._is_inside_submit
            if turn.effects and self._thread is not None and self._is_certain:
                self._release_early(turn, is_free=is_free)
            is_awaited = bool(turn.effects) or not turn.records or self._thread is None
            if is_free and is_awaited and not self._waiting and self._is_quick(turn):
                self._commit_at_once(turn)
                return
            self._wait(turn)
            if (
                is_free
                and not is_awaited
                and self._waiting_weight <= SMALL_WEIGHT
                and is_small(turn)
            ):
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(UNAWAITED_S, self._commit_unawaited)
                return
            if is_free and self._may_be_inline(turn):
                batch, turn_count = self._next_batch()
                self._uncommitted.remove(turn_count)  # no turn is submitted during the commit
                self._commit_at_once(batch)
                return
        except Exception as error:  # noqa: BLE001 -- a later turn may not be stored without this one
            self._fail(error)
            return
        if not self._is_inside_submit:
            self._start()

    def _release_early(self, turn: Turn, *, is_free: bool) -> None:
        """Releases the effects of a turn that need not wait for a commit."""
        if is_free and not turn.records and not self._waiting:
            return  # all of them are released at once
        independent = Turn()
        independent.effects = self._uncommitted.take_independent(turn)
        if independent.effects:
            self._release(independent)

    def _wait(self, turn: Turn) -> None:
        weight = turn.weight
        self._waiting.append((turn, weight))
        self._waiting_weight += weight
        self._uncommitted.add(turn)

    @property
    def takes_time(self) -> bool:
        """Whether a commit takes longer than reading sockets."""
        return self._thread is not None

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the store."""
        return self._running is None and not self._waiting

    @property
    def is_loaded(self) -> bool:
        """Whether so much waits for the store that long work should not add to it: it takes memory, and
        the commits of other clients come after it."""
        return self._running_weight + self._waiting_weight > LOADED_WEIGHT

    @property
    def submitted(self) -> int:
        """How many turns were submitted since the start of the process."""
        return self._submitted

    def has_released(self, turn_count: int) -> bool:
        """Returns whether the first `turn_count` turns are durable and released."""
        return self._released >= turn_count

    def restart(self) -> None:
        """Accepts turns again after a failure, once memory is restored from the store."""
        self.failure = None

    async def settle(self) -> None:
        """Waits until everything submitted so far is durable and released. Does not wait for later
        turns: under load there are always some."""
        if self._waiting:
            self._start()
        if self._running is not None:
            settled = asyncio.get_running_loop().create_future()
            self._settling.append((self._submitted, settled))
            await settled

    async def finish(self) -> bool:
        """Waits until everything submitted so far is durable and released, and the store has finished what it has
        postponed. Does not wait for later turns. Returns False if a commit failed."""
        await self.settle()
        if self.failure is not None or not self._store.postpones:
            return self.failure is None
        finished: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._finishing.append(finished)
        self._finish_is_due = True
        self._start()
        return await finished

    async def rest(self) -> None:
        """Waits as `settle` does. Then the store is not used until the next turn is submitted, not even to finish what
        it has postponed. For an owner that submits nothing meanwhile."""
        self._cancel_finishing()
        while not self.idle:
            await self.settle()
            self._cancel_finishing()

    def _committing(self) -> None:
        """A commit begins. When no other has followed for a moment, the store finishes what it has postponed."""
        self._commit_count += 1
        if self._finish_timer is None and self._store.postpones:
            self._wait_for_idleness()

    def _wait_for_idleness(self) -> None:
        loop = asyncio.get_running_loop()
        self._finish_timer = loop.call_later(IDLE_S, self._finish_if_idle, self._commit_count)

    def _cancel_finishing(self) -> None:
        if self._finish_timer is not None:
            self._finish_timer.cancel()
            self._finish_timer = None

    def _finish_if_idle(self, commit_count: int) -> None:
        self._finish_timer = None
        if self.failure is not None:
            return
        if self.idle and commit_count == self._commit_count:
            self._finish_is_due = True
            self._start()
        else:
            self._wait_for_idleness()

    async def _commit_nothing(self) -> None:
        loop = asyncio.get_running_loop()
        is_done = True
        try:
            await loop.run_in_executor(self._thread, self._store.commit, ())
        except Exception as error:  # whatever it is, nothing is lost
            # What was committed is durable. If the store does not work any more, the next commit fails.
            log.exception("maintenance.failed", error=repr(error))
            is_done = False
        # Also for those that came meanwhile: nothing else was committed since this began.
        self._finished(is_done=is_done)

    def _finished(self, *, is_done: bool) -> None:
        self._finish_is_due = False
        finishing, self._finishing = self._finishing, []
        for future in finishing:
            if not future.done():
                future.set_result(is_done)

    def close(self) -> None:
        """Ends the threads, after what they are doing."""
        self._cancel_finishing()
        self._maintenance_thread.shutdown(wait=True)
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _is_quick(self, turn: Turn) -> bool:
        """Returns whether this batch can be committed on the event loop."""
        if not turn.records or self._thread is None:
            return self._is_certain
        return self._may_be_inline(turn)

    def _may_be_inline(self, turn: Turn) -> bool:
        return self._is_certain and self._store.commits_inline and self._policy.allows(turn)

    @property
    def _is_certain(self) -> bool:
        """Whether no other process can own the store now. If not, the store is asked before effects are released."""
        return self._ownership is None or self._ownership.is_certain

    def _commit_at_once(self, turn: Turn) -> None:
        self._is_inside_submit = True
        try:
            seconds = self._commit_inline(turn)
            self._release(turn)
            self._note_inline(turn, seconds)  # no answer waits for it
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
        finally:
            self._is_inside_submit = False
            self._running_weight = 0
        self._released = self._submitted - len(self._waiting)
        if self._waiting:
            self._start()
        elif self._store.maintenance_is_due:
            self._maintain()

    def _commit_unawaited(self) -> None:
        """Commits turns that have waited for a later one long enough."""
        self._timer = None
        if self._waiting and not self._is_inside_submit:
            self._start()

    def _start(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting or self._finish_is_due:
                if self._finish_is_due:
                    await self._commit_nothing()
                    continue
                batch, turn_count = self._next_batch()
                if is_inline := self._is_quick(batch):
                    self._note_inline(batch, self._commit_inline(batch))
                else:
                    await self._commit_in_thread(batch)
                    if self._ownership is not None and not self._is_certain:
                        await self._ownership.confirm()
                if self.failure is None:
                    self._uncommitted.remove(turn_count)
                self._release(batch)
                self._released += turn_count
                self._running_weight = 0
                self._wake()
                if self._store.maintenance_is_due:
                    self._maintain()
                if is_inline and self._waiting:
                    await asyncio.sleep(0)  # sockets and timers come between two commits
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
        finally:
            self._running = None
            self._running_weight = 0
            self._released = self._submitted
            self._wake()

    def _commit_inline(self, batch: Turn) -> float:
        """Commits on the event loop, which does nothing else meanwhile. Returns how many seconds that took."""
        if not batch.records:
            return 0.0
        self._committing()
        started_s = self._stopwatch_s()
        self._store.commit(batch.records)
        return self._stopwatch_s() - started_s

    def _note_inline(self, batch: Turn, seconds: float) -> None:
        if not batch.records:
            return
        if self._thread is not None:
            self._policy.note(seconds, inline=True)
        self._observe(seconds, len(batch.records), inline=True)

    async def _commit_in_thread(self, batch: Turn) -> None:
        """Commits in the thread. The event loop continues, and more turns may wait."""
        if not batch.records:
            return
        self._committing()
        started_s = self._stopwatch_s()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._store.commit, batch.records)
        seconds = self._stopwatch_s() - started_s
        if is_small(batch):
            self._policy.note(seconds, inline=False)
        self._observe(seconds, len(batch.records), inline=False)

    def _maintain(self) -> None:
        """Starts the maintenance of the store, unless it is running."""
        if not self._is_maintaining:
            self._is_maintaining = True
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._maintenance_thread, self._store.maintain)
            running.add_done_callback(self._maintained)

    def _maintained(self, done: asyncio.Future[None]) -> None:
        self._is_maintaining = False
        if not done.cancelled() and (error := done.exception()) is not None:
            # Nothing is lost. The store can do without for a while, and the next commit starts it again.
            log.error("maintenance.failed", error=repr(error), exc_info=error)

    def _next_batch(self) -> tuple[Turn, int]:
        """Returns a batch of waiting turns, and how many they are. A large turn is not added to small turns before
        it, because their clients would wait for it."""
        batch = Turn()
        weight = turn_count = 0
        while self._waiting:
            next_weight = self._waiting[0][1]
            is_much_larger = weight <= LOADED_WEIGHT < next_weight
            if turn_count and (is_much_larger or weight + next_weight > BATCH_WEIGHT):
                break
            turn, turn_weight = self._waiting.popleft()
            batch.absorb(turn)
            weight += turn_weight
            turn_count += 1
        self._waiting_weight -= weight
        self._running_weight = weight
        return batch, turn_count

    def _wake(self) -> None:
        """Ends each `settle` whose turns are released."""
        while self._settling and self._settling[0][0] <= self._released:
            _, future = self._settling.pop(0)
            if not future.done():
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        """Releases nothing more: memory contains changes that the store does not have, or effects were lost.

        This applies to every exception. The owner restores memory from the store, or stops the process.
        """
        self.failure = error
        self._waiting.clear()
        self._uncommitted.clear()
        self._waiting_weight = 0
        self._finished(is_done=False)
        self._released = self._submitted  # nobody waits for turns that are dropped
        if isinstance(error, OwnershipLost | StoreUnavailable):
            log.warning("commit.failed", error=str(error))
        elif isinstance(error, StorageError):
            full = isinstance(error, StorageFull)
            log.error("commit.failed", error=str(error), disk_full=full)
        else:
            log.error("commit.failed", error=repr(error), exc_info=error)
        self._failed(error)
