"""Blocks of packed messages in the core: how many there are, and what is sent to fill some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.message_index import BLOCK_BITS
from tests.support.core_dialogue import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.message import Message
    from broker.core.queues.queue import Queue
    from tests.support.core_dialogue import CoreDialogue

BLOCK_SIZE = 1 << BLOCK_BITS
COUNT = 4 * BLOCK_SIZE
SENT = [f"{number:05}" for number in range(COUNT)]
"""The texts of messages that fill four blocks."""


def queue_of(dialogue: CoreDialogue, path: str = "q") -> Queue:
    return dialogue.namespace._directory.queue(path)


def packed_count(dialogue: CoreDialogue, path: str = "q") -> int:
    """Returns how many messages of a queue are packed."""
    return BLOCK_SIZE * len(queue_of(dialogue, path).index.packed)


def texts(messages: Iterable[Message]) -> list[str]:
    return [text_of(one) for one in messages]
