"""Reads bodies from the store, for deliveries and for the control API.

A store that blocks is read in a thread. A failed read is reported, because what depends on it cannot continue.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.core.contract.errors import ServerBusy
from storage.contract import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from storage.contract import Store

    Payloads = Mapping[int, tuple[bytes, bytes]]
    """Bodies and annotations by payload id."""


class PayloadReads:
    """Reads the bodies that are only in the store."""

    def __init__(
        self,
        store: Store,
        thread: Executor,
        loaded: Callable[[Payloads], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._thread = thread
        self._loaded = loaded
        self._failed = failed
        self._begun: set[asyncio.Future[Payloads]] = set()
        """Reads of `begin` that have not ended."""

    async def read(self, payload_ids: Sequence[int]) -> Payloads:
        """Returns bodies and annotations. Reports a failure of the store, and raises `ServerBusy`."""
        if not payload_ids:
            return {}
        if not self._store.blocking:
            return self._store.read_payloads(payload_ids)
        try:
            return await self._read_in_thread(payload_ids)
        except StorageError as error:
            self._failed(error)
            raise ServerBusy("The broker's store failed.") from error

    def begin(self, payload_ids: Sequence[int]) -> None:
        """Reads what the core needs for deliveries, and gives it to `loaded`."""
        if not self._store.blocking:
            self._loaded(self._store.read_payloads(payload_ids))
            return
        reading = self._read_in_thread(payload_ids)
        self._begun.add(reading)
        reading.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Drops the reads of `begin`, because their namespaces are replaced. The thread skips those that it has not begun,
        so that the new namespaces are read at once."""
        for reading in tuple(self._begun):
            reading.cancel()

    def _read_in_thread(self, payload_ids: Sequence[int]) -> asyncio.Future[Payloads]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._store.read_payloads, payload_ids)

    def _finish(self, done: asyncio.Future[Payloads]) -> None:
        self._begun.discard(done)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._loaded(done.result())
        else:
            self._failed(error if isinstance(error, StorageError) else StorageError(str(error)))
