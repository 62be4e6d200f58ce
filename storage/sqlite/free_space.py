"""How much space a store has, on its disk and inside its file, and what may be written with it.

Measures only when the store asks: while much space is free, that is now and then and not in each commit. The reserve
file (`disk_reserve.py`) belongs to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import MessagesStored
from broker.core.contract.sent_rows import payload_bytes
from storage.contract import StorageFull
from storage.sqlite.disk_reserve import DiskReserve
from storage.sqlite.store_errors import NO_ROOM

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from broker.core.contract.records import Record
    from storage.sqlite.write_ahead_log import WriteAheadLog

FREE_PLENTY_BYTES = 256 << 20
"""With more than this free on the disk, the free space inside the file is not measured."""
PAGE_BYTES = 4096


class FreeSpace:
    """The free space of one store."""

    def __init__(self, database: Path, log: WriteAheadLog) -> None:
        self._database = database
        self._log = log
        self._reserve = DiskReserve(database.with_name(database.name + ".reserve"))
        self._inside_bytes = 0
        """Free space in unused pages of the file, when it was last measured."""
        self.is_plenty = False
        """Whether much space is free on the disk, as far as it was measured."""
        self.may_rewrite = True
        """Whether there is space for blocks that are written again."""

    def measure_inside(self, writer: sqlite3.Connection) -> None:
        """Measures the free space inside the file."""
        self._inside_bytes = pragma_value(writer, "freelist_count") * PAGE_BYTES

    def measure(self, writer: sqlite3.Connection) -> int:
        """Measures the free space after a commit. Returns that of the disk. Raises `OSError` or `sqlite3.Error`."""
        free_bytes = self._reserve.free_bytes
        self.is_plenty = free_bytes >= FREE_PLENTY_BYTES
        if not self.is_plenty:
            self.measure_inside(writer)
        return free_bytes

    def check(self, writer: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Raises `StorageFull` if the log could not be copied into the database file after a commit of these records.

        SQLite would not notice: it needs space for the log only, and the log could never begin again.
        """
        new_bytes = sum(
            [payload_bytes(one.payloads) for one in records if isinstance(one, MessagesStored)]
        )
        # New messages are written twice: to the log, and then to the file.
        needed_bytes = self._log.uncopied_frames * PAGE_BYTES + 2 * new_bytes
        if not new_bytes or (self.is_plenty and needed_bytes < FREE_PLENTY_BYTES // 2):
            return
        try:
            missing_bytes = needed_bytes - self._reserve.free_bytes
        except OSError:
            return  # the disk cannot be asked now, which is no reason to refuse a message
        if missing_bytes > 0:
            self.measure_inside(writer)
            if missing_bytes > self._inside_bytes:
                raise StorageFull(f"{self._database} {NO_ROOM}")

    @property
    def has_room(self) -> bool:
        """Whether new messages may be stored; see `Store.has_room`."""
        has_room = not self._reserve.is_low(self._inside_bytes)
        self.may_rewrite = has_room
        return has_room

    def reserve(self) -> None:
        """Reserves space for completing messages, if there is enough."""
        self._reserve.reserve()

    def release_reserve(self) -> None:
        """The disk is full: deleting messages and copying the log get the space of the reserve."""
        self.may_rewrite = False
        self._reserve.release()


def pragma_value(connection: sqlite3.Connection, name: str) -> int:
    """Returns the value of a pragma that is a number."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
