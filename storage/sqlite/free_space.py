"""How much space a store has, on its disk and inside its file, and what may be written with it.

Measures only when the store asks: while much space is free, that is now and then and not in each commit. The reserve
file (`disk_reserve.py`) belongs to it. The namespaces accept no more than `room` says, so `check` refuses a commit only
if another program has taken the space.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from broker.core.contract.records import MessagesStored, SessionStateSet
from broker.core.contract.sent_rows import payload_bytes
from storage.contract import UNLIMITED_ROOM, Room, StorageFull
from storage.sqlite.commit_journal import SEGMENT_BYTES
from storage.sqlite.disk_reserve import DiskReserve
from storage.sqlite.store_errors import NO_ROOM

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from broker.core.contract.records import Record
    from storage.sqlite.write_ahead_log import WriteAheadLog

FREE_PLENTY_BYTES = 256 << 20
"""With more than this free on the disk, commits go to the journal, and space is measured now and then only."""
JOURNAL_BYTES = 2 * 2 * SEGMENT_BYTES
"""What the next commit may write besides its own records, to the log and then to the file, if there is a journal."""
SMALL_STATE_BYTES = 64 << 10
"""Session states up to this size may use the reserve."""
PAGE_BYTES = 4096
HANGS_S = 0.05
"""If the disk takes longer to say how much space is free, a commit may take as long."""


class FreeSpace:
    """The free space of one store."""

    def __init__(self, database: Path, log: WriteAheadLog) -> None:
        self._database = database
        self._log = log
        self._reserve = DiskReserve(database.with_name(database.name + ".reserve"))
        self._inside_bytes = 0
        """Free space in unused pages of the file, when it was last measured."""
        self.room = UNLIMITED_ROOM
        """How much may be stored, when it was last measured."""
        self.is_plenty = False
        """Whether much space is free on the disk, as far as it was measured."""
        self.may_rewrite = True
        """Whether there is space for blocks that are written again."""
        self._commits_measured = 0
        """How often a commit has measured the space."""
        self._releases = 0
        """How often the reserve was released."""
        self._measuring_from_s: float | None = None
        """Since when `measure_room` has waited for the disk. None if it is not running."""

    def measure_inside(self, writer: sqlite3.Connection) -> None:
        """Measures the free space inside the file."""
        self._inside_bytes = pragma_value(writer, "freelist_count") * PAGE_BYTES

    def measure(self, writer: sqlite3.Connection) -> int:
        """Measures the free space after a commit. Returns that of the disk. Raises `OSError` or `sqlite3.Error`."""
        free_bytes = self._reserve.measure_free_bytes()
        self.is_plenty = free_bytes >= FREE_PLENTY_BYTES
        self.measure_inside(writer)
        self._commits_measured += 1
        self.room = self._room_with(free_bytes)
        return free_bytes

    def _room_with(self, free_bytes: int) -> Room:
        """Returns how much may be stored with so much space on the disk."""
        if free_bytes >= FREE_PLENTY_BYTES:
            free_bytes -= JOURNAL_BYTES
        # The file never gets smaller. So it must not grow into the space that the log needs when messages are deleted,
        # and for new messages after that.
        kept_bytes = self._reserve.size_bytes // 2
        message_bytes = self._storable_bytes(free_bytes, kept_bytes)
        with_reserve_bytes = self._storable_bytes(free_bytes + self._reserve.held_bytes, kept_bytes)
        state_bytes = max(message_bytes, min(with_reserve_bytes, SMALL_STATE_BYTES))
        # Pages are a little larger than what is in them, and some hold no messages.
        return Room(message_bytes * 15 // 16, state_bytes * 15 // 16)

    def _storable_bytes(self, free_bytes: int, kept_bytes: int = 0) -> int:
        """Returns how much can be written with so much space on the disk, if the file does not grow into `kept_bytes`.

        It is written twice: to the log, which grows on the disk, and from there to the file, where unused pages take it
        first.
        """
        log_bytes = self._log.uncopied_frames * PAGE_BYTES
        twice_bytes = free_bytes - kept_bytes + self._inside_bytes - log_bytes
        return max(0, min(free_bytes, twice_bytes // 2))

    def check(self, writer: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Raises `StorageFull` if the log could not be copied into the database file after a commit of these records.

        SQLite would not notice: it needs space for the log only, and the log could never begin again.
        """
        new_bytes = _new_bytes(records)
        log_bytes = self._log.uncopied_frames * PAGE_BYTES
        if not new_bytes or (self.is_plenty and log_bytes + 2 * new_bytes < FREE_PLENTY_BYTES // 2):
            return
        try:
            free_bytes = self._reserve.measure_free_bytes()
        except OSError:
            return  # the disk cannot be asked now, which is no reason to refuse a message
        if new_bytes > self._storable_bytes(free_bytes):
            self.measure_inside(writer)
            if new_bytes > self._storable_bytes(free_bytes):
                raise StorageFull(f"{self._database} {NO_ROOM}")

    def measure_room(self) -> bool:
        """Returns whether new messages may be stored; see `Store.measure_room`. Called beside commits, which know better:
        if one of them has measured meanwhile, its figures stay."""
        commits_measured, releases = self._commits_measured, self._releases
        self._measuring_from_s = time.monotonic()
        try:
            has_room = not self._reserve.measure_is_low(self._inside_bytes, self._log.size_bytes)
            room = self._room_with(self._reserve.measure_free_bytes())
        except OSError:
            return True  # the disk cannot be asked now, which is no reason to refuse messages
        finally:
            self._measuring_from_s = None
        if commits_measured == self._commits_measured:
            self.room = room
        if releases == self._releases:
            self.may_rewrite = has_room
        return has_room

    @property
    def hangs(self) -> bool:
        """Whether `measure_room` has waited long for the disk. Needs no system call."""
        began_s = self._measuring_from_s
        return began_s is not None and time.monotonic() - began_s > HANGS_S

    @property
    def reserved_bytes(self) -> int:
        """The size of the reserve. 0 if it is released."""
        return self._reserve.held_bytes

    def reserve(self) -> None:
        """Reserves space for completing messages, if there is enough."""
        with suppress(OSError):  # the disk cannot be asked now; `measure_room` asks again
            self._reserve.reserve()

    def release_reserve(self) -> None:
        """The disk is full: deleting messages and copying the log get the space of the reserve."""
        self._releases += 1
        self.may_rewrite = False
        self._reserve.release()


def _new_bytes(records: Sequence[Record]) -> int:
    """Returns the size of new bodies and session states."""
    return sum(
        [payload_bytes(one.payloads) for one in records if isinstance(one, MessagesStored)]
    ) + sum([len(one.state or b"") for one in records if isinstance(one, SessionStateSet)])


def pragma_value(connection: sqlite3.Connection, name: str) -> int:
    """Returns the value of a pragma that is a number."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
