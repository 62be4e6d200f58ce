"""A store in memory that counts commits, fails on request and checks its records.

For tests of the core, of the committer and of the simulation. It outlives a broker, as a disk does:
after a crash it has exactly what was committed.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    PayloadRow,
)
from storage.contract import StorageError, StorageFull
from storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.core.contract.records import (
        EntityStored,
        MessageRow,
        Record,
        SessionStateSet,
    )


class StoreFault(Enum):
    """How the next commit fails."""

    FULL = "no room: nothing is written"
    ERROR = "an error: nothing is written"
    ODD = "an exception that no store should raise, before anything is written"
    LATE = "an exception after everything is written"


class FakeStore(MemoryStore):
    """Behaves towards the broker as the store on disk does.

    `checks` asserts that no message is stored twice, and that updates and deletions are about messages
    that are there. `note` is called with a line for every commit.
    """

    blocking = True
    keeps_payloads_in_memory = False

    def __init__(
        self, *, checks: bool = True, note: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__()
        self._checks = checks
        self._note = note
        self.commits = 0
        self.has_room = True
        self.fault: StoreFault | None = None
        self.failure: Exception | None = None
        """Raised by every commit, before anything is written."""
        self.fails_to_read = False

    def commit(self, records: Sequence[Record]) -> None:
        self.commits += 1
        fault, self.fault = self.fault, None
        names = " ".join(type(record).__name__ for record in records)
        self._note(f"commit {names}{f', {fault.name}' if fault else ''}")
        if self.failure is not None:
            raise self.failure
        match fault:
            case StoreFault.FULL:
                raise StorageFull("the simulated disk is full")
            case StoreFault.ERROR:
                raise StorageError("the simulated disk failed")
            case StoreFault.ODD:
                raise MemoryError
        if self._checks:
            for record in records:
                self._check(record)
                super().commit([record])
        else:
            super().commit(records)
        if fault is StoreFault.LATE:
            raise OSError(errno.EIO, "the simulated disk failed after the commit")

    def measure_room(self) -> bool:
        return self.has_room

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        if self.fails_to_read:
            self.fails_to_read = False
            raise StorageError("the simulated disk cannot be read")
        return super().read_payloads(payload_ids)

    # ---- what it holds ------------------------------------------------------------------------

    @property
    def rows(self) -> dict[int, MessageRow]:
        """The messages by id."""
        return {row.id: row for row in self.load().messages}

    @property
    def payloads(self) -> dict[int, PayloadRow]:
        """The bodies and annotations by payload id."""
        found = self.read_payloads(list(self._payloads))
        return {number: PayloadRow(number, *payload) for number, payload in found.items()}

    @property
    def entities(self) -> dict[int, EntityStored]:
        """The definitions by entity id."""
        return self._entities

    @property
    def session_states(self) -> dict[tuple[int, str], SessionStateSet]:
        """By entity id and session id."""
        return {
            (entity_id, session_id): state
            for entity_id, states in self._session_states.items()
            for session_id, state in states.items()
        }

    # ---- what it is given ---------------------------------------------------------------------

    def _check(self, record: Record) -> None:
        match record:
            case MessagesStored(rows, payloads):
                new = {payload.id for payload in payloads}
                assert not new & self._payloads.keys(), "a payload is stored twice"
                stored = {row.id for row in rows}
                assert not stored & self._messages.keys(), "a message is stored twice"
                self._check_payloads(rows, new)
            case MessagesUpdated(rows):
                for row in rows:
                    assert row.id in self._messages, f"message {row.id} is updated before stored"
                self._check_payloads(rows, set())
            case MessagesDeleted(ids, payload_ids):
                assert set(ids) <= self._messages.keys(), "a message is deleted that is not there"
                assert set(payload_ids) <= self._payloads.keys(), "so is a payload"

    def _check_payloads(self, rows: Sequence[MessageRow], new: set[int]) -> None:
        for row in rows:
            has_payload = row.payload_id in self._payloads or row.payload_id in new
            assert has_payload, f"message {row.id} has no payload"
