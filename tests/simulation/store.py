"""A store in memory whose commits take virtual time and fail as they are told.

It outlives the broker's process, as a disk does: what was committed is there after a crash, and
nothing else is.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING

from storage.contract import StorageError, StorageFull
from storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.records import Record
    from tests.simulation.trace import Trace


class StoreFault(Enum):
    """What the next commit meets."""

    FULL = "no room: nothing is written"
    ERROR = "an error: nothing is written"
    ODD = "an exception that no store should raise, before anything is written"
    LATE = "an exception after everything is written"


class SimulatedStore(MemoryStore):
    """Behaves towards the broker as the one on disk does."""

    blocking = True
    keeps_payloads_in_memory = False

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self.has_room = True
        self.fault: StoreFault | None = None
        self.fails_to_read = False

    def commit(self, records: Sequence[Record]) -> None:
        fault, self.fault = self.fault, None
        names = " ".join(type(record).__name__ for record in records)
        self._trace.note(f"commit {names}{f', {fault.name}' if fault else ''}")
        match fault:
            case StoreFault.FULL:
                raise StorageFull("the simulated disk is full")
            case StoreFault.ERROR:
                raise StorageError("the simulated disk failed")
            case StoreFault.ODD:
                raise MemoryError
        super().commit(records)
        if fault is StoreFault.LATE:
            raise OSError(errno.EIO, "the simulated disk failed after the commit")

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        if self.fails_to_read:
            self.fails_to_read = False
            raise StorageError("the simulated disk cannot be read")
        return super().read_payloads(payload_ids)
