"""A namespace that is restored after any commit equals the live one.

Random clients make the commands. After each turn a new namespace is restored from a store, in
memory, in a file or in a database, and must be the same, except for locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.memory import MemoryStore
from storage.sqlite.store import SqliteStore
from storage.urls import store_for
from tests.model.namespace_state import NamespaceState, namespace_state
from tests.model.random_choices import SeededChoices
from tests.model.random_commands import RandomCommands, run_random_commands
from tests.model.run_entities import new_namespace
from tests.support.owned_stores import open_as_owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record
    from broker.core.namespace import Namespace
    from storage.contract import Store


REOPENED_EVERY_TURNS = 20


class Follower:
    """A store that gets the records of every turn, and is restored after each."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.turns = 0
        self._highest: dict[tuple[str, int], int] = {}

    def __call__(self, records: Sequence[Record], live: Namespace, now_ms: int) -> None:
        if records:
            self.store.commit(records)
        self.turns += 1
        if self.turns % REOPENED_EVERY_TURNS == 0:
            self.store.close()
            open_as_owner(self.store)
        restored = new_namespace()
        restored.restore(self.store.load(), now_ms)
        expected, actual = namespace_state(live, now_ms), namespace_state(restored, now_ms)
        self._check_numbers(expected, actual)
        assert _unnumbered(expected) == _unnumbered(actual)
        self._check_bodies(live, actual)

    def _check_numbers(self, live: NamespaceState, restored: NamespaceState) -> None:
        """What a message has had as its number, no other gets: not in this queue.

        Numbers set aside for nothing may come again. A topic's own are remembered by copies only:
        they may come again, too, or go on from those of another entity that forwards to it.
        """
        before, self._highest = self._highest, {}
        for path, entity in live.entities.items():
            for sub_queue, queue in enumerate(entity.queues):
                place = path, sub_queue
                numbers = [row.sequence_number for row in queue.messages]
                self._highest[place] = max([before.get(place, 0), *numbers])
                last = restored.entities[path].queues[sub_queue].last_sequence_number
                assert self._highest[place] <= last
                assert last <= queue.last_sequence_number or entity.definition.kind == "topic"

    def _check_bodies(self, live: Namespace, restored: NamespaceState) -> None:
        """Every body a message refers to is there, as it was sent, and no other."""
        bodies = self.store.read_payloads(range(1, live._context.ids.next_message_id))
        assert set(restored.payload_references) == set(bodies)
        for entity in live._directory:
            for queue in entity.queues:
                for message in queue.index.walk():
                    if message.body is not None:
                        assert bodies[message.payload_id] == (message.body, message.annotations)


def _unnumbered(whole: NamespaceState) -> NamespaceState:
    return whole._replace(
        entities={
            path: entity._replace(
                queues=[queue._replace(last_sequence_number=0) for queue in entity.queues]
            )
            for path, entity in whole.entities.items()
        }
    )


def _run(store: Store, seed: int, steps: int) -> None:
    choices = SeededChoices(seed)
    follower = Follower(store)
    moves = RandomCommands(choices, follower)
    run_random_commands(moves, choices, steps)
    moves.comparison.finish()
    assert follower.turns > steps // 2


@pytest.mark.parametrize("seed", range(100, 116))
def test_restoring_from_memory_gives_what_was_live(seed):
    """After every single turn of a run."""
    _run(MemoryStore(), seed, 150)


@pytest.mark.parametrize("seed", range(200, 206))
def test_restoring_from_a_file_gives_what_was_live(seed, tmp_path):
    """After every single turn of a run."""
    store = SqliteStore(tmp_path / "replay.db")
    store.open()
    try:
        _run(store, seed, 80)
    finally:
        store.close()


@pytest.mark.parametrize("seed", range(250, 253))
def test_restoring_from_a_database_gives_what_was_live(seed, postgres_server):
    """After every single turn of a run."""
    store = store_for(postgres_server.url())
    open_as_owner(store)
    try:
        _run(store, seed, 80)
    finally:
        store.close()
