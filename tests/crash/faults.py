"""Faults of a run, chosen by the seed: file calls or steps of commits that fail, or a database that restarts.

This module chooses and starts the faults. `broker_runs.py` checks that the broker continues or
stops, and the ledgers check its answers.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.crash.database import CrashDatabase, DatabaseFault
from tests.crash.failing_steps import POSTGRES_CLASSES, SQLITE_CLASSES, FailingStep
from tests.support.io_faults import FOR_GOOD, SHORT_WRITE, Calls, IoFaults

if TYPE_CHECKING:
    import random

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
MOST_CALLS_BEFORE = 200
MOST_TIMES = 3


@dataclass(frozen=True, slots=True)
class FileFault:
    """File calls of some kinds that fail."""

    calls: Calls
    error: int
    skip: int
    times: int

    @classmethod
    def chosen(cls, chance: random.Random) -> FileFault:
        calls = Calls(0)
        while not calls:
            for kind in Calls:
                if chance.random() < 1 / 3:
                    calls |= kind
        error = chance.choice(ERRORS)
        if calls & Calls.WRITE and chance.random() < 0.3:
            calls, error = Calls.WRITE, SHORT_WRITE
        times = FOR_GOOD if chance.random() < 0.4 else chance.randint(1, MOST_TIMES)
        return cls(calls, error, chance.randrange(MOST_CALLS_BEFORE), times)

    def arm(self, faults: IoFaults) -> None:
        faults.strike(self.calls, self.error, skip=self.skip, times=self.times)

    def __str__(self) -> str:
        what = errno.errorcode[self.error] if self.error else "a short write"
        often = "for good" if self.times == FOR_GOOD else f"{self.times} times"
        kinds = "|".join(kind.name or "" for kind in Calls if kind in self.calls)
        return f"{what} from {kinds} after {self.skip} calls, {often}"


Fault = FileFault | DatabaseFault | FailingStep


def choose(chance: random.Random, *, database: bool = False) -> Fault:
    """A step of a commit that fails, or what happens to files or, instead, to the database."""
    if chance.random() < 0.5:
        return DatabaseFault.chosen(chance) if database else FileFault.chosen(chance)
    return FailingStep.chosen(chance, POSTGRES_CLASSES if database else SQLITE_CLASSES)


def arm(fault: FileFault | DatabaseFault, place: IoFaults | CrashDatabase) -> None:
    """Starts a fault where it belongs."""
    if isinstance(fault, DatabaseFault):
        assert isinstance(place, CrashDatabase)
        fault.arm(place)
    else:
        assert isinstance(place, IoFaults)
        fault.arm(place)
