"""Reads bodies from the store, for deliveries and for the control API.

A store that blocks is read in a thread. A failed read is reported, because what depends on it cannot continue. While the
thread reads, what the core requests is collected and then read together: a store reads blocks of messages, and a hundred
receivers, each with its own session, need bodies of the same blocks.
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


TOGETHER_MAX = 4_096
"""How many bodies are read together, if they were requested one after the other."""


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
        self._begun: asyncio.Future[Payloads] | None = None
        """The read of `begin` that has not ended."""
        self._waiting: list[int] = []
        """Ids of the bodies that are read after it."""

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
        self._waiting += payload_ids
        if self._begun is None:
            self._begin_next()

    def _begin_next(self) -> None:
        payload_ids = self._waiting[:TOGETHER_MAX]
        del self._waiting[:TOGETHER_MAX]
        self._begun = self._read_in_thread(payload_ids)
        self._begun.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Drops the reads of `begin`, because their namespaces are replaced. The thread skips those that it has not begun,
        so that the new namespaces are read at once."""
        self._waiting.clear()
        if self._begun is not None:
            self._begun.cancel()

    def _read_in_thread(self, payload_ids: Sequence[int]) -> asyncio.Future[Payloads]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._store.read_payloads, payload_ids)

    def _finish(self, done: asyncio.Future[Payloads]) -> None:
        self._begun = None
        if self._waiting:
            self._begin_next()
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._loaded(done.result())
        else:
            self._failed(error if isinstance(error, StorageError) else StorageError(str(error)))
