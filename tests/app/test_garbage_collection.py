"""When the garbage collector runs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from broker.app.runtime.garbage_collection import (
    CALM_INTERVAL_S,
    LONGEST_INTERVAL_S,
    GarbageCollection,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def garbage() -> Iterator[GarbageCollection]:
    """It has begun at 0 seconds; the collector is afterwards as it was before."""
    before = gc.get_threshold()
    collection = GarbageCollection()
    collection.begin(0.0)
    yield collection
    gc.set_threshold(*before)
    gc.unfreeze()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_growth_never_makes_python_look_at_everything(garbage: GarbageCollection) -> None:
    del garbage
    before = _full_collections()
    kept = [[number] for number in range(1_000_000)]
    assert _full_collections() == before
    del kept


def test_cycles_of_new_objects_are_collected(garbage: GarbageCollection) -> None:
    del garbage

    class Cycle:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Cycle.alive += 1

        def __del__(self) -> None:
            Cycle.alive -= 1

    for _ in range(100_000):
        Cycle()
    assert Cycle.alive < 10_000


@pytest.mark.parametrize("is_calm", [True, False])
def test_everything_is_looked_at_when_its_time_has_come(
    garbage: GarbageCollection, is_calm: bool
) -> None:
    interval_s = CALM_INTERVAL_S if is_calm else LONGEST_INTERVAL_S
    gc.collect(1)  # so something has become old
    assert not garbage.collect_if_due(interval_s - 1, is_calm=is_calm)
    before = _full_collections()
    assert garbage.collect_if_due(interval_s, is_calm=is_calm)
    assert _full_collections() == before + 1
    gc.collect(1)
    assert not garbage.collect_if_due(interval_s + 1, is_calm=is_calm)


def test_nothing_is_looked_at_again_if_nothing_has_become_old(garbage: GarbageCollection) -> None:
    gc.disable()
    try:
        assert not garbage.collect_if_due(2 * LONGEST_INTERVAL_S, is_calm=True)
    finally:
        gc.enable()
