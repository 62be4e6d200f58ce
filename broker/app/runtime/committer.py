"""Group commit: answers wait until their turn is durable.

While a commit runs, the next turns wait, and then they are committed together. There is no await per message. Effects
that do not depend on what is not durable yet leave at once (`uncommitted_turns.py`). The size of a batch is limited, so
that no turn waits long for the commit before its own. Batches are committed and released in order, one at a time, on the
event loop or beside it (`batch_commit.py`). An answer leaves only after its commit has returned, whichever way it was
committed. If several processes share the store, it leaves only while this one certainly owns the store
(`ownership_lease.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.app.runtime.batch_commit import BatchCommit
from broker.app.runtime.postponed_work import PostponedWork
from broker.app.runtime.store_maintenance import StoreMaintenance
from broker.app.runtime.uncommitted_turns import INDEPENDENT, UncommittedTurns
from broker.core.contract.turn import Turn
from storage.contract import OwnershipLost, StorageError, StorageFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker.app.runtime.batch_commit import CommitObserver, Preparation
    from broker.app.runtime.ownership_lease import OwnershipLease
    from broker.core.contract.effects import Effect
    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")

BATCH_WEIGHT = 4_096
"""The limit of rows and effects in a batch of turns: some twenty milliseconds of commit."""
LOADED_WEIGHT = 1_024
"""If more than this waits for the store, long work should wait as well: see `is_loaded`."""


class _Batch(NamedTuple):
    """Turns that are committed together."""

    turn: Turn
    turn_count: int


class Committer:
    """Commits turns, and then calls `release` with them. Before that, calls `release_effects` with those of their effects
    that need not wait."""

    def __init__(
        self,
        store: Store,
        release: Callable[[Turn], None],
        release_effects: Callable[[list[Effect]], None],
        failed: Callable[[Exception], None],
        observe: CommitObserver,
        stopwatch_s: Callable[[], float],
        ownership: OwnershipLease | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        self._preparation = preparation
        """Prepares the answers to a turn while it is being written. None if nothing is prepared."""
        self._ownership = ownership
        """None if no other process can own the store."""
        self._release = release
        self._release_effects = release_effects
        self._failed = failed
        self._commit = BatchCommit(store, self._background_ended, observe, stopwatch_s)
        self.takes_time = self._commit.thread is not None
        """Whether a commit takes longer than reading sockets."""
        self._postponed = PostponedWork(store, lambda: self.idle, self._start)
        self._maintenance = StoreMaintenance(store)
        self._waiting: deque[tuple[Turn, int]] = deque()
        """Turns and their weights. They wait for the commit that is running."""
        self._uncommitted = UncommittedTurns()
        """The waiting turns, and those that are being committed beside the event loop."""
        self._waiting_weight = 0
        self._running_weight = 0
        """The weight of the batch that is being committed."""
        self._writes_records = False
        """Whether the batch that is being committed beside the event loop has records."""
        self._submitted = 0
        self._released = 0
        """Turns submitted and turns released so far; both count from the start of the process."""
        self.failure: Exception | None = None
        """Why a commit failed. Until `restart`, nothing is released after that, except a batch that is being written: it
        is durable then."""
        self._begun: _Batch | None = None
        """The batch that is being committed in the background."""
        self._task: asyncio.Task[None] | None = None
        """Commits a batch in another way, or finishes what the store has postponed."""
        self._is_inside_submit = False
        """A turn is committed and released within `submit`. Turns that this submits are later turns."""
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        """Numbers of turns, ascending, and the futures that wait until so many turns are released."""

    # --- submitting ----------------------------------------------------------------------------

    def submit(self, turn: Turn) -> None:
        """Commits a turn. Its effects are released once it and all earlier turns are durable. Those that depend on none
        of that are released at once."""
        self._submitted += 1
        if self.failure is not None:
            return  # it depends on records that were not stored
        try:
            is_free = self._begun is None and self._task is None and not self._is_inside_submit
            if turn.effects and (turn.records or not is_free) and self.takes_time:
                self._release_early(turn)
            if is_free and self._may_be_inline(turn):
                self._commit_at_once(turn)
                return
            self._wait(turn)
        except Exception as error:  # noqa: BLE001 -- a later turn may not be stored without this one
            self._fail(error)
            return
        if not self._is_inside_submit:
            self._start()

    def _release_early(self, turn: Turn) -> None:
        """Releases the effects of a turn that need not wait for a commit."""
        for effect in turn.effects:
            if type(effect) in INDEPENDENT and self._is_certain:
                independent = self._uncommitted.take_independent(turn)
                if independent:
                    self._release_effects(independent)
                return

    def _wait(self, turn: Turn) -> None:
        weight = turn.weight
        self._waiting.append((turn, weight))
        self._waiting_weight += weight
        self._uncommitted.add(turn)

    # --- state ---------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the store."""
        return not (self._is_committing or self._waiting)

    @property
    def is_writing(self) -> bool:
        """Whether records wait for the store or are being written. The observer is called after that."""
        return self._writes_records or any(turn.records for turn, _ in self._waiting)

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
        if self._is_committing:
            settled = asyncio.get_running_loop().create_future()
            self._settling.append((self._submitted, settled))
            await settled

    async def finish(self) -> bool:
        """Waits until everything submitted so far is durable and released, and the store has finished what it has
        postponed. Does not wait for later turns. Returns False if a commit failed."""
        await self.settle()
        return self.failure is None and await self._postponed.request()

    async def rest(self) -> None:
        """Waits as `settle` does. Then the store is not used until the next turn is submitted, not even to finish what
        it has postponed. For an owner that submits nothing meanwhile."""
        self._postponed.cancel()
        while not self.idle:
            await self.settle()
            self._postponed.cancel()

    def close(self) -> None:
        """Ends the threads, after what they are doing."""
        self._postponed.cancel()
        self._maintenance.close()
        self._commit.close()

    @property
    def _is_committing(self) -> bool:
        """Whether a batch is committed beside the event loop."""
        return self._begun is not None or self._task is not None

    @property
    def _is_certain(self) -> bool:
        """Whether no other process can own the store now. If not, the store is asked before effects are released."""
        return self._ownership is None or self._ownership.is_certain

    def _may_be_inline(self, turn: Turn) -> bool:
        return self._is_certain and self._commit.may_be_inline(turn)

    # --- committing ----------------------------------------------------------------------------

    def _commit_at_once(self, turn: Turn) -> None:
        """Commits on the event loop."""
        self._is_inside_submit = True
        try:
            if turn.records:
                self._postponed.note_commit()
            seconds = self._commit.commit_inline(turn, self._preparation)
            self._release(turn)
            self._commit.note_inline(turn, seconds)  # no answer waits for it
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
        finally:
            self._is_inside_submit = False
            self._running_weight = 0
        self._released = self._submitted - len(self._waiting)
        if self._waiting:
            self._start()
        else:
            self._maintenance.start_if_due()

    def _start(self) -> None:
        """Begins to commit the next batch, unless a commit is running."""
        if self._is_committing or self.failure is not None:
            return
        if self._postponed.is_due:
            self._run(self._finish_postponed())
            return
        try:
            batch = self._next_batch()
            self._writes_records = bool(batch.turn.records)
            if self._writes_records:
                self._postponed.note_commit()
            is_inline = self._may_be_inline(batch.turn)
            if not is_inline and self._commit.begin(batch.turn):
                self._begun = batch
                return
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
            return
        self._run(self._commit_in_task(batch, is_inline=is_inline))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    def _background_ended(self) -> None:
        """The batch that was begun is written, or could not be written."""
        batch = self._begun
        assert batch is not None
        is_over = True
        try:
            is_over = self._commit.end(batch.turn)
            if is_over:
                self._committed(batch)
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
        self._begun = None
        if is_over:
            self._continue()
        else:
            self._run(self._commit_in_task(batch, is_inline=False))

    async def _commit_in_task(self, batch: _Batch, *, is_inline: bool) -> None:
        """Commits a batch in the thread, or on the event loop after sockets and timers."""
        turn = batch.turn
        try:
            if is_inline:
                self._commit.note_inline(turn, self._commit.commit_inline(turn))
            elif turn.records:
                await self._commit.commit_in_thread(turn)
            if self._ownership is not None and not self._is_certain:
                await self._ownership.confirm()
            self._committed(batch)
        except Exception as error:  # noqa: BLE001 -- the owner gets every failure
            self._fail(error)
        self._task = None
        self._continue()

    async def _finish_postponed(self) -> None:
        await self._postponed.finish(self._commit.thread)
        self._task = None
        self._continue()

    def _committed(self, batch: _Batch) -> None:
        """A batch is durable."""
        if self.failure is None:
            self._uncommitted.remove(batch.turn_count)
        self._release(batch.turn)
        self._maintenance.start_if_due()

    def _continue(self) -> None:
        """A commit has ended."""
        self._released = self._submitted - len(self._waiting)
        self._wake()
        if self._waiting or self._postponed.is_due:
            self._start()

    def _wake(self) -> None:
        """Nothing is being committed. Ends each `settle` whose turns are released."""
        self._writes_records = False
        self._running_weight = 0
        while self._settling and self._settling[0][0] <= self._released:
            _, future = self._settling.pop(0)
            if not future.done():
                future.set_result(None)

    def _next_batch(self) -> _Batch:
        """Returns a batch of waiting turns. A large turn is not added to small turns before it, because their clients would
        wait for it."""
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
        return _Batch(batch, turn_count)

    def _fail(self, error: Exception) -> None:
        """Releases nothing more: memory contains changes that the store does not have, or effects were lost.

        This applies to every exception. The owner restores memory from the store, or stops the process.
        """
        self.failure = error
        self._waiting.clear()
        self._uncommitted.clear()
        self._waiting_weight = 0
        self._postponed.end(is_done=False)
        self._released = self._submitted  # nobody waits for turns that are dropped
        if not self._is_committing:
            self._wake()
        if isinstance(error, OwnershipLost | StoreUnavailable):
            log.warning("commit.failed", error=str(error))
        elif isinstance(error, StorageError):
            full = isinstance(error, StorageFull)
            log.error("commit.failed", error=str(error), disk_full=full)
        else:
            log.error("commit.failed", error=repr(error), exc_info=error)
        self._failed(error)
