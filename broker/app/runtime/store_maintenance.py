"""Runs the maintenance of a store in a thread of its own, beside commits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from storage.contract import Store

log = structlog.get_logger("peeklock.commit")


class StoreMaintenance:
    """The maintenance of one store. One run at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "maintenance")
        self._is_running = False

    def start_if_due(self) -> None:
        """Starts the maintenance, unless it is running. Called after each commit."""
        if self._store.maintenance_is_due and not self._is_running:
            self._is_running = True
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._store.maintain)
            running.add_done_callback(self._ended)

    def close(self) -> None:
        """Ends the thread, after what it is doing."""
        self._thread.shutdown(wait=True)

    def _ended(self, done: asyncio.Future[None]) -> None:
        self._is_running = False
        if not done.cancelled() and (error := done.exception()) is not None:
            # Nothing is lost. The store can do without for a while, and the next commit starts it again.
            log.error("maintenance.failed", error=repr(error), exc_info=error)
