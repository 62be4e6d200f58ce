"""Work of a store that no client waits for: what its commits have postponed, and its maintenance.

Postponed work is done between two commits, when nothing was committed for a moment or somebody asks for it. Maintenance
runs beside commits, in a thread of its own. Neither can lose anything: what was committed is durable.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")

IDLE_S = 0.02
"""If nothing is committed for so long, the store finishes what it has postponed."""


class StoreUpkeep:
    """Decides when a store finishes what it has postponed, and runs its maintenance."""

    def __init__(
        self, store: Store, is_idle: Callable[[], bool], begin: Callable[[], None]
    ) -> None:
        self._store = store
        self._is_idle = is_idle
        """Whether nothing waits for the store."""
        self._begin = begin
        """Called when the postponed work is due. The owner calls `finish` between two commits."""
        self.is_due = False
        """Whether the store has to finish what it has postponed before the next commit."""
        self._commit_count = 0
        self._timer: asyncio.TimerHandle | None = None
        """Waits until nothing is committed any more."""
        self._asking: list[asyncio.Future[bool]] = []
        """They wait until the postponed work is done."""
        self._thread = ThreadPoolExecutor(1, "maintenance")
        self._is_maintaining = False

    def note_commit(self) -> None:
        """A commit begins. When no other has followed for a moment, the store finishes what it has postponed."""
        self._commit_count += 1
        if self._timer is None and self._store.postpones:
            self._wait_for_idleness()

    def cancel(self) -> None:
        """Waits no longer for a moment without commits, until the next commit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def request(self) -> asyncio.Future[bool]:
        """Makes the postponed work due. The result is True when it is done, and False if it fails."""
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        self.is_due = True
        self._begin()
        return asked

    async def finish(self, thread: ThreadPoolExecutor | None) -> None:
        """Finishes what the store has postponed, in the thread that commits."""
        loop = asyncio.get_running_loop()
        is_done = True
        try:
            await loop.run_in_executor(thread, self._store.commit, ())
        except Exception as error:  # whatever it is, nothing is lost
            # If the store does not work any more, the next commit fails.
            log.exception("maintenance.failed", error=repr(error))
            is_done = False
        # Also for those that have asked meanwhile: nothing else was committed since this began.
        self.end(is_done=is_done)

    def end(self, *, is_done: bool) -> None:
        """The postponed work is done, or will not be done because a commit has failed."""
        self.is_due = False
        asking, self._asking = self._asking, []
        for future in asking:
            if not future.done():
                future.set_result(is_done)

    def maintain_if_due(self) -> None:
        """Starts the maintenance of the store, unless it is running."""
        if self._store.maintenance_is_due and not self._is_maintaining:
            self._is_maintaining = True
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._store.maintain)
            running.add_done_callback(self._maintained)

    def close(self) -> None:
        """Ends the thread, after what it is doing."""
        self.cancel()
        self._thread.shutdown(wait=True)

    def _wait_for_idleness(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_S, self._finish_if_idle, self._commit_count)

    def _finish_if_idle(self, commit_count: int) -> None:
        self._timer = None
        if self._is_idle() and commit_count == self._commit_count:
            self.is_due = True
            self._begin()
        else:
            self._wait_for_idleness()

    def _maintained(self, done: asyncio.Future[None]) -> None:
        self._is_maintaining = False
        if not done.cancelled() and (error := done.exception()) is not None:
            # The store can do without for a while, and the next commit starts it again.
            log.error("maintenance.failed", error=repr(error), exc_info=error)
