"""Mistakes built into the broker on purpose, to show that the simulation finds them.

`python -m tests.simulation.run --sabotage NAME`: each is a mistake that somebody could make.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from broker.app.runtime.committer import Committer
from broker.core.contract.commands import Detach
from broker.core.contract.records import MessagesDeleted, MessagesStored
from broker.core.contract.turn import Turn
from broker.core.namespace import Namespace
from tests.simulation.store import SimulatedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from broker.core.contract.commands import Command
    from broker.core.contract.records import Record

RECORDS_BETWEEN = 25


@contextmanager
def answer_early() -> Iterator[None]:
    """Answers leave before what they promise is written."""
    submit = Committer.submit

    def submit_and_release(self: Committer, turn: Turn) -> None:
        early = Turn()
        early.effects, turn.effects = turn.effects, []
        self._release(early)
        submit(self, turn)

    with mock.patch.object(Committer, "submit", submit_and_release):
        yield


@contextmanager
def keep_locks() -> Iterator[None]:
    """A broken connection leaves its locks behind, as one that was closed in order."""
    apply = Namespace.apply

    def apply_as_closed(self: Namespace, command: Command, now_ms: int, turn: Turn) -> None:
        if isinstance(command, Detach):
            command = Detach(command.peers)
        apply(self, command, now_ms, turn)

    with mock.patch.object(Namespace, "apply", apply_as_closed):
        yield


@contextmanager
def drop_records() -> Iterator[None]:
    """Now and then the store forgets a record of a batch."""
    commit = SimulatedStore.commit
    seen = 0

    def commit_others(self: SimulatedStore, records: Sequence[Record]) -> None:
        nonlocal seen
        kept = []
        for record in records:
            if isinstance(record, MessagesStored | MessagesDeleted):
                seen += 1
                if seen % RECORDS_BETWEEN == 0:
                    continue
            kept.append(record)
        commit(self, kept)

    with mock.patch.object(SimulatedStore, "commit", commit_others):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "answer-early": answer_early,
    "keep-locks": keep_locks,
    "drop-records": drop_records,
}
