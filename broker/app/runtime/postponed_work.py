"""Decides when a store finishes what its commits have postponed: when nothing was committed for a moment, or on request.

It is done between two commits. Nothing can be lost by it: what was committed is durable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")

IDLE_S = 0.02
"""If nothing is committed for so long, the store finishes what it has postponed."""


class PostponedWork:
    """What the commits to one store have postponed."""

    def __init__(
        self, store: Store, is_idle: Callable[[], bool], begin: Callable[[], None]
    ) -> None:
        self._store = store
        self._is_idle = is_idle
        """Whether nothing waits for the store."""
        self._begin = begin
        """Called when the work is due. The owner calls `finish` between two commits."""
        self.is_due = False
        """Whether the work is to be done before the next commit."""
        self._commit_count = 0
        self._timer: asyncio.TimerHandle | None = None
        """Waits until nothing is committed any more."""
        self._asking: list[asyncio.Future[bool]] = []
        """They wait until the work is done."""

    def note_commit(self) -> None:
        """A commit begins. When no other has followed for a moment, the work is due."""
        self._commit_count += 1
        if self._timer is None and self._store.postpones:
            self._wait_for_idleness()

    def cancel(self) -> None:
        """Waits no longer for a moment without commits, until the next commit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def request(self) -> bool:
        """Makes the work due, and waits until it is done. Returns False if that or a commit before it fails."""
        if not self._store.postpones:
            return True
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        self.is_due = True
        self._begin()
        return await asked

    async def finish(self, thread: ThreadPoolExecutor | None) -> None:
        """Does the work, in the thread that commits."""
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
        """The work is done, or will not be done because a commit has failed."""
        self.is_due = False
        asking, self._asking = self._asking, []
        for future in asking:
            if not future.done():
                future.set_result(is_done)

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
