"""Duplicate detection: the message ids that an entity has seen within its window.

An id counts until exactly the end of its time. The store may delete it a little later.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from broker.core.contract.records import MessageIdsDeleted, MessageIdsForgotten, MessageIdsSeen
from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from broker.core.contract.turn import Turn
    from broker.core.queues.namespace_context import NamespaceContext

_SWEEPS_PER_WINDOW = 20
SWEPT_MIN_IDS = 100
SWEPT_MAX_IDS = 1_000
SWEEP_PARTS = 500
"""Ids are removed in parts: a 500th of them, but at least 100 and at most 1,000. The store deletes each from another page,
so that the deletion of all ids of a large window would need more space than a nearly full disk has."""


class DuplicateWindow:
    """The seen ids, oldest first, each with the time until which it counts."""

    __slots__ = ("_context", "_entity_id", "_seen", "_sweep_at_ms", "window_ms")

    def __init__(self, context: NamespaceContext, entity_id: int, window_ms: int) -> None:
        self._context = context
        self._entity_id = entity_id
        self.window_ms = window_ms
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._sweep_at_ms = 0

    def filter_new(self, message_ids: Sequence[str | None], now_ms: int, turn: Turn) -> list[bool]:
        """Returns for each id whether it is new, and records new ids. A message without an id is
        always new."""
        seen = self._seen
        until_ms = now_ms + self.window_ms
        fresh: list[bool] = []
        new_ids: list[tuple[str, int]] = []
        for message_id in message_ids:
            is_new = message_id is None or seen.get(message_id, 0) <= now_ms
            fresh.append(is_new)
            if is_new and message_id is not None:
                seen[message_id] = until_ms
                seen.move_to_end(message_id)
                new_ids.append((message_id, until_ms))
        if new_ids:
            turn.records.append(MessageIdsSeen(self._entity_id, new_ids))
            self._schedule_sweep(until_ms)
        return fresh

    def restore(self, message_id: str, until_ms: int) -> None:
        """Add an id from the store. The oldest come first."""
        self._seen[message_id] = until_ms
        self._schedule_sweep(until_ms)

    def seen(self) -> list[tuple[str, int]]:
        """Returns the seen ids and until when each counts, oldest first."""
        return list(self._seen.items())

    def sweep(self, now_ms: int, turn: Turn) -> None:
        """Remove the ids that have left the window. If they are many, the next ticks remove the rest."""
        self._sweep_at_ms = 0
        if self.sweep_part(now_ms, turn):
            self._context.backlog.add(_Sweep(self, now_ms))

    def sweep_part(self, now_ms: int, turn: Turn) -> bool:
        """Remove some of the ids that have left the window. Returns whether others are left. Ids of the same time are
        removed together, because the store deletes ids by their time."""
        seen = self._seen
        part_ids = _part_ids(len(seen))
        count = last_until_ms = 0
        while seen:
            message_id, until_ms = seen.popitem(last=False)
            is_rest = until_ms <= now_ms and count >= part_ids and until_ms > last_until_ms
            if until_ms > now_ms or is_rest:
                seen[message_id] = until_ms
                seen.move_to_end(message_id, last=False)
                if is_rest:
                    turn.records.append(MessageIdsForgotten(self._entity_id, last_until_ms))
                    return True
                self._schedule_sweep(until_ms)
                break
            count += 1
            last_until_ms = max(last_until_ms, until_ms)
        turn.records.append(MessageIdsForgotten(self._entity_id, now_ms))
        return False

    def forget_all(self) -> int:
        """Remove all ids. Returns the latest time until which one of them counted."""
        until_ms = max(self._seen.values(), default=0)
        self._seen.clear()
        return until_ms

    def close(self) -> DeletedMessageIds:
        """The entity is deleted. Returns the work that deletes the ids from the store."""
        deleted = DeletedMessageIds()
        deleted.add(self._entity_id, self._seen)
        self._seen.clear()
        self._context.deadlines.discard(Due.DUPLICATE_WINDOW, self._sweep_at_ms, (self,))
        return deleted

    def _schedule_sweep(self, oldest_until_ms: int) -> None:
        if not self._sweep_at_ms:
            self._sweep_at_ms = oldest_until_ms + self.window_ms // _SWEEPS_PER_WINDOW
            self._context.deadlines.add(Due.DUPLICATE_WINDOW, self._sweep_at_ms, (self,))


class DeletedMessageIds:
    """The ids that deleted entities have seen. Deletes them from the store, in parts. Implements `Work`."""

    __slots__ = ("_by_entity", "_count")

    ends_with_namespace = False

    def __init__(self) -> None:
        self._by_entity: dict[int, list[str]] = {}
        self._count = 0
        """How many there were at first."""

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def add(self, entity_id: int, message_ids: Collection[str]) -> None:
        """Add ids of one entity."""
        if message_ids:
            self._by_entity.setdefault(entity_id, []).extend(message_ids)
            self._count += len(message_ids)

    def merge(self, others: DeletedMessageIds) -> None:
        """Add all ids of others."""
        for entity_id, message_ids in others._by_entity.items():
            self.add(entity_id, message_ids)

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `Work.do_part`."""
        del count
        left = _part_ids(self._count)
        while self._by_entity and left:
            entity_id, message_ids = next(iter(self._by_entity.items()))
            part = message_ids[-left:]
            del message_ids[-left:]
            if not message_ids:
                del self._by_entity[entity_id]
            left -= len(part)
            turn.records.append(MessageIdsDeleted(entity_id, part))
        return bool(self._by_entity)


def _part_ids(count: int) -> int:
    """Returns how many ids are removed at once if there are so many."""
    return min(max(count // SWEEP_PARTS, SWEPT_MIN_IDS), SWEPT_MAX_IDS)


class _Sweep:
    """The rest of a sweep. Implements `Work`."""

    __slots__ = ("_now_ms", "_window")

    ends_with_namespace = True

    def __init__(self, window: DuplicateWindow, now_ms: int) -> None:
        self._window = window
        self._now_ms = now_ms

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `Work.do_part`."""
        del count
        return self._window.sweep_part(self._now_ms, turn)
