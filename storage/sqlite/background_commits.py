"""Commits to the journal that a thread of C writes and syncs, while the event loop goes on.

The store decides which commits these are, and what a failure means (`store.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from storage.native import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.records import Record
    from storage.native.compiled import SyncedWriter


class SqliteBackgroundCommits:
    """Implements `BackgroundCommits`."""

    def __init__(
        self,
        begin: Callable[[Sequence[Record], SyncedWriter], bool],
        end: Callable[[Sequence[Record], int], bool],
    ) -> None:
        self._begin = begin
        """Begins to write records with the writer. Returns False if that is not possible."""
        self._end = end
        """Called with the records and the error number of the writer, which is 0 if they are durable. Returns what
        `BackgroundCommits.end` returns."""
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """See `BackgroundCommits.descriptor`."""
        self._writer = compiled.SyncedWriter(self.descriptor)
        self._records: Sequence[Record] = ()

    def begin(self, records: Sequence[Record]) -> bool:
        """See `BackgroundCommits.begin`."""
        is_begun = self._begin(records, self._writer)
        if is_begun:
            self._records = records
        return is_begun

    def end(self) -> bool:
        """See `BackgroundCommits.end`."""
        records, self._records = self._records, ()
        return self._end(records, self._writer.end())

    def close(self) -> None:
        """Ends the thread, after what it is writing."""
        self._writer.close()
        os.close(self.descriptor)
