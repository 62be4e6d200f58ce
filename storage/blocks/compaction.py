"""Chooses the blocks that a commit writes again, so that a store stays small and quick to open.

Two kinds of blocks are written again: sparse ones, when more of the store is dead than alive, and small ones, when there
are many of them. A commit writes little of either, so that nobody waits for it, and there is no other time at which
blocks are written again: an idle broker has nothing to do.

Half of a sparse block is dead. So writing one again frees at least as much as it writes, and it is enough to write as
much as dies in the blocks that the commit leaves. If more than half of the store is dead, there is a sparse block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from storage.blocks.block_index import Block, BlockIndex

DEAD_MAX_BYTES = 8 << 20
"""How much more of a store may be dead than alive."""
SMALL_BLOCKS_MAX = 2048
"""How many small blocks there may be."""
REWRITE_BYTES = 256 << 10
"""How much a commit writes again: about a millisecond."""
READ_BYTES = 1 << 20
"""How much it reads for that. Most of a sparse block may be dead, but all of it is read."""
REWRITE_BLOCKS = 128


def needs_rewriting(index: BlockIndex) -> bool:
    """Returns whether a commit should write blocks again."""
    return _is_mostly_dead(index) or len(index.small) > SMALL_BLOCKS_MAX


def _is_mostly_dead(index: BlockIndex) -> bool:
    return index.size_bytes - index.live_bytes > index.live_bytes + DEAD_MAX_BYTES


def blocks_to_rewrite(index: BlockIndex, dying: Container[Block], left_bytes: int) -> list[Block]:
    """Returns the blocks that a commit writes again.

    `dying` are the blocks that it deletes, because nothing in them stays alive; `left_bytes` is how much dies in other
    blocks and stays there.
    """
    if index.sparse and _is_mostly_dead(index):
        return _first(index.sparse, dying, left_bytes)
    if len(index.small) > SMALL_BLOCKS_MAX:
        return _first(index.small, dying, 0)
    return []


def _first(blocks: Iterable[Block], dying: Container[Block], left_bytes: int) -> list[Block]:
    chosen: list[Block] = []
    write_bytes = max(REWRITE_BYTES, left_bytes)
    read_bytes = max(READ_BYTES, 2 * left_bytes)
    for block in blocks:
        if block in dying:
            continue
        write_bytes -= block.live_bytes
        read_bytes -= block.size_bytes
        if chosen and (write_bytes < 0 or read_bytes < 0):
            break
        chosen.append(block)
        if len(chosen) == REWRITE_BLOCKS:
            break
    return chosen
