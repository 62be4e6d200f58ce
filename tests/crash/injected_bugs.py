"""Bugs that are built into the broker to show that a crash run finds them.

`python -m tests.crash.run --inject-bug NAME` starts a broker with one of them. Each is a bug that a
developer could write between a turn and the disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker.app.runtime.committer import Committer
from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
)
from broker.core.contract.turn import Turn
from storage.postgres.store import PostgresStore
from storage.sqlite import store
from storage.sqlite.background_commits import SqliteBackgroundCommits
from storage.sqlite.commit_journal import CommitJournal
from storage.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from broker.core.contract.records import Record

    Commit = Callable[[Sequence[Record]], None]

VARIABLE = "CRASH_INJECTED_BUG"


def answer_early() -> None:
    """Effects are released before their records are written."""
    submit = Committer.submit

    def submit_and_release(self: Committer, turn: Turn) -> None:
        early = Turn()
        early.effects, turn.effects = turn.effects, []
        self._release(early)
        submit(self, turn)

    Committer.submit = submit_and_release  # type: ignore[method-assign]


def commit_in_parts() -> None:
    """Every row and every record is its own transaction."""

    def commit_each(commit: Commit, records: Sequence[Record]) -> None:
        for record in records:
            for part in parts_of(record):
                commit([part])

    _replace_commit(commit_each)


def parts_of(record: Record) -> Iterator[Record]:
    if isinstance(record, MessagesStored):
        yield from (MessagesStored([], [payload]) for payload in record.payloads)
        yield from (MessagesStored([row], []) for row in record.rows)
    elif isinstance(record, MessagesUpdated):
        yield from (MessagesUpdated([row]) for row in record.rows)
    else:
        yield record


def forget_message_ids() -> None:
    """Duplicate detection is kept in memory only."""
    _drop(lambda record: isinstance(record, MessageIdsSeen))


def forget_deletions() -> None:
    """Now and then something that is gone stays in the file."""
    deletions = 0

    def is_chosen(record: Record) -> bool:
        nonlocal deletions
        deletions += isinstance(record, MessagesDeleted | EntityDeleted)
        return isinstance(record, MessagesDeleted | EntityDeleted) and deletions % 20 == 0

    _drop(is_chosen)


def _drop(is_chosen: Callable[[Record], bool]) -> None:
    _replace_commit(
        lambda commit, records: commit([record for record in records if not is_chosen(record)])
    )


def ignore_failures() -> None:
    """A commit that fails is taken for one that succeeded."""

    def commit_or_not(commit: Commit, records: Sequence[Record]) -> None:
        with suppress(Exception):
            commit(records)

    _replace_commit(commit_or_not)


def _replace_commit(replacement: Callable[[Commit, Sequence[Record]], None]) -> None:
    """Calls a function in place of the commit of each store, with the true commit. Nothing is committed in the
    background."""
    setattr(SqliteBackgroundCommits, "begin", lambda *_, **__: False)  # noqa: B010 -- as below
    for kind in (SqliteStore, PostgresStore):

        def commit(self: Any, records: Sequence[Record], true_commit: Any = kind.commit) -> None:
            replacement(lambda part: true_commit(self, part), records)

        setattr(kind, "commit", commit)  # noqa: B010 -- the type of a method differs


def write_without_syncing() -> None:
    """Answers leave when the system has the bytes, whether the disk has them or not."""
    pragmas = [
        "synchronous = OFF" if pragma.startswith("synchronous") else pragma
        for pragma in store._PRAGMAS
    ]
    setattr(store, "_PRAGMAS", tuple(pragmas))  # noqa: B010 -- its type is that of a fixed length
    setattr(CommitJournal, "_write_synced", _write_to_journal)  # noqa: B010 -- the type of a method differs
    setattr(SqliteBackgroundCommits, "begin", lambda *_, **__: False)  # noqa: B010 -- the same


def _write_to_journal(self: CommitJournal, data: memoryview, position: int) -> None:
    os.pwrite(self._file, data, position)


INJECTED_BUGS: dict[str, Callable[[], None]] = {
    "answer-early": answer_early,
    "commit-in-parts": commit_in_parts,
    "forget-message-ids": forget_message_ids,
    "forget-deletions": forget_deletions,
    "ignore-failures": ignore_failures,
    "write-without-syncing": write_without_syncing,
}
