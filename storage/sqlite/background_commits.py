"""Commits to the journal that a thread of C writes and syncs while the event loop goes on, or the kernel before it waits.

The store decides which commits these are, and what a failure means (`store.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from storage.native import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record
    from storage.native.compiled import SyncedWriter
    from storage.sqlite.commit_journal import CommitJournal


class JournaledStore(Protocol):
    """The store whose commits these are."""

    @property
    def examination_is_due(self) -> bool:
        """See `BackgroundCommits.examination_is_due`."""

    def examine(self) -> None:
        """See `BackgroundCommits.examine`."""

    def begin_commit(
        self, records: Sequence[Record], synced_writer: SyncedWriter, *, caller_waits: bool
    ) -> bool:
        """Begins to write records with the writer. Returns False if that is not possible."""

    def end_commit(self, records: Sequence[Record], error_number: int) -> bool:
        """The writer has ended, with this error or 0. Returns what `BackgroundCommits.end` returns."""


class SqliteBackgroundCommits:
    """Implements `BackgroundCommits`."""

    def __init__(self, store: JournaledStore, journal: CommitJournal) -> None:
        self._store = store
        self._journal = journal
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """See `BackgroundCommits.descriptor`."""
        self._writer = compiled.SyncedWriter(self.descriptor)
        self._records: Sequence[Record] = ()

    @property
    def needs_thread(self) -> bool:
        """See `BackgroundCommits.needs_thread`."""
        return not (self._journal.is_direct and self._writer.uses_kernel)

    def begin(self, records: Sequence[Record], *, caller_waits: bool = False) -> bool:
        """See `BackgroundCommits.begin`."""
        is_begun = self._store.begin_commit(records, self._writer, caller_waits=caller_waits)
        if is_begun:
            self._records = records
        return is_begun

    def end(self) -> bool:
        """See `BackgroundCommits.end`."""
        records, self._records = self._records, ()
        return self._store.end_commit(records, self._writer.end())

    @property
    def examination_is_due(self) -> bool:
        """See `BackgroundCommits.examination_is_due`."""
        return self._store.examination_is_due

    def examine(self) -> None:
        """See `BackgroundCommits.examine`."""
        self._store.examine()

    def close(self) -> None:
        """Waits for what is being written, and ends the thread."""
        self._writer.close()
        os.close(self.descriptor)
