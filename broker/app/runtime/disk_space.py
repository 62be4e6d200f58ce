"""Asks the store how much it can take, and tells the namespaces.

The store is asked in a thread of its own, one question at a time: a disk that does not answer must not stop the event loop.
While the store has no room for messages, all sends are refused. Clients may retry them, and can still receive and
complete messages, which frees space.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.storage_room import FULL_DISK_FIX, StorageRoom
from config.model.storage_urls import mask_password

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.turn import Turn
    from storage.contract import Store

log = structlog.get_logger("peeklock.core")


class DiskSpace:
    """Whether the store has room, as the namespaces know it."""

    def __init__(self, store: Store, url: str, has_room_again: Callable[[], None]) -> None:
        self._store = store
        self._url = mask_password(url)
        self._has_room_again = has_room_again
        """Called when sends are accepted again."""
        self._thread = ThreadPoolExecutor(1, "disk-space") if store.blocking else None
        self._measuring: asyncio.Task[None] | None = None
        self.room = StorageRoom()
        """What the namespaces may accept. They share it."""

    def check(self) -> None:
        """Begins to measure the room, unless that is being done. Then refuses or accepts sends if it has changed."""
        if self._measuring is None:
            self._measuring = asyncio.get_running_loop().create_task(self._measure())
            self._measuring.add_done_callback(self._measured)

    async def begin_again(self) -> None:
        """Measures the room for namespaces that were restored from the store. What was measured before that is too old."""
        await self.finish()
        self.room.forget_unstored()
        await self._measure()

    def stored(self, turn: Turn) -> None:
        """A turn is stored. Says what room is left now."""
        self.room.stored(turn)
        self.room.set_measured(*self._store.room)

    async def finish(self) -> None:
        """Waits until nothing is being measured, however long the disk takes."""
        if self._measuring is not None:
            await asyncio.wait([self._measuring])

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    async def _measure(self) -> None:
        if self._thread is None:
            is_full = not self._store.measure_room()
        else:
            loop = asyncio.get_running_loop()
            is_full = not await loop.run_in_executor(self._thread, self._store.measure_room)
        self.room.set_measured(*self._store.room)
        if is_full == self.room.is_full:
            return
        self.room.set_full(is_full=is_full)
        if is_full:
            log.error("storage.full", storage=self._url, fix=FULL_DISK_FIX)
        else:
            log.info("storage.has_room", storage=self._url)
            self._has_room_again()

    def _measured(self, done: asyncio.Task[None]) -> None:
        self._measuring = None
        if not done.cancelled() and (error := done.exception()) is not None:
            # The next measurement may succeed.
            log.error("storage.not_measured", error=repr(error), exc_info=error)
