"""The ownership of a store that several processes share: waits for it, keeps it, and says when it is lost.

The owner increments a heartbeat in the store. A standby takes over at once if the owner's connection to the database
has ended, and otherwise when the heartbeat has not changed for the lease time. Each process measures with its own
clock, and no two clocks are compared. Commits need no clock: every commit checks the ownership. The lease protects
answers that need no commit: an owner releases an answer only if the store has confirmed its ownership within the lease
time.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from storage.contract import OwnershipLost, StorageError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.contract import Lease, SharedStore

T = TypeVar("T")

log = structlog.get_logger("peeklock.ownership")

POLL_S = 0.2
"""How often a standby looks at the lease. A planned hand-over takes no longer than this and the loading."""
HEARTBEATS_PER_LEASE = 5
RETRY_S = 0.2
"""How soon a heartbeat that failed is sent again."""
ANSWER_S = 2.0
"""How long an owner waits for the answer to a heartbeat if it was stopped for the lease time and has not asked yet.
Without an answer it steps down. A hand-over waits no longer, either."""


class OwnershipObserver(Protocol):
    """Called about changes, on the event loop."""

    def waits_for_owner(self, owner: str) -> None:
        """Another process owns the store."""

    def waits_for_store(self, error: StoreUnavailable) -> None:
        """The database cannot be asked who owns the store."""

    def ownership_ended(self, error: StorageError) -> None:
        """This process may release nothing more."""


class OwnershipLease:
    """Whether this process owns a shared store, and until when that is certain."""

    def __init__(
        self,
        store: SharedStore,
        lease_s: float,
        clock_s: Callable[[], float],
        observer: OwnershipObserver,
    ) -> None:
        self._store = store
        self._lease_s = lease_s
        self._clock_s = clock_s
        self._observer = observer
        self._thread = ThreadPoolExecutor(1, "ownership")
        self._certain_until_s = float("-inf")
        """A standby takes over no earlier than this, because it saw the last heartbeat after it was sent."""
        self._beating: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        """Somebody waits for the answer to a heartbeat."""
        self._waiting: list[asyncio.Future[None]] = []
        self._was_owner = False

    @property
    def is_held(self) -> bool:
        """Whether this process is the owner, as far as it knows."""
        return self._beating is not None

    @property
    def is_certain(self) -> bool:
        """Whether no other process can be the owner now. Cheap: asked for every turn."""
        return self._clock_s() < self._certain_until_s

    async def confirm(self) -> None:
        """Returns as soon as the ownership is certain, and asks the store if it has to. Raises `OwnershipLost`."""
        while self._beating is not None and not self.is_certain:
            answered = asyncio.get_running_loop().create_future()
            self._waiting.append(answered)
            self._asked.set()
            await answered
        if self._beating is None:
            raise OwnershipLost("another process may own the store")

    # --- becoming the owner ------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Waits until this process owns the store."""
        seen: Lease | None = None
        seen_s = 0.0
        lets_owner_return = False
        if self._was_owner:
            # The store may not know that the ownership has ended. It need not tell the database: the next epoch does.
            with suppress(StorageError):
                await self._call(self._store.release)
        while True:
            try:
                asked_s = self._clock_s()
                if not lets_owner_return and await self._call(self._store.try_acquire):
                    break
                lease = await self._call(self._store.read_lease)
                if seen is None or (seen.epoch, seen.heartbeat) != (lease.epoch, lease.heartbeat):
                    lets_owner_return = lets_owner_return and seen is None
                    seen, seen_s = lease, self._clock_s()
                elif self._clock_s() - seen_s >= self._lease_s:
                    asked_s = self._clock_s()
                    if await self._call(partial(self._store.take_over, lease.heartbeat)):
                        break
                    seen = None
                self._observer.waits_for_owner(lease.owner_text)
            except StoreUnavailable as error:
                self._observer.waits_for_store(error)
                # The database has perhaps ended the owner's connection, too. Unless this process was the owner, the
                # owner has the lease time to connect again, and its clients stay connected.
                seen, lets_owner_return = None, not self._was_owner
            await asyncio.sleep(POLL_S)
        self._begin(asked_s)

    def _begin(self, asked_s: float) -> None:
        self._was_owner = True
        self._certain_until_s = asked_s + self._lease_s
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    # --- staying the owner ---------------------------------------------------------------------

    async def _beat(self) -> None:
        """Sends heartbeats as long as this process is the owner. Any failure ends the ownership: without heartbeats,
        `confirm` would wait for ever."""
        try:
            while True:
                await self._pause(self._lease_s / HEARTBEATS_PER_LEASE)
                await self._send_heartbeat()
        except StorageError as error:
            self.end(error)
        except Exception as error:
            log.exception("heartbeat.broken", error=repr(error))
            self.end(StoreUnavailable(f"this process can send no heartbeats ({error!r})"))

    async def _send_heartbeat(self) -> None:
        """Raises `StorageError` if this process is no longer the owner, or cannot know it."""
        sent_s = self._clock_s()
        remaining_s = self._certain_until_s - sent_s
        if remaining_s <= 0:
            remaining_s = ANSWER_S
        try:
            async with asyncio.timeout(remaining_s):
                await self._call(self._store.heartbeat)
        except TimeoutError:
            text = f"the database has not confirmed it for {self._lease_s:.0f} s, the setting ownership_lease"
            raise StoreUnavailable(text) from None
        except StoreUnavailable as error:
            log.warning("heartbeat.failed", error=str(error))
            await asyncio.sleep(min(RETRY_S, max(0.0, self._certain_until_s - self._clock_s())))
            if not self.is_certain:
                raise
            self._asked.set()
            return
        self._certain_until_s = sent_s + self._lease_s
        self._wake()

    async def _pause(self, seconds: float) -> None:
        """Waits for the next heartbeat, or until somebody needs one."""
        with self._watched_session(), suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        self._asked.clear()

    @contextmanager
    def _watched_session(self) -> Iterator[None]:
        """Asks for a heartbeat as soon as the database ends the session: from then on a standby can be the owner."""
        descriptor = self._store.duplicate_session_socket()
        if descriptor is None:
            yield
            return
        loop = asyncio.get_running_loop()

        def session_ended() -> None:
            loop.remove_reader(descriptor)
            self._asked.set()

        try:
            loop.add_reader(descriptor, session_ended)
            yield
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    # --- the end -----------------------------------------------------------------------------------

    def end(self, error: StorageError) -> None:
        """This process is no longer the owner, or cannot know it. Everything that waits fails, also commits: their
        clients get no answer any more, and the process can own the store again only after them."""
        if self._stop():
            self._store.interrupt()
            self._observer.ownership_ended(error)

    async def release(self) -> None:
        """Lets another process become the owner at once. Everything must be durable and answered. Raises `StorageError`
        if the database does not answer: the others then wait for the lease time."""
        if self._stop():
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._call(self._store.release)
            except TimeoutError:
                self._store.interrupt()
                raise StoreUnavailable("the database does not answer") from None

    def close(self) -> None:
        """Ends the thread, after what it is doing."""
        self._stop()
        self._thread.shutdown(wait=True)

    def _stop(self) -> bool:
        """Returns whether this process was the owner."""
        beating, self._beating = self._beating, None
        self._certain_until_s = float("-inf")
        self._wake()
        if beating is None:
            return False
        beating.cancel()
        return True

    async def _call(self, method: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, method)
