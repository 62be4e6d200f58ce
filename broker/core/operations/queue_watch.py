"""Tells whether a turn has changed the messages, locks or sessions of a queue.

Whoever waits for a state of a queue reads it again only after such a turn. Nothing is recorded for this: the watch
compares the counts of the queue with those before the turn, and looks for the queue among the counters that the turn
increases. Every change shows in one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import EntityNotFound

if TYPE_CHECKING:
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue


class QueueWatch:
    """Watches a queue, or all queues of a namespace."""

    __slots__ = ("_context", "_directory", "_mark", "_path")

    def __init__(self, context: NamespaceContext, directory: Directory, path: str | None) -> None:
        self._context = context
        self._directory = directory
        self._path = path
        self._mark = self._marked()

    def has_changed(self, turn: Turn) -> bool:
        """Returns whether a turn, or one since the last call, may have changed a queue. Must be called after each
        turn."""
        before, self._mark = self._mark, self._marked()
        if before != self._mark:
            return True
        if self._path is None:
            return bool(turn.records or turn.counts)
        queue = self._queue()
        return queue is not None and any(one[0] is queue.counts for one in turn.counts)

    def _queue(self) -> Queue | None:
        if self._path is None:
            return None
        try:
            return self._directory.queue(self._path)
        except EntityNotFound:
            return None

    def _marked(self) -> tuple[object, ...]:
        queue = self._queue()
        sessions = self._context.session_lock_changes
        if queue is None:
            return (sessions,)
        return (
            sessions,
            queue.entity_id,
            queue.count,
            queue.deferred_count,
            queue.scheduled_count,
            queue.last_sequence_number,
            len(queue.locks),
            queue.overdue_ms,
        )
