"""Counts the messages of a queue by state, for the control API. Each message is in one state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract import control_operations as control
from broker.core.contract.message import MessageState

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue


def queue_counts(queue: Queue) -> control.QueueCounts:
    """Returns how many messages of a queue are in each state."""
    locked = queue.live_lock_count
    locked_deferred = 0
    if locked and queue.deferred_count:
        deferred = MessageState.DEFERRED
        locks = queue.locks
        live = locks.messages(queue.live_tokens(locks))
        locked_deferred = sum([message.state is deferred for message in live])
    waiting = queue.count - queue.deferred_count - queue.scheduled_count
    return control.QueueCounts(
        active=waiting - (locked - locked_deferred),
        locked=locked,
        deferred=queue.deferred_count - locked_deferred,
        scheduled=queue.scheduled_count,
    )
