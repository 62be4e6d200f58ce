"""Reads the table `recent_commits`, which only brokers with version 5 of the schema write.

They wrote small commits to rows of that table, and moved them to the tables of blocks later. If such a broker was killed,
the rows have commits that are nowhere else. They move when the file is opened.

A row is a part of a commit. Larger commits have several, in consecutive slots:

| content | |
|---|---|
| uint64 | generation: rises when the changes move to the tables |
| uint16 | version of the format: 1 |
| uint16 | how many parts of the commit follow |
| uint32 | length of the part |
| bytes | the part; behind it, zeros |

Slot 0 has the current generation and no part. The commits of this generation are in slots 1, 2, 3 and so on; what follows
is older. A commit consists of numbers (int64) and byte strings: see `_decode`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from storage.blocks.block_batch import BlockChanges
from storage.contract import StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_VERSION = 1
_HEAD = struct.Struct("<QHHI")
_COUNTS = struct.Struct("<5q")
_NUMBER_BYTES = 8

SequenceNumbers = dict[tuple[int, int], int]
"""The highest sequence number of each queue, by entity id and sub-queue."""


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


def read_recent_changes(rows: Iterable[tuple[bytes]]) -> RecentChanges | None:
    """Returns what the rows of the table have changed together, or None if it is empty. Raises `StoreUnusable`."""
    parts = [part for (part,) in rows]
    if not parts:
        return None
    changes = RecentChanges()
    try:
        generation = _HEAD.unpack_from(parts[0])[0]
        for content in _commits(parts[1:], generation):
            changes.add(*_decode(content))
    except (ValueError, IndexError, struct.error) as error:
        raise StoreUnusable(
            f"a recent commit is damaged or of a newer version ({error})"
        ) from error
    return changes


def _commits(rows: Sequence[bytes], generation: int) -> Iterator[bytes]:
    """Returns the content of each commit of a generation."""
    parts: list[bytes] = []
    for row in rows:
        found, version, left, length = _HEAD.unpack_from(row)
        if found != generation or not length:
            break
        if version != _VERSION:
            raise ValueError(f"the unknown format {version}")
        parts.append(row[_HEAD.size : _HEAD.size + length])
        if not left:
            yield b"".join(parts)
            parts = []
    if parts:
        raise ValueError("the last one is incomplete")


def _decode(content: bytes) -> tuple[BlockChanges, SequenceNumbers]:
    """Returns a commit: five counts, then the numbers that are counted, then the byte strings.

    The counts and numbers are those of deleted blocks, deleted dead slots, new blocks (number and two lengths), dead
    slots (number and two lengths) and sequence numbers (entity, sub-queue and number).
    """
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
