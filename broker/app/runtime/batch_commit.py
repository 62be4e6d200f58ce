"""Commits one batch in one of three ways, and measures how long that takes.

- On the event loop: small batches, while the disk is quick (`inline_commit_policy.py`). The event loop waits for the disk.
  If the kernel writes in the background, the event loop prepares the answers before it waits.
- In the background: the event loop begins the commit and goes on, and a thread of the store writes it, which needs no
  interpreter lock. For larger batches and slow disks.
- In the commit thread: what the store cannot begin in the background, because there is more to do than to write.

The committer makes sure that one batch is committed at a time.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from broker.app.runtime.inline_commit_policy import InlineCommitPolicy, is_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.turn import Turn
    from storage.contract import BackgroundCommits, Store


class CommitWay(Enum):
    """The docstring of this module says which batches are committed in which way."""

    INLINE = "on the event loop"
    BACKGROUND = "in the background"
    THREAD = "in the commit thread"


class CommitObserver(Protocol):
    """Called after each commit."""

    def __call__(self, seconds: float, records: int, way: CommitWay) -> None: ...


class Preparation(Protocol):
    """Prepares the answers to a batch while the disk writes it."""

    def prepare(self, turn: Turn) -> None:
        """Gives all effects of the turn to their peers and empties the list, or does nothing. No byte leaves."""

    def drop_prepared(self) -> None:
        """The commit has failed: what was prepared never leaves."""


class BatchCommit:
    """The ways to commit a batch to one store."""

    def __init__(
        self,
        store: Store,
        ended: Callable[[], None],
        observe: CommitObserver,
        stopwatch_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._ended = ended
        """Called when the thread of the store has written what `begin` has begun. The owner calls `end`."""
        self._observe = observe
        self._stopwatch_s = stopwatch_s
        self.thread = ThreadPoolExecutor(1, "commit") if store.blocking else None
        """The commit thread. None if commits take no time."""
        self._policy = InlineCommitPolicy(stopwatch_s)
        self._began_s = 0.0
        self._prepared_s = 0.0
        """How long the answers to the last inline commit were prepared. A slow peer does not make the disk slow."""
        self._watching: tuple[asyncio.AbstractEventLoop, int] | None = None
        """The event loop, and the descriptor of background commits that it watches."""

    def may_be_inline(self, batch: Turn) -> bool:
        """Returns whether the event loop should commit a batch itself: the batch writes nothing, the store is in memory, or
        the store commits so little so quickly that the event loop can wait for it."""
        if not batch.records or self.thread is None:
            return True
        return self._store.commits_inline and self._policy.allows(batch)

    def commit_inline(self, batch: Turn, preparation: Preparation | None = None) -> float:
        """Commits on the event loop. If the kernel writes in the background, the answers are prepared meanwhile. Returns
        how many seconds that took."""
        if not batch.records:
            return 0.0
        self._prepared_s = 0.0
        began_s = self._stopwatch_s()
        background = self._store.background_commits
        if (
            preparation is None
            or background is None
            or background.needs_thread
            or not background.begin(batch.records, caller_waits=True)
        ):
            self._store.commit(batch.records)
        else:
            self._end_prepared(batch, background, preparation)
        return self._stopwatch_s() - began_s

    def _end_prepared(
        self, batch: Turn, background: BackgroundCommits, preparation: Preparation
    ) -> None:
        """Prepares the answers and examines the disk, if that is due, and ends the commit. If something fails, nothing of
        the answers leaves: what is written to deleted files is lost."""
        began_s = self._stopwatch_s()
        try:
            try:
                preparation.prepare(batch)
                self._prepared_s = self._stopwatch_s() - began_s
                if background.examination_is_due:
                    background.examine()
            finally:
                is_durable = background.end()
            if not is_durable:
                self._store.commit(batch.records)
        except BaseException:
            preparation.drop_prepared()
            raise

    def note_inline(self, batch: Turn, seconds: float) -> None:
        """Measures an inline commit. Called after the answers have left."""
        if not batch.records:
            return
        if self.thread is not None:
            self._policy.note(seconds - self._prepared_s, inline=True)
        self._observe(seconds, len(batch.records), CommitWay.INLINE)

    def begin(self, batch: Turn) -> bool:
        """Begins a commit in the background. Returns False if the store cannot do that with this batch."""
        background = self._store.background_commits
        if background is None:
            return False
        if background.examination_is_due:
            return False  # the event loop should not wait for that, so the thread does both
        if self._watching is None:
            loop = asyncio.get_running_loop()
            loop.add_reader(background.descriptor, self._ended)
            self._watching = loop, background.descriptor
        self._began_s = self._stopwatch_s()
        return background.begin(batch.records)

    def end(self, batch: Turn) -> bool:
        """Ends a commit that was begun. Returns False if the thread has to commit it. Raises the error of the store."""
        background = self._store.background_commits
        assert background is not None
        is_durable = background.end()
        if is_durable:
            self._note_beside(batch, CommitWay.BACKGROUND)
        return is_durable

    async def commit_in_thread(self, batch: Turn) -> None:
        """Commits in the thread. The event loop continues, and more turns may wait."""
        self._began_s = self._stopwatch_s()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.thread, self._store.commit, batch.records)
        self._note_beside(batch, CommitWay.THREAD)

    def close(self) -> None:
        """Ends the thread, after what it is doing."""
        if self._watching is not None:
            loop, descriptor = self._watching
            loop.remove_reader(descriptor)
            self._watching = None
        if self.thread is not None:
            self.thread.shutdown(wait=True)

    def _note_beside(self, batch: Turn, way: CommitWay) -> None:
        seconds = self._stopwatch_s() - self._began_s
        if is_small(batch):
            self._policy.note(seconds, inline=False)
        self._observe(seconds, len(batch.records), way)
