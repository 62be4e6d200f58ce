"""A SQLite store whose commits are written in the background, as far as that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record


class BackgroundStore(SqliteStore):
    """Commits as a busy committer does: in the background, or if the store refuses that, as always."""

    def commit(self, records: Sequence[Record]) -> None:
        background = self.background_commits
        is_begun = background is not None and background.begin(records)
        if not (is_begun and background is not None and background.end()):
            super().commit(records)
