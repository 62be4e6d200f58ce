"""A turn asks nobody while nobody waits, and wakes only those whose queue it may have changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.app.runtime.change_waits import ChangeWaits
from broker.core.contract.turn import Turn


class Watch:
    """Stands in for a watch of the core."""

    def __init__(self) -> None:
        self.changes = False
        self.turns = 0

    def has_changed(self, turn: Turn) -> bool:
        self.turns += 1
        return self.changes


class Namespace:
    """Stands in for a namespace: gives each path a watch."""

    def __init__(self) -> None:
        self.watches: dict[str | None, Watch] = {}

    def watch(self, path: str | None) -> Watch:
        return self.watches.setdefault(path, Watch())


@pytest.fixture
def turns() -> Any:
    return SimpleNamespace(after_turn=None)


def waits_on(turns: Any, **namespaces: Any) -> ChangeWaits:
    return ChangeWaits(namespaces, turns)


def test_turns_are_watched_only_while_somebody_waits(turns):
    waits = waits_on(turns, ns=Namespace())
    watched = [turns.after_turn is not None]
    with waits.wait("ns", ["q"]):
        with waits.wait("ns", ["q"]):
            watched.append(turns.after_turn is not None)
        watched.append(turns.after_turn is not None)
    watched.append(turns.after_turn is not None)
    assert [False, True, True, False] == watched


def test_a_wait_is_woken_by_a_change_of_one_of_its_queues(turns):
    namespace = Namespace()
    woken = []
    with waits_on(turns, ns=namespace).wait("ns", ["a", "b"]) as wait:
        for changes in (False, True, False):
            wait.clear()
            namespace.watches["b"].changes = changes
            turns.after_turn(Turn())
            woken.append(wait.is_changed)
    assert [False, True, False] == woken
    assert [3, 3] == [watch.turns for watch in namespace.watches.values()]


def test_a_namespace_that_was_restored_from_the_store_counts_as_changed(turns):
    namespaces: dict[str, Any] = {"ns": Namespace()}
    with ChangeWaits(namespaces, turns).wait("ns", ["a"]) as wait:
        namespaces["ns"] = Namespace()
        turns.after_turn(Turn())
        assert wait.is_changed
        assert ["a"] == list(namespaces["ns"].watches)
