"""Reads what the overview of the control API shows of each entity: counts, totals for rates, the oldest message.

The totals are counters that queues have anyway, so sending and receiving cost nothing more. One operation reads a
limited number of entities and looks at a limited number of messages of each. Nothing is changed.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.core.contract import control_operations as control
from broker.core.contract.counting import Outcome
from broker.core.contract.message import MessageState
from broker.core.operations.control_counts import queue_counts

if TYPE_CHECKING:
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.queues.queue import Queue

LOOKED_AT_MAX = 100
"""How many messages of a queue are looked at for the oldest one, and how many of its locks."""
EXPIRING_MS = 10_000
"""A lock expires soon if it ends within this time, or within a quarter of the lock duration if that is shorter."""
_REFUSALS = (Outcome.SEND_REFUSED, Outcome.SETTLE_REFUSED, Outcome.ATTACH_REFUSED)


class ControlActivity:
    """Reads the activity of entities."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def list_paths(self, operation: control.ListPaths, now_ms: int, turn: Turn) -> list[str]:
        """Returns the paths of all entities."""
        del operation, now_ms, turn
        return [entity.path for entity in self._directory]

    def read(
        self, operation: control.ReadActivity, now_ms: int, turn: Turn
    ) -> list[control.EntityActivity]:
        """Returns the activity of entities."""
        del turn
        found = map(self._directory.get, operation.paths)
        return [_activity(entity, now_ms) for entity in found if entity is not None]


def _activity(entity: Entity, now_ms: int) -> control.EntityActivity:
    main = entity.main
    counts = main.counts
    sessions = main.sessions
    return control.EntityActivity(
        entity.path,
        entity.kind,
        queue_counts(main),
        entity.dead_letters.count,
        entity.transfer_dead_letters.count,
        # A topic keeps no messages, so its queue assigns no numbers.
        arrived_total=counts.get(Outcome.ACCEPTED, 0)
        if entity.kind == "topic"
        else main.last_sequence_number,
        delivered_total=counts.get(Outcome.DELIVERED, 0),
        refused_total=sum([counts.get(one, 0) for one in _REFUSALS]) if counts else 0,
        oldest_enqueued_ms=_oldest_ms(main) if main.count else 0,
        expiring_locks=_expiring_locks(main, now_ms) if main.locks else 0,
        receivers=entity.receiver_count,
        senders=len(entity.senders),
        size_bytes=main.size_bytes,
        held_sessions=None if sessions is None else sessions.held_count,
    )


def _oldest_ms(queue: Queue) -> int:
    for message in islice(queue.index.look(), LOOKED_AT_MAX):
        if message.state is not MessageState.SCHEDULED:
            return message.enqueued_time_ms
    return 0


def _expiring_locks(queue: Queue, now_ms: int) -> int:
    ends_ms = now_ms + min(EXPIRING_MS, queue.lock_duration_ms // 4)
    # The first of the dict were locked first, so they expire first, unless they were renewed.
    first = islice(queue.locks.values(), LOOKED_AT_MAX)
    return sum([now_ms < message.locked_until_ms <= ends_ms for message in first])
