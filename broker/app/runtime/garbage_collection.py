"""Decides when the garbage collector runs, and for how long.

Python frees an object with its last reference; the collector only finds objects that refer to each
other in a cycle. Messages are many and hold no cycles, and a connection leaves none behind, so almost
everything that the collector looks at stays. A collection stops the whole process for as long as it
takes to look at its objects. So new objects are examined in small numbers, and all objects only when
the broker is idle.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 3_000
"""Examining them takes less than a millisecond. Smaller numbers cost as much in total."""
COLLECTIONS_OF_NEW = 2
"""After more collections than this, the survivors are examined again, in some two milliseconds."""
NEVER = 1 << 30
"""Examining a million messages takes a quarter of a second, so Python must not do that by itself."""

CALM_INTERVAL_S = 600.0
"""How long after the last full collection the next one is done, if the broker is idle."""
LONGEST_INTERVAL_S = 6 * 3600.0
"""The same, if the broker is not idle."""


class GarbageCollection:
    """Decides when the collector runs."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._survivor_collections = 0
        """How many collections of survivors there were at the last full collection."""

    def begin(self, now_s: float) -> None:
        """Enables collection. Objects created so far live as long as the process, and are not examined."""
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS, COLLECTIONS_OF_NEW, NEVER)
        gc.enable()
        self._note(now_s)

    def collect_if_due(self, now_s: float, *, is_calm: bool) -> bool:
        """Collects all garbage if it is time to. Returns whether it did."""
        passed_s = now_s - self._last_s
        if passed_s < (CALM_INTERVAL_S if is_calm else LONGEST_INTERVAL_S):
            return False
        if _survivor_collections() == self._survivor_collections:
            return False  # no objects have survived since then
        gc.collect()
        self._note(now_s)
        return True

    def _note(self, now_s: float) -> None:
        self._last_s = now_s
        self._survivor_collections = _survivor_collections()


def collect_replaced() -> None:
    """Frees the namespaces that a restoration has just replaced. They contain reference cycles, so only a collection frees
    them. Those that existed when the process called `GarbageCollection.begin` are frozen, so they are unfrozen first."""
    has_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if has_frozen:
        gc.freeze()


def _survivor_collections() -> int:
    return int(gc.get_stats()[1]["collections"])
