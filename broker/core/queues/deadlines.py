"""The deadlines of a namespace: a heap of times, and the items of each time.

Items with the same time share a bucket, in the order in which they were added. Removing an item
leaves nothing behind. `operations/due_actions.py` acts on items that are due.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_STALE_TIMES_ALLOWED = 64


class Due(IntEnum):
    """The kinds of deadlines. At one moment they are due in this order."""

    SESSION_LOCK = 0
    MESSAGE_LOCK = 1
    SCHEDULED = 2
    TIME_TO_LIVE = 3
    SESSION_WAIT = 4
    DUPLICATE_WINDOW = 5
    TRANSACTION = 6
    IDLE_ENTITY = 7


class Deadlines:
    """A heap of distinct times, with a bucket of items by kind for each."""

    __slots__ = ("_buckets", "_moments")

    def __init__(self) -> None:
        self._moments: list[int] = []
        """A heap. It may contain times without a bucket. They are skipped, and removed when there
        are many."""
        self._buckets: dict[int, dict[Due, dict[Any, None]]] = {}

    def add(self, kind: Due, at_ms: int, items: Iterable[object]) -> None:
        """Add items that are due at a time. None of them may be there yet."""
        bucket = self._buckets.get(at_ms)
        if bucket is None:
            self._buckets[at_ms] = {kind: dict.fromkeys(items)}
            heappush(self._moments, at_ms)
            return
        waiting = bucket.get(kind)
        if waiting is None:
            bucket[kind] = dict.fromkeys(items)
        else:
            waiting.update(dict.fromkeys(items))

    def discard(self, kind: Due, at_ms: int, items: Iterable[object]) -> None:
        """Remove items of a time. Items that are not there are ignored."""
        bucket = self._buckets.get(at_ms)
        if bucket is None:
            return
        waiting = bucket.get(kind)
        if waiting is None:
            return
        for item in items:
            waiting.pop(item, None)
        if waiting:
            return
        del bucket[kind]
        if bucket:
            return
        del self._buckets[at_ms]
        if len(self._moments) > 2 * len(self._buckets) + _STALE_TIMES_ALLOWED:
            self._moments = list(self._buckets)
            heapify(self._moments)

    def has(self, kind: Due, at_ms: int, item: object) -> bool:
        """Returns whether an item is due at a time."""
        return item in self._buckets.get(at_ms, {}).get(kind, ())

    def earliest_ms(self) -> int | None:
        """Returns the earliest time with an item, or None."""
        moments = self._moments
        while moments:
            if moments[0] in self._buckets:
                return moments[0]
            heappop(moments)
        return None

    def take_due(self, now_ms: int) -> Iterator[tuple[int, Due, dict[Any, None]]]:
        """Remove and return due items with their times, earliest first. Includes items that are
        added meanwhile. The caller owns the items."""
        while (at_ms := self.earliest_ms()) is not None and at_ms <= now_ms:
            heappop(self._moments)
            bucket = self._buckets.pop(at_ms)
            for kind in sorted(bucket):
                yield at_ms, kind, bucket[kind]
