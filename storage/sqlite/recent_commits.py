"""Recent small commits: each is a row of a fixed length, and moves to the tables of blocks later, with many others.

A commit of one message would change three or four pages of the tables. Here it overwrites one page. What was stored and
deleted again in the meantime never gets to the tables. The changes of recent commits are in memory as well: readers see
the tables with these changes (`block_source.py`).

A row is a part of a commit. Larger commits have several, in consecutive slots:

| content | |
|---|---|
| uint64 | generation: rises when the changes move to the tables |
| uint16 | version of the format: 1 |
| uint16 | how many parts of the commit follow |
| uint32 | length of the part |
| bytes | the part; behind it, zeros |

Slot 0 has the current generation and no part. The commits of this generation are in slots 1, 2, 3 and so on; what follows
is older. A commit consists of numbers (int64) and byte strings: see `_encode`. SQLite ensures that a commit is complete.
"""

from __future__ import annotations

import struct
import threading
from itertools import chain
from typing import TYPE_CHECKING

from storage.blocks.block_batch import BlockChanges
from storage.contract import StoreUnusable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from storage.statements import Statements

PART_BYTES = 4000
"""The length of a row, with which it fills a page. The migration that makes the rows has the same number."""
PARTS_MAX = 4
"""A larger commit is written to the tables at once: it would be written twice, and one page more or less is no matter."""
FREED_MAX_BYTES = 1 << 20
"""What recent commits delete still occupies the tables. If it is more than this, the changes move."""
_VERSION = 1
_HEAD = struct.Struct("<QHHI")
_CONTENT_BYTES = PART_BYTES - _HEAD.size
_COUNTS = struct.Struct("<5q")
_NUMBER_BYTES = 8

SequenceNumbers = dict[tuple[int, int], int]
"""The highest sequence number of each queue, by entity id and sub-queue."""
Part = tuple[bytearray, int]
"""A row to write, and its slot."""


class RecentChanges:
    """What recent commits have changed together, compared with the tables."""

    __slots__ = (
        "blocks",
        "dead",
        "deleted_blocks",
        "deleted_dead",
        "sequence_numbers",
    )

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[bytes, bytes]] = {}
        """New blocks by number. Their numbers are higher than those of blocks in the tables that are not deleted."""
        self.dead: dict[int, tuple[bytes, bytes]] = {}
        """The dead slots of blocks, new or in the tables."""
        self.deleted_blocks: set[int] = set()
        """Numbers of blocks that are in the tables."""
        self.deleted_dead: set[int] = set()
        self.sequence_numbers: SequenceNumbers = {}

    def add(self, changes: BlockChanges, sequence_numbers: Mapping[tuple[int, int], int]) -> None:
        """Adds a commit. It has no large bodies."""
        for number in changes.deleted_blocks:
            if self.blocks.pop(number, None) is None:
                self.deleted_blocks.add(number)
            self.dead.pop(number, None)
        self.deleted_dead.update(changes.deleted_dead)
        for number, entries, payloads in changes.blocks:
            self.blocks[number] = entries, payloads
        for number, rows, payloads in changes.dead:
            self.dead[number] = rows, payloads
        highest = self.sequence_numbers
        for queue, last in sequence_numbers.items():
            highest[queue] = max(last, highest.get(queue, 0))

    def as_block_changes(self) -> BlockChanges:
        """Returns what has to be written to the tables."""
        return BlockChanges(
            list(self.deleted_blocks),
            list(self.deleted_dead),
            [],
            [(number, *block) for number, block in self.blocks.items()],
            [],
            [(number, *dead) for number, dead in self.dead.items()],
        )


