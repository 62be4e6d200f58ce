"""Packs blocks of waiting or scheduled messages, and replaces them by messages again.

`packed_messages.py` is the packed form. Here the index, the ready messages, the deadlines and the bodies of a queue
change together, so that each message is in all of them once, packed or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.message_deadlines import (
    are_due,
    forget_expiry,
    forget_schedules,
    watch_expiry,
    watch_schedule,
)
from broker.core.queues.packed_messages import pack

if TYPE_CHECKING:
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.queue import Queue


def pack_block(queue: Queue, last_number: int) -> None:
    """Packs the block of messages that ends with this number, if all of them only wait, or all are scheduled."""
    messages = queue.index.full_block(last_number)
    payloads, deadlines = queue.context.payloads, queue.context.deadlines
    if messages is None or queue.overdue_ms:
        return
    if payloads.are_awaited(messages) or payloads.are_wanted(messages):
        return
    packed = pack(queue, messages)
    if packed is None:
        return
    if packed.is_scheduled and are_due(deadlines, messages):
        return
    if not queue.delivery.pack(messages, packed):
        return
    if packed.is_scheduled:
        forget_schedules(deadlines, messages)
        watch_schedule(deadlines, (packed,))
    queue.index.pack(packed)
    payloads.add_messages(-packed.count)
    for message in messages:
        if message.body is not None:
            payloads.evict(message)
        message.queue = None  # other references to it are skipped
    if packed.expires_at_ms:
        forget_expiry(deadlines, messages)
        watch_expiry(deadlines, (packed,))


def unpack_block(packed: PackedMessages) -> None:
    """Replaces packed messages by messages in their queue."""
    queue, messages = packed.queue, packed.unpack()
    deadlines = queue.context.deadlines
    queue.index.unpack(packed, messages)
    if packed.is_scheduled:
        forget_schedules(deadlines, (packed,))
        watch_schedule(deadlines, messages)
    if not queue.is_closed:  # a closed queue delivers nothing, and has no sessions any more
        queue.delivery.unpack(packed, messages)
    queue.context.payloads.add_messages(packed.count)
    if packed.expires_at_ms:
        forget_expiry(deadlines, (packed,))
        watch_expiry(deadlines, messages)
