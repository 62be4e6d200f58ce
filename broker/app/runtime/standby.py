"""What a process does while it must not serve: it waits for its database, or until it owns the store.

If no other process can own the store, it does not wait. `ownership_lease.py` decides who owns a shared store. This module
says why the broker does not serve, in the log and to `/health`, and loads the content of the store when it may.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.app.runtime.ownership_lease import OwnershipLease
from config.model.storage_urls import mask_password
from storage.contract import OwnershipLost, StorageError, StoreUnavailable, as_shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.app.runtime.clock import Clock
    from config.settings.settings import Settings
    from storage.contract import Store

log = structlog.get_logger("peeklock.standby")

POLL_S = 0.5
"""How often a database that cannot be reached is tried at start."""


class NotServing(NamedTuple):
    """Why the broker does not serve."""

    reason: str
    """A word, for programs."""
    text: str
    """A sentence, for people."""


STARTING = NotServing("starting", "The broker is starting.")
RESTORING = NotServing("restoring", "The broker starts again from what it has stored.")
STOPPING = NotServing("stopping", "The broker is stopping.")
STANDBY = "standby"
UNAVAILABLE = "storage_unavailable"


class Standby:
    """The time in which this process does not serve, because of its store."""

    def __init__(
        self, store: Store, settings: Settings, clock: Clock, ended: Callable[[StorageError], None]
    ) -> None:
        self._store = store
        self._storage = mask_password(settings.storage)
        self._storage_wait_s = settings.storage_wait_ms / 1000
        self._ended = ended
        """Called if the ownership ends while the broker serves."""
        self.not_serving: NotServing | None = STARTING
        """None while this process owns the store and serves."""
        self.ownership: OwnershipLease | None = None
        """None if no other process can own the store."""
        if (shared := as_shared(store)) is not None:
            lease_s = settings.ownership_lease_ms / 1000
            self.ownership = OwnershipLease(shared, lease_s, clock.uptime_s, self)

    @property
    def is_certain(self) -> bool:
        """Whether no other process can own the store now."""
        return self.ownership is None or self.ownership.is_certain

    async def open(self, open_store: Callable[[], Awaitable[None]]) -> None:
        """Opens the store. Raises `StoreUnavailable` if that fails for longer than the settings allow."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._storage_wait_s
        while True:
            try:
                await open_store()
                return
            except StoreUnavailable as error:
                if loop.time() >= ends_s:
                    waited = f"tried for {self._storage_wait_s:.0f} s, the setting storage_wait"
                    raise StoreUnavailable(f"{error} ({waited})") from error
                self.waits_for_store(error)
                await asyncio.sleep(POLL_S)

    async def load(self, load: Callable[[], Awaitable[None]]) -> None:
        """Calls `load` as soon as this process owns the store, and again if it loses the store meanwhile."""
        ownership = self.ownership
        if ownership is None:
            await load()
            return
        while True:
            if not ownership.is_held:
                await ownership.acquire()
                log.info("owner", storage=self._storage)
            try:
                await self._load_as_owner(load, ownership)
                return
            except (OwnershipLost, StoreUnavailable) as error:
                log.warning("ownership.lost", reason=str(error))
                ownership.end(error)
            await asyncio.sleep(POLL_S)

    @staticmethod
    async def _load_as_owner(
        load: Callable[[], Awaitable[None]], ownership: OwnershipLease
    ) -> None:
        """Load, and raise `OwnershipLost` if another process has become the owner meanwhile. A load that fails for another
        reason may have failed because the new owner changed the store while it was read, so the ownership is checked
        first."""
        try:
            await load()
        except (OwnershipLost, StoreUnavailable):
            raise
        except Exception:
            await ownership.confirm()
            raise
        await ownership.confirm()

    def store_failed(self, error: Exception) -> bool:
        """Ends the ownership because of an error of the store. Returns whether that is enough."""
        if self.ownership is None or not isinstance(error, OwnershipLost | StoreUnavailable):
            return False
        self.ownership.end(error)
        return True

    async def hand_over(self) -> None:
        """Lets another process own the store at once."""
        if self.ownership is not None:
            try:
                await self.ownership.release()
            except StorageError as error:
                log.warning("ownership.not_released", error=str(error))

    def close(self) -> None:
        """Ends the thread of the ownership."""
        if self.ownership is not None:
            self.ownership.close()

    # --- called by the ownership ---------------------------------------------------------------

    def waits_for_owner(self, owner: str) -> None:
        """See `OwnershipObserver`."""
        owner = owner or "Another process"
        text = f"{owner} owns the store. This process takes over when that one ends."
        if self._note(NotServing(STANDBY, text)):
            log.info("standby", owner=owner, storage=self._storage)

    def waits_for_store(self, error: StoreUnavailable) -> None:
        """See `OwnershipObserver`."""
        if self._note(NotServing(UNAVAILABLE, str(error))):
            log.warning("storage.unavailable", error=str(error), storage=self._storage)

    def _note(self, not_serving: NotServing) -> bool:
        """Returns whether the reason is another one than before."""
        is_new = self.not_serving != not_serving
        self.not_serving = not_serving
        return is_new

    def ownership_ended(self, error: StorageError) -> None:
        """See `OwnershipObserver`. While the store is being loaded, `load` handles it."""
        if self.not_serving is None:
            log.warning("ownership.lost", reason=str(error))
            self.not_serving = NotServing(STANDBY, str(error))
            self._ended(error)