class RecentCommits:
    """The recent commits of one store. Commits are one at a time; others may read at the same time."""

    def __init__(self, statements: Statements) -> None:
        self._select = statements.one("recent_parts")
        self.set_part = statements.one("set_recent_part")
        """The statement that writes a `Part`."""
        self._changes: RecentChanges | None = None
        self._lock = threading.Lock()
        """Held while the rows are read."""
        self._generation = 0
        self._next_slot = 1
        self._slot_count = 0
        self._freed_bytes = 0
        """The size of the blocks that were deleted."""

    def changes(self, connection: sqlite3.Connection) -> RecentChanges:
        """Returns what is not in the tables yet. Reads it from the store if it is not known."""
        changes = self._changes
        if changes is None:
            with self._lock:
                changes = self._changes
                if changes is None:
                    changes = self._changes = self._read(connection)
        return changes

    def forget(self) -> None:
        """Reads the rows again when they are needed: a commit failed, or the store is closed."""
        self._changes = None

    @property
    def has_some(self) -> bool:
        """Whether there are commits that are not in the tables."""
        return self._next_slot > 1

    def parts(
        self,
        changes: BlockChanges,
        sequence_numbers: Mapping[tuple[int, int], int],
        freed_bytes: int,
    ) -> list[Part] | None:
        """Returns the rows to write for a commit, or None if it is too large, there are not enough slots, or much was
        deleted. `freed_bytes` is the size of the blocks that it deletes."""
        if changes.payloads or changes.deleted_payloads or self._next_slot >= self._slot_count:
            return None  # large bodies are in the tables only
        if self._freed_bytes + freed_bytes > FREED_MAX_BYTES:
            return None
        if sum([len(block[1]) + len(block[2]) for block in changes.blocks]) > (
            PARTS_MAX * _CONTENT_BYTES
        ):
            return None
        content = _encode(changes, sequence_numbers)
        if len(content) <= _CONTENT_BYTES:
            return [(self._part(content, left=0), self._next_slot)]
        count = -(-len(content) // _CONTENT_BYTES)
        if count > PARTS_MAX or self._next_slot + count > self._slot_count:
            return None
        return [
            (
                self._part(
                    content[index * _CONTENT_BYTES : (index + 1) * _CONTENT_BYTES],
                    left=count - 1 - index,
                ),
                self._next_slot + index,
            )
            for index in range(count)
        ]

    def _part(self, content: bytes, *, left: int) -> bytearray:
        part = bytearray(PART_BYTES)
        _HEAD.pack_into(part, 0, self._generation, _VERSION, left, len(content))
        part[_HEAD.size : _HEAD.size + len(content)] = content
        return part

    def written(
        self,
        changes: BlockChanges,
        sequence_numbers: Mapping[tuple[int, int], int],
        freed_bytes: int,
        slots: int,
    ) -> None:
        """Adds the commit that was written to so many slots. Raises nothing: the commit is durable."""
        try:
            assert self._changes is not None
            self._changes.add(changes, sequence_numbers)
            self._freed_bytes += freed_bytes
            self._next_slot += slots
        except Exception:  # noqa: BLE001 -- whatever it is, the store has the truth
            self.forget()

    def next_generation(self) -> Part:
        """Returns the row that makes the others obsolete. To be written together with their changes."""
        self._generation += 1
        try:
            return self._part(b"", left=0), 0
        finally:
            self._generation -= 1

    def moved(self) -> None:
        """The changes are in the tables. Who reads them meanwhile keeps the old object, which stays as it is."""
        self._changes = RecentChanges()
        self._generation += 1
        self._next_slot = 1
        self._freed_bytes = 0

    def _read(self, connection: sqlite3.Connection) -> RecentChanges:
        rows = [part for (part,) in connection.execute(self._select).fetchall()]
        changes = RecentChanges()
        self._slot_count = len(rows)
        self._generation = self._freed_bytes = 0
        self._next_slot = 1
        if not rows:
            return changes
        try:
            self._generation = _HEAD.unpack_from(rows[0])[0]
            for content, slots in _commits(rows[1:], self._generation):
                changes.add(*_decode(content))
                self._next_slot += slots
        except (ValueError, IndexError, struct.error) as error:
            raise StoreUnusable(
                f"a recent commit is damaged or of a newer version ({error})"
            ) from error
        return changes


def _commits(rows: Sequence[bytes], generation: int) -> Iterator[tuple[bytes, int]]:
    """Returns the content of each commit of a generation, and the number of its slots."""
    parts: list[bytes] = []
    for row in rows:
        found, version, left, length = _HEAD.unpack_from(row)
        if found != generation or not length:
            break
        if version != _VERSION:
            raise ValueError(f"the unknown format {version}")
        parts.append(row[_HEAD.size : _HEAD.size + length])
        if not left:
            yield b"".join(parts), len(parts)
            parts = []
    if parts:
        raise ValueError("the last one is incomplete")


def _encode(changes: BlockChanges, sequence_numbers: Mapping[tuple[int, int], int]) -> bytes:
    """Returns a commit as bytes: five counts, then the numbers that are counted, then the byte strings.

    The counts and numbers are those of deleted blocks, deleted dead slots, new blocks (number and two lengths), dead
    slots (number and two lengths) and sequence numbers (entity, sub-queue and number).
    """
    deleted_blocks, deleted_dead, _, blocks, _, dead = changes
    numbers = [
        len(deleted_blocks),
        len(deleted_dead),
        len(blocks),
        len(dead),
        len(sequence_numbers),
        *deleted_blocks,
        *deleted_dead,
    ]
    strings: list[bytes] = [b""]
    for number, one, other in chain(blocks, dead):
        numbers += (number, len(one), len(other))
        strings += (one, other)
    for (entity_id, sub_queue), last in sequence_numbers.items():
        numbers += (entity_id, sub_queue, last)
    strings[0] = struct.pack(f"<{len(numbers)}q", *numbers)
    return b"".join(strings)


def _decode(content: bytes) -> tuple[BlockChanges, SequenceNumbers]:
    counts = _COUNTS.unpack_from(content)
    position = _COUNTS.size

    def numbers(count: int) -> tuple[int, ...]:
        nonlocal position
        found = struct.unpack_from(f"<{count}q", content, position)
        position += count * _NUMBER_BYTES
        return found

    deleted = [list(numbers(count)) for count in counts[:2]]
    rows = [[numbers(3) for _ in range(count)] for count in counts[2:]]

    def strings(lengths: Sequence[tuple[int, ...]]) -> list[tuple[int, bytes, bytes]]:
        nonlocal position
        found = []
        for number, one, other in lengths:
            middle, end = position + one, position + one + other
            found.append((number, content[position:middle], content[middle:end]))
            position = end
        return found

    blocks, dead = strings(rows[0]), strings(rows[1])
    if position != len(content):
        raise ValueError("its length is wrong")
    changes = BlockChanges(deleted[0], deleted[1], [], blocks, [], dead)
    return changes, {(entity_id, sub_queue): last for entity_id, sub_queue, last in rows[2]}
