"""Over the memory budget, bodies leave memory and messages that only wait are packed.

Called once a turn, with the messages that the turn has not delivered. Packing takes time, and one message to
a topic may fill a block of every subscription at once. So a turn with new messages packs few blocks, and the others
wait for the next ticks, which pack more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core.queues.block_packing import pack_block
from broker.core.queues.queue import queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.message import Message
    from broker.core.queues.namespace_context import NamespaceContext

EVICTED_PER_TURN = 4_096
TURNS_FOR_MANY = 8
"""How many bodies a turn evicts: so many, or one of so many parts of those that wait. The rest follows in the next
turns: evicting those of the largest batch takes as long as a third of storing it."""
PACKS_PER_TURN = 8
"""How many blocks a turn packs, besides those that its own messages have filled. Packing a block takes up to a quarter
of a millisecond if its messages came one by one, and a fifth of that if they came together."""
MESSAGES_PER_BLOCK = 48
"""If the messages of a turn have filled more than one block for so many of them, they went to many queues, and the blocks
consist mostly of older messages. The others are packed at once, so that a fast sender does not fill the memory."""
FILLED_MAX = EVICTED_PER_TURN // MESSAGES_PER_BLOCK
BLOCKS_PER_PACK = 16
PACKS_MAX = 32
"""A turn without new messages packs one more for so many blocks that wait, up to a maximum."""


class Eviction:
    """What leaves memory at the end of a turn."""

    __slots__ = ("_context", "_full_blocks")

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        self._full_blocks: deque[Message] = deque()
        """The last message of each block that may be packed, oldest first."""

    def run(self) -> None:
        """Evict bodies of messages that arrived in this turn, and pack blocks."""
        context = self._context
        arrived, context.arrived = context.arrived, []
        if not context.payloads.over_budget:
            self._full_blocks.clear()
            return
        count = max(EVICTED_PER_TURN, len(arrived) // TURNS_FOR_MANY)
        if len(arrived) > count:
            context.arrived = arrived[count:]
            del arrived[count:]
        unlocked = [message for message in arrived if message.lock_token is None]
        waiting_count = len(self._full_blocks)
        self._evict_bodies(unlocked)
        filled_count = len(self._full_blocks) - waiting_count
        if not unlocked:
            filled_count = min(waiting_count // BLOCKS_PER_PACK, PACKS_MAX)
        elif filled_count > 1 + len(unlocked) // MESSAGES_PER_BLOCK:
            filled_count = 0
        self._pack(PACKS_PER_TURN + min(filled_count, FILLED_MAX))

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._context.arrived or self._full_blocks)

    def _evict_bodies(self, messages: Iterable[Message]) -> None:
        """Evict bodies until they are within the budget."""
        payloads, full_blocks = self._context.payloads, self._full_blocks
        block_mask = (1 << self._context.block_bits) - 1
        for message in messages:
            if message.queue is None:
                continue
            if message.body is not None and not payloads.are_wanted((message,)):
                payloads.evict(message)
                if not payloads.over_budget:
                    break
            if message.sequence_number & block_mask == block_mask:
                full_blocks.append(message)

    def _pack(self, most: int) -> None:
        full_blocks, payloads = self._full_blocks, self._context.payloads
        while full_blocks and most and payloads.over_budget:
            most -= 1
            message = full_blocks.popleft()
            queue = queue_of(message)
            if queue is not None and message.lock_token is None:
                pack_block(queue, message.sequence_number)
