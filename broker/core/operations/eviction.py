"""Over the memory budget, bodies leave memory and messages that only wait are packed.

Called once a turn, with the messages that the turn has not delivered. Packing takes time, and one message to
a topic may fill a block of every subscription at once. So a turn packs few blocks more than its own messages
fill on average, and the others wait for later turns.
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

PACKS_PER_TURN = 8
MESSAGES_PER_PACK = 48
PACKS_MAX = 96
"""How many blocks one turn packs: so many, and one more for so many messages, up to a maximum. A block has 64
messages, so those that wait become fewer. Packing a block takes about a twentieth of a millisecond."""


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
        count = self._evict_bodies([message for message in arrived if message.lock_token is None])
        self._pack(min(PACKS_PER_TURN + count // MESSAGES_PER_PACK, PACKS_MAX))

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._context.arrived or self._full_blocks)

    def _evict_bodies(self, messages: Iterable[Message]) -> int:
        """Evict bodies until they are within the budget. Returns how many messages are still in a queue."""
        payloads = self._context.payloads
        count = 0
        for message in messages:
            if not payloads.over_budget:
                break
            queue = queue_of(message)
            if queue is None:
                continue
            count += 1
            if message.body is not None and not payloads.are_wanted((message,)):
                payloads.evict(message)
            if queue.index.ends_block(message.sequence_number):
                self._full_blocks.append(message)
        return count

    def _pack(self, most: int) -> None:
        full_blocks, payloads = self._full_blocks, self._context.payloads
        while full_blocks and most and payloads.over_budget:
            most -= 1
            message = full_blocks.popleft()
            queue = queue_of(message)
            if queue is not None and message.lock_token is None:
                pack_block(queue, message.sequence_number)
