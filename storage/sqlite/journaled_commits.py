"""Decides where a commit is written: to the journal first, or to the tables at once.

Most commits are appended to the journal, and move to the tables later, together with others. A commit that is large or has
records that the journal does not take goes to the tables, in one transaction with all that is pending: so the tables are
always a state that the store once had.

The commits of a full segment of the journal move in parts, each before a new commit, so that nobody waits long. So do all
commits if much is pending, and after a second, so that a copy of the database is not far behind.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from broker.core.contract.records import MessagesDeleted
from storage.contract import StoreUnusable
from storage.sqlite.commit_journal import CommitJournal
from storage.sqlite.journal_entries import decode_records, encode_records
from storage.sqlite.pending_records import PendingRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from broker.core.contract.records import Record
    from storage.blocks.block_index import BlockIndex
    from storage.native.compiled import SyncedWriter

PART_BYTES = 256 << 10
"""How much moves before a commit, at least: a millisecond or two."""
PART_SHARE = 3
"""Or so many times as much as the commit adds."""
PENDING_MAX_BYTES = 12 << 20
"""If more than this is pending, everything is due."""
FREED_MAX_BYTES = 64 << 20
"""What pending records delete still occupies the tables. If it is more than this, everything is due."""
LARGE_BODY_BYTES = 64 << 10
"""What is counted for a large body that is deleted. Its size is not known."""
_ALL = sys.maxsize


class JournaledCommits:
    """The commits of one store that are in its journal."""

    def __init__(
        self,
        database: Path,
        write_tables: Callable[[Sequence[Record], int], None],
        read_moved_number: Callable[[], int],
    ) -> None:
        self.journal = CommitJournal(database)
        self._write_tables = write_tables
        """Writes records to the tables, and the number of the last moved entry, in one transaction, durably."""
        self._read_moved_number = read_moved_number
        """Reads the number of the last moved entry from the tables."""
        self._is_open = False
        self._store_id = b""
        self._moved_number = 0
        """The tables have the entries up to this one."""
        self._due_number = 0
        """The entries up to this one are old, and move with the next commits."""
        self._noted_number = 0
        self._pending = PendingRecords()
        self._is_stale = True
        """`_pending` may be wrong: the journal was not read yet, or a commit failed."""

    def open(self, store_id: bytes, moved_number: int) -> None:
        """Begins with what the journal has after the last moved entry. Raises `StoreUnusable`."""
        self._store_id = store_id
        self._moved_number = moved_number
        self._due_number = self._noted_number = 0
        self._pending = self._read()
        self._is_stale = False
        self._is_open = True

    def _read(self, up_to_number: int = _ALL) -> PendingRecords:
        pending = PendingRecords()
        last_number = self._moved_number
        for number, content in self.journal.read(self._store_id, self._moved_number):
            if number > up_to_number:
                break
            try:
                pending.add(number, decode_records(content))
            except (ValueError, IndexError, struct.error) as error:
                raise StoreUnusable(
                    f"{self.journal.path} is damaged or of a newer version ({error})"
                ) from error
            last_number = number
        if up_to_number == _ALL:
            self.journal.begin(self._store_id, last_number)
        elif last_number < up_to_number:
            raise StoreUnusable(
                f"{self.journal.path} was deleted, replaced or damaged while the broker ran: commit {last_number + 1} "
                "is missing; put the file back, and start again"
            )
        return pending

    def close(self) -> None:
        """Closes the journal. Deletes it if everything is in the tables, so that the database is complete."""
        if self._is_open and not self.has_pending:
            self.journal.delete()
        else:
            self.journal.close()
        self._is_open = False

    # --- committing ----------------------------------------------------------------------------

    def write(self, records: Sequence[Record], index: BlockIndex) -> bool:
        """Writes a commit durably to the journal. Returns False, and writes nothing of it, if it has to be written to
        the tables. Raises `OSError`."""
        self._reread_if_stale()
        content = self._content(records, index)
        if content is None or not self._make_room(len(content)):
            return False
        self._add(records, index)
        try:
            self.journal.append(content)
        except BaseException:
            self._append_failed()
            raise
        self._note_freed_bytes()
        return True

    def begin_write(
        self,
        records: Sequence[Record],
        index: BlockIndex,
        writer: SyncedWriter,
        *,
        caller_waits: bool,
    ) -> bool:
        """Begins to write a commit to the journal. Returns False if that is not possible, or if there is more to do, which may
        take long: the journal has to be opened or extended, or commits have to move to the tables. `caller_waits` says that
        `end_write` follows as soon as it can."""
        if self._is_stale or self._move_is_due:
            return False
        content = self._content(records, index)
        if content is None:
            return False
        try:
            if not self.journal.begin_append(content, writer, caller_waits=caller_waits):
                return False
        except BaseException:
            self._append_failed()
            raise
        try:
            self._add(records, index)  # while the disk writes
        except BaseException:
            writer.end()
            self.journal.erase_entry()
            self._append_failed()
            raise
        return True

    def end_write(self, error_number: int) -> None:
        """The writer has ended, with this error or 0. Raises `OSError`: then nothing is committed."""
        try:
            self.journal.end_append(error_number)
        except BaseException:
            self._append_failed()
            raise
        self._note_freed_bytes()

    def _content(self, records: Sequence[Record], index: BlockIndex) -> bytes | None:
        """Returns the content of an entry, or None if the records have to be written to the tables."""
        if self.journal.has_unfinished_entry or not self._pending.are_new(
            records, index.highest_id
        ):
            return None
        return encode_records(records)

    def _add(self, records: Sequence[Record], index: BlockIndex) -> None:
        """The next entry has these records. Called before it is durable, because a process that has waited for the disk
        runs with cold caches. Nobody knows its messages yet."""
        self._pending.freed_bytes += self._freed_bytes(records, index)
        self._pending.add(self.journal.last_number + 1, records)

    def _append_failed(self) -> None:
        self.forget()
        with suppress(Exception):  # bodies may be read before the next commit
            self._reread_if_stale()

    def _freed_bytes(self, records: Sequence[Record], index: BlockIndex) -> int:
        """Returns the size of the bodies in the tables that the records delete."""
        pending = self._pending
        stored = [
            one
            for record in records
            if type(record) is MessagesDeleted
            for one in record.payload_ids
            if one not in pending
        ]
        if not stored:
            return 0
        stored.sort()
        blocks, missing = index.payloads.find(stored)
        freed_bytes = len(missing) * LARGE_BODY_BYTES
        for handle, slots in blocks.items():
            block = index.block(handle)
            freed_bytes += (
                block.live_payload_bytes * slots.bit_count() // max(1, block.live_payloads)
            )
        return freed_bytes

    def _make_room(self, size_bytes: int) -> bool:
        """Moves old commits as far as needed for an entry of this size. Returns whether there is room for it."""
        if self._must_move(size_bytes):
            if self.journal.is_full_with(size_bytes):
                self._move(self.journal.old_last_number, _ALL)
            else:
                self._move(self._last_due_number(), max(PART_BYTES, PART_SHARE * size_bytes))
        if self.journal.is_full_with(size_bytes):
            self.journal.switch()
        return self.journal.make_room(size_bytes)

    def _must_move(self, size_bytes: int) -> bool:
        """Returns whether commits have to move to the tables before an entry of this size is written."""
        if self.journal.is_full_with(size_bytes):
            return self.journal.old_last_number > self._moved_number
        return self._move_is_due

    @property
    def _move_is_due(self) -> bool:
        """Whether there are old commits to move, although there is room for others."""
        due_number = self._last_due_number()
        return due_number > self._moved_number and self._pending.has_any(due_number)

    def _last_due_number(self) -> int:
        """Returns the number of the last entry that is to move now."""
        journal = self.journal
        if self._pending.size_bytes > PENDING_MAX_BYTES:
            return journal.last_number
        # The longer a message stays in the journal, the more probably it never has to move.
        return max(journal.old_last_number if journal.is_half_full else 0, self._due_number)

    def _note_freed_bytes(self) -> None:
        """A commit is durable. If pending records delete much from the tables, they are due, and the counting begins again."""
        if self._pending.freed_bytes > FREED_MAX_BYTES:
            self._pending.freed_bytes = 0
            self._due_number = self.journal.last_number

    def note_time(self) -> None:
        """All that is pending now is old when this is called again."""
        self._due_number = max(self._due_number, self._noted_number)
        self._noted_number = self.journal.last_number

    def _move(self, up_to_number: int, size_bytes: int) -> None:
        part = self._pending.first_part(up_to_number, size_bytes)
        self._write_tables(part.records, part.last_number)
        self._moved_number = part.last_number
        self._pending.moved(part)

    def move_all(self, records: Sequence[Record] = ()) -> None:
        """Writes all pending records and then these to the tables, in one transaction. These get a number like an entry, so
        that later entries are not read after an older copy of the database that does not have them."""
        self._reread_if_stale()
        pending = self._pending
        number = self.journal.last_used_number + bool(records)
        if number > self._moved_number:
            part = pending.first_part(number, _ALL)
            self._write_tables([*part.records, *records], number)
            self._moved_number = number
            pending.moved(part)
        self.journal.begin(self._store_id, number)

    def free_space(self) -> None:
        """Deletes the journal if everything is in the tables: the disk is full or nearly, and the tables need the
        space."""
        if self._is_open and not self.has_pending:
            self.journal.delete()
            self.journal.begin(self._store_id, self.journal.last_used_number)

    @property
    def has_pending(self) -> bool:
        """Whether something is not in the tables. False if the journal could not be read: then nothing is known of it."""
        if not self._is_open:
            return False
        return self._is_stale or self.journal.last_used_number > self._moved_number

    # --- reading -------------------------------------------------------------------------------

    def read_payloads(
        self, payload_ids: Iterable[int]
    ) -> tuple[dict[int, tuple[bytes, bytes]], list[int]]:
        """Returns the body and the annotations of those payloads that are not in the tables, by id, and the ids of those
        that may be there. May be called beside commits: a body that is not here any more is in the tables."""
        pending = self._pending
        found: dict[int, tuple[bytes, bytes]] = {}
        elsewhere = []
        for payload_id in payload_ids:
            if pending.is_deleted(payload_id):
                continue
            payload = pending.payload(payload_id)
            if payload is None:
                elsewhere.append(payload_id)
            else:
                found[payload_id] = payload
        return found, elsewhere

    # --- failures ------------------------------------------------------------------------------

    def forget(self) -> None:
        """Reads the journal again before the next commit, because a commit failed. Bodies are read as before."""
        self._is_stale = True

    def _reread_if_stale(self) -> None:
        if not self._is_stale:
            return
        self._moved_number = self._read_moved_number()
        if self._moved_number > self.journal.last_number:
            # The transaction that failed has taken place.
            self.journal.begin(self._store_id, self._moved_number)
        self._pending = self._read(self.journal.last_number)
        self._is_stale = False
