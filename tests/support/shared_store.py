"""A database in memory that several stores share, and whose connections can be cut.

For tests of the ownership and of the simulation. Each process has a store of its own. A process that ends loses its
lock at once; one that is cut off or stopped keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.contract import UNLIMITED_ROOM, Lease, OwnershipLost, StoreUnavailable
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.records import Record
    from storage.contract import StoreContent


class SharedDatabase:
    """What all processes see."""

    def __init__(self, content: FakeStore | None = None) -> None:
        self.content = content or FakeStore(checks=False)
        self.epoch = 0
        self.heartbeat = 0
        self.owner_text = ""
        self.lock_holder: SharedFakeStore | None = None
        self.is_available = True
        self.epochs_of_commits: list[int] = []

    def end_sessions(self) -> None:
        """As a restart does."""
        self.lock_holder = None


class SharedFakeStore:
    """The connection of one process to the database."""

    blocking = True
    keeps_payloads_in_memory = False
    commits_inline = False
    shares_ownership = True
    postpones = False
    background_commits = None
    room = UNLIMITED_ROOM
    maintenance_is_due = False

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self.database = database
        self.name = name
        self.epoch: int | None = None
        self.is_cut_off = False
        self.refused_commits = 0
        self.interruptions = 0

    def measure_room(self) -> bool:
        return True

    def process_ended(self) -> None:
        """The kernel closes the connection of a process that ends."""
        if self.database.lock_holder is self:
            self.database.lock_holder = None

    # ---- ownership ----------------------------------------------------------------------------

    def try_acquire(self) -> bool:
        database = self._connected()
        if self.epoch is not None:
            return True
        if database.lock_holder not in (None, self):
            return False
        self._begin_epoch()
        return True

    def take_over(self, seen_heartbeat: int) -> bool:
        if self._connected().heartbeat != seen_heartbeat:
            return False
        self._begin_epoch()
        return True

    def _begin_epoch(self) -> None:
        database = self.database
        database.lock_holder = self
        database.epoch += 1
        database.heartbeat += 1
        database.owner_text = self.name
        self.epoch = database.epoch

    def heartbeat(self) -> None:
        self._check_epoch()
        database = self.database
        database.heartbeat += 1
        if database.lock_holder is None:
            database.lock_holder = self

    def duplicate_session_socket(self) -> int | None:
        return None

    def read_lease(self) -> Lease:
        database = self._connected()
        return Lease(database.epoch, database.heartbeat, database.owner_text)

    def release(self) -> None:
        epoch, self.epoch = self.epoch, None
        database = self._connected()
        if epoch == database.epoch:
            database.owner_text = ""
        self.process_ended()

    def interrupt(self) -> None:
        self.interruptions += 1

    # ---- content ------------------------------------------------------------------------------

    def exists(self) -> bool:
        return True

    def open(self) -> None:
        self._connected()

    def load(self) -> StoreContent:
        return self._connected().content.load()

    def commit(self, records: Sequence[Record]) -> None:
        try:
            self._check_epoch()
        except OwnershipLost:
            self.refused_commits += 1
            raise
        self.database.content.commit(records)
        self.database.epochs_of_commits.append(self.database.epoch)

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        return self._connected().content.read_payloads(payload_ids)

    def maintain(self) -> None: ...

    def close(self) -> None:
        self.epoch = None
        self.process_ended()

    def _connected(self) -> SharedDatabase:
        if self.is_cut_off or not self.database.is_available:
            raise StoreUnavailable("the simulated database cannot be reached")
        return self.database

    def _check_epoch(self) -> None:
        if self._connected().epoch != self.epoch:
            self.epoch = None
            raise OwnershipLost("another process owns the simulated database")
