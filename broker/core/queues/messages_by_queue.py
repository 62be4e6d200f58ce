"""Divides messages by the queue that they are in.

What is due at one moment may concern several queues. Each queue gets its messages in the order of their numbers.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from broker.core.queues.queue import queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.message import Message
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.queue import Queue

Queued = TypeVar("Queued", "Message", "Message | PackedMessages")
_SEQUENCE_NUMBER = attrgetter("sequence_number")


def by_queue(messages: Iterable[Queued]) -> dict[Queue, list[Queued]]:
    """Returns messages by their queue, in the order of their numbers. Messages in no queue, or in a
    closed queue, are left out."""
    every = list(messages)
    queue = queue_of(every[0]) if every else None
    alike = [message for message in every if message.queue is queue]
    if len(alike) == len(every):  # messages with the same deadline are nearly always in one queue
        if queue is None or queue.is_closed:
            return {}
        alike.sort(key=_SEQUENCE_NUMBER)
        return {queue: alike}
    queues: dict[Queue, list[Queued]] = {}
    for message in every:
        queue = queue_of(message)
        if queue is not None and not queue.is_closed:
            queues.setdefault(queue, []).append(message)
    for alike in queues.values():
        alike.sort(key=_SEQUENCE_NUMBER)
    return dict(sorted(queues.items(), key=lambda item: item[1][0].id))
