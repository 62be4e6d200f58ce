"""Everything that will fall due: one calendar for all queues of a namespace.

Owns the times and what waits for them; what happens then is decided by whoever put it there.
Items that share a moment share a bucket, in the order they came; what is taken out leaves nothing
behind.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any

_STALE_TIMES_ALLOWED = 64


class Due(IntEnum):
    """What can fall due. At one moment the kinds come in this order."""

    SESSION_LOCK = 0
    MESSAGE_LOCK = 1
    SCHEDULED = 2
    TIME_TO_LIVE = 3
    SESSION_WAIT = 4
    DUPLICATE_WINDOW = 5
    TRANSACTION = 6
    IDLE_ENTITY = 7


class Deadlines:
    """A heap of distinct moments, and a bucket of items by kind for each."""

    __slots__ = ("_buckets", "_moments")

    def __init__(self) -> None:
        self._moments: list[int] = []
        """A heap. May hold moments whose bucket is gone; they are skipped, and swept when many."""
        self._buckets: dict[int, dict[Due, dict[Any, None]]] = {}

    def add(self, kind: Due, at_ms: int, items: Iterable[object]) -> None:
        """Items, none of them waiting for this moment yet, fall due at a time."""
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
        """Items no longer wait for this moment; those that never did are ignored."""
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

    def earliest_ms(self) -> int | None:
        """The next moment anything waits for."""
        moments = self._moments
        while moments:
            if moments[0] in self._buckets:
                return moments[0]
            heappop(moments)
        return None

    def take_due(self, now_ms: int) -> Iterator[tuple[int, Due, Collection[Any]]]:
        """Take out what is due, earliest first, and say since when; what is added meanwhile is
        seen too."""
        while (at_ms := self.earliest_ms()) is not None and at_ms <= now_ms:
            heappop(self._moments)
            bucket = self._buckets.pop(at_ms)
            for kind in sorted(bucket):
                yield at_ms, kind, bucket[kind].keys()
