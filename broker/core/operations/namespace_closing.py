"""Ends a namespace that is deleted, or replaced by a copy of a snapshot.

Its entities are gone at once. Its messages and the message ids that it has seen are deleted in parts by another namespace,
because this one gets no commands any more. If the broker stops in between, the next start deletes the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from broker.core.contract.effects import AttachRefused, Detached, Reply
from broker.core.contract.records import EntityDeleted
from broker.core.contract.turn import Turn
from broker.core.queues.duplicate_window import DeletedMessageIds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.errors import BrokerError
    from broker.core.entities.directory import Directory
    from broker.core.operations.waiting_requests import WaitingRequest
    from broker.core.queues.backlog import Work
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue


class ClosedQueues:
    """Queues of a closed namespace. Deletes their messages in parts."""

    __slots__ = ("_queues",)

    ends_with_namespace = False

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = deque(queue for queue in queues if queue.count)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `Work`."""
        while self._queues and count > 0:
            queue = self._queues[0]
            deleted = min(count, queue.count)
            if not queue.do_part(deleted, turn):
                self._queues.popleft()
            count -= deleted
        return bool(self._queues)


class UnstoredDeletion:
    """Work that deletes what the store does not have, so that it leaves memory. It records nothing."""

    __slots__ = ("_work",)

    ends_with_namespace = False

    def __init__(self, work: Work) -> None:
        self._work = work

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `Work`."""
        del turn
        return self._work.do_part(count, Turn())


def close_namespace(
    directory: Directory,
    context: NamespaceContext,
    waiting: Iterable[WaitingRequest],
    error: BrokerError,
    turn: Turn,
) -> list[Work]:
    """Detach all links and refuse the waiting requests with this error. Record that all entities are deleted.
    Returns the work that deletes their messages and seen ids."""
    queues: list[Queue] = []
    message_ids = DeletedMessageIds()
    for entity in directory:
        for receiver in entity.receivers:
            effect = AttachRefused if receiver.waits_for_session else Detached
            turn.effects.append(effect(receiver.peer, error))
        turn.effects += [Detached(peer, error) for peer in entity.senders]
        turn.records.append(EntityDeleted(entity.id))
        queues += entity.queues
        if entity.duplicates is not None:
            message_ids.merge(entity.duplicates.close())
    request: Any
    for request, _ in waiting:
        if request is not None:
            turn.effects.append(Reply(request.peer, request.request, error=error))
    deletions = context.backlog.take_deletions()
    for queue in queues:
        queue.end()
    closed = ClosedQueues(queues)
    return [*deletions, *(work for work in (closed, message_ids) if work)]
