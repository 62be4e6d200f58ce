"""Group commit: effects wait until the records they rest on are durable.

While one commit runs, the next turns wait and then go into the store together; there is no timer and
no await per message. A batch has a limit, so that nobody waits long for the commit before his own.
Batches are committed and released strictly in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.turn import Turn
from storage.contract import StorageError, StorageFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")

BATCH_WEIGHT = 4_096
"""A batch takes turns until it has so many rows and effects: some twenty milliseconds of commit."""
LOADED_WEIGHT = 1_024
"""With more than this on its way into the store, what can wait should not add to it: see `is_loaded`."""


class Committer:
    """Hands turns to the store, then to `release`, which lets their effects go."""

    def __init__(
        self,
        store: Store,
        release: Callable[[Turn], None],
        failed: Callable[[Exception], None],
        observe: Callable[[float, int], None],
    ) -> None:
        self._store = store
        self._release = release
        self._failed = failed
        self._observe = observe
        self._waiting: deque[tuple[Turn, int]] = deque()
        """Turns and their weights."""
        self._waiting_weight = 0
        self._running_weight = 0
        """Of the batch that is being committed."""
        self._submitted = 0
        self._released = 0
        """Turns submitted and turns released so far; both count from the start of the process."""
        self.failure: Exception | None = None
        """Why a commit failed: nothing is released any more until `restart`."""
        self._running: asyncio.Task[None] | None = None
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until so many turns are released, the fewest first."""
        self._thread = ThreadPoolExecutor(1, "commit") if store.blocking else None

    def submit(self, turn: Turn) -> None:
        """Take a turn; its effects leave once it and everything before it is durable."""
        self._submitted += 1
        if self.failure is not None:
            return  # it rests on records that were never stored
        if self._running is None and (self._thread is None or not turn.records):
            self._commit_at_once(turn)  # nothing waits that it could overtake
            return
        try:
            weight = turn.weight
            self._waiting.append((turn, weight))
        except Exception as error:  # noqa: BLE001 -- without it nothing later may be stored
            self._fail(error)
            return
        self._waiting_weight += weight
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._drain())

    @property
    def idle(self) -> bool:
        """True when nothing waits for the store."""
        return self._running is None

    @property
    def is_loaded(self) -> bool:
        """True while so much is on its way into the store that heavy work should not add to it: it
        takes memory, and the commits of everybody else come after it."""
        return self._running_weight + self._waiting_weight > LOADED_WEIGHT

    @property
    def submitted(self) -> int:
        """How many turns were submitted. A turn is the last one of this count at that moment."""
        return self._submitted

    def has_released(self, turn_count: int) -> bool:
        """Whether the first `turn_count` turns are durable and released."""
        return self._released >= turn_count

    def restart(self) -> None:
        """Take turns again after a failure: memory holds what the store holds."""
        self.failure = None

    async def settle(self) -> None:
        """Wait until everything submitted so far is durable and released, and no longer: under
        load there is always something that came later."""
        if self._running is not None:
            settled = asyncio.get_running_loop().create_future()
            self._settling.append((self._submitted, settled))
            await settled

    def close(self) -> None:
        """End the commit thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _commit_at_once(self, turn: Turn) -> None:
        try:
            if turn.records:
                started = time.perf_counter()
                self._store.commit(turn.records)
                self._observe(time.perf_counter() - started, len(turn.records))
            self._release(turn)
        except Exception as error:  # noqa: BLE001 -- each is told to the owner
            self._fail(error)
        self._released = self._submitted

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, turn_count = self._next_batch()
                if batch.records:
                    started = time.perf_counter()
                    await loop.run_in_executor(self._thread, self._store.commit, batch.records)
                    self._observe(time.perf_counter() - started, len(batch.records))
                self._release(batch)
                self._released += turn_count
                self._running_weight = 0
                self._wake()
        except Exception as error:  # noqa: BLE001 -- each is told to the owner
            self._fail(error)
        finally:
            self._running = None
            self._running_weight = 0
            self._released = self._submitted
            self._wake()

    def _next_batch(self) -> tuple[Turn, int]:
        """As many of the waiting turns as a batch takes, and how many they are."""
        batch = Turn()
        weight = turn_count = 0
        while self._waiting and (not turn_count or weight + self._waiting[0][1] <= BATCH_WEIGHT):
            turn, turn_weight = self._waiting.popleft()
            batch.absorb(turn)
            weight += turn_weight
            turn_count += 1
        self._waiting_weight -= weight
        self._running_weight = weight
        return batch, turn_count

    def _wake(self) -> None:
        """Those whose turns are released go on."""
        while self._settling and self._settling[0][0] <= self._released:
            _, future = self._settling.pop(0)
            if not future.done():
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        """Memory is ahead of the store, or answers went astray, so nothing more may be answered.

        That holds for every exception, expected or not. The owner restores memory from the store
        or stops the process.
        """
        self.failure = error
        self._waiting.clear()
        self._waiting_weight = 0
        if isinstance(error, StorageError):
            full = isinstance(error, StorageFull)
            log.error("commit.failed", error=str(error), disk_full=full)
        else:
            log.error("commit.failed", error=repr(error), exc_info=error)
        self._failed(error)
