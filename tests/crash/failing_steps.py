"""A broker in which one step of a commit fails, as with too little memory or a failing disk.

A crash run starts the broker through this module. `CRASH_STEP` names the step, the error, the
number of calls before it, and whether it fails permanently. With `CRASH_REWRITES` nearly every commit
writes old blocks again, which usually happens only in large stores. Otherwise this is the real broker.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from broker.__main__ import main
from broker.app.runtime.batch_commit import BatchCommit
from broker.app.runtime.committer import Committer
from broker.app.runtime.turn_loop import TurnLoop
from broker.core.contract.turn import Turn
from broker.core.namespace import Namespace
from storage.blocks import compaction
from storage.blocks.block_batch import BlockBatch
from storage.blocks.block_index import BlockIndex
from storage.blocks.locations import Locations
from storage.blocks.stored_blocks import StoredBlocks
from storage.postgres.batch import PostgresBatch
from storage.postgres.block_source import PostgresBlockSource
from storage.postgres.retrying_session import RetryingSession
from storage.postgres.session import Session
from storage.postgres.store import PostgresStore
from storage.record_batch import RecordBatch
from storage.sqlite.background_commits import SqliteBackgroundCommits
from storage.sqlite.batch import SqlBatch
from storage.sqlite.block_source import SqliteBlockSource
from storage.sqlite.commit_journal import CommitJournal
from storage.sqlite.disk_reserve import DiskReserve
from storage.sqlite.free_space import FreeSpace
from storage.sqlite.journaled_commits import JournaledCommits
from storage.sqlite.pending_records import PendingRecords, PendingSend
from storage.sqlite.store import SqliteStore
from storage.sqlite.write_ahead_log import WriteAheadLog
from storage.statements import Statements
from tests.crash.injected_bugs import INJECTED_BUGS
from tests.crash.injected_bugs import VARIABLE as BUG_VARIABLE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

VARIABLE = "CRASH_STEP"
REWRITES = {"CRASH_REWRITES": "1"}
"""The environment of a broker that writes blocks again all the time."""
COMMON_CLASSES = (RecordBatch, StoredBlocks, BlockBatch, BlockIndex, Locations)
SQLITE_CLASSES = (
    SqliteStore,
    SqliteBackgroundCommits,
    SqlBatch,
    SqliteBlockSource,
    JournaledCommits,
    CommitJournal,
    PendingRecords,
    PendingSend,
    Statements,
    WriteAheadLog,
    DiskReserve,
    FreeSpace,
    *COMMON_CLASSES,
)
POSTGRES_CLASSES = (
    PostgresStore,
    PostgresBatch,
    PostgresBlockSource,
    Session,
    RetryingSession,
    *COMMON_CLASSES,
)
"""Every method of these is a step."""
OTHER_STEPS: tuple[tuple[type[Any], str], ...] = (
    (Turn, "absorb"),
    (Committer, "submit"),
    (BatchCommit, "begin"),
    (BatchCommit, "end"),
    (TurnLoop, "_turn"),
    (TurnLoop, "release"),
    (Namespace, "apply"),
    (Namespace, "dispatch"),
)
"""What comes before the store, and after it."""
ERRORS: dict[str, Callable[[], BaseException]] = {
    "MemoryError": MemoryError,
    "OSError EIO": lambda: OSError(errno.EIO, "injected"),
    "OSError ENOSPC": lambda: OSError(errno.ENOSPC, "injected"),
}
AT_START = frozenset({"__init__", "open", "close"})
"""Not part of a commit."""
MOST_CALLS_BEFORE = 400


def steps(
    classes: Sequence[type[Any]] = (*SQLITE_CLASSES, *POSTGRES_CLASSES),
) -> dict[str, tuple[type[Any], str]]:
    """All steps by name, found by looking at the code that is there."""
    found: list[tuple[type[Any], str]] = [
        (kind, name)
        for kind in classes
        for name, member in vars(kind).items()
        if name not in AT_START and (inspect.isfunction(member) or isinstance(member, property))
    ]
    found += [(kind, name) for kind, name in OTHER_STEPS if name in vars(kind)]
    return {f"{kind.__name__}.{name}": (kind, name) for kind, name in found}


@dataclass(frozen=True, slots=True)
class FailingStep:
    """Which step fails, how, and when."""

    step: str
    error: str
    calls_before: int
    for_good: bool

    @classmethod
    def chosen(
        cls, chance: random.Random, classes: Sequence[type[Any]] = SQLITE_CLASSES
    ) -> FailingStep:
        return cls(
            chance.choice(sorted(steps(classes))),
            chance.choice(list(ERRORS)),
            chance.randrange(MOST_CALLS_BEFORE),
            chance.random() < 0.5,
        )

    def __str__(self) -> str:
        often = "for good" if self.for_good else "once"
        return f"{self.error} in {self.step} after {self.calls_before} calls, {often}"

    @property
    def environment(self) -> dict[str, str]:
        """What the broker has to be started with."""
        return {VARIABLE: json.dumps(asdict(self))}

    def build_in(self) -> None:
        """Replace the step in this process."""
        kind, name = steps()[self.step]
        member = vars(kind)[name]
        if isinstance(member, property):
            assert member.fget is not None
            setattr(kind, name, property(self._failing(member.fget)))
        else:
            setattr(kind, name, self._failing(member))

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(function)
        def fail_or_call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            beyond = calls - self.calls_before
            if beyond == 1 or (beyond > 1 and self.for_good):
                error = ERRORS[self.error]()
                raise error
            return function(*arguments, **named)

        return fail_or_call


def rewrite_often() -> None:
    """Lower the limits from which blocks are written again."""
    compaction.SMALL_BLOCKS_MAX = 4
    compaction.DEAD_MAX_BYTES = 16 << 10


if __name__ == "__main__":
    if REWRITES.items() <= os.environ.items():
        rewrite_often()
    if injected_bug := os.environ.get(BUG_VARIABLE):
        INJECTED_BUGS[injected_bug]()
    if text := os.environ.get(VARIABLE):
        FailingStep(**json.loads(text)).build_in()
    sys.exit(main(sys.argv[1:]))
