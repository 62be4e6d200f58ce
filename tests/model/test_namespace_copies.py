"""A copy of a namespace, taken at any moment, equals the original.

Random clients make the commands. After some of the turns the namespace is copied in parts, into a
namespace that keeps all bodies in memory or into one that packs messages. The copy, the namespace
that is restored from the records of the copy, and a copy of the copy must all be the same, except
for ids and locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.core.contract.errors import NamespaceNotFound
from broker.core.contract.turn import Turn
from broker.core.namespace_copy import NamespaceCopy
from storage.memory import MemoryStore
from storage.sqlite.store import SqliteStore
from storage.urls import store_for
from tests.model.namespace_state import namespace_state
from tests.model.random_choices import SeededChoices
from tests.model.random_commands import RandomCommands, run_random_commands
from tests.model.run_entities import new_namespace
from tests.support.owned_stores import open_as_owner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from broker.core.contract.records import Record
    from broker.core.namespace import Namespace
    from storage.contract import Store

COPIED_EVERY_TURNS = 10


def copied(
    original: Namespace, copy: Namespace, now_ms: int, store: Store, records: list[Record], part=7
) -> Namespace:
    """Copy in parts of so many messages. Bodies that are not in memory come from the store."""
    copying = NamespaceCopy(original, copy, now_ms)
    turn = Turn()
    while copying.copy_entities(part):
        pass
    while messages := copying.next_messages(part):
        missing = [one.payload_id for one in messages if one.body is None]
        copying.copy_messages(messages, store.read_payloads(missing), turn)
    while copying.copy_message_ids(part, turn):
        pass
    copying.finish(turn)
    records += turn.records
    return copy


def comparable(namespace: Namespace, now_ms: int) -> dict[str, Any]:
    """The state without ids. Payloads are numbered in the order of their first message."""
    state = namespace_state(namespace, now_ms)
    payloads: dict[int, int] = {}
    comparable = {}
    for path, entity in sorted(state.entities.items()):
        queues = [
            queue._replace(
                messages=[
                    row._replace(
                        id=0,
                        entity_id=0,
                        payload_id=payloads.setdefault(row.payload_id, len(payloads)),
                    )
                    for row in queue.messages
                ]
            )
            for queue in entity.queues
        ]
        definition = entity.definition._replace(entity_id=0, namespace="")
        comparable[path] = entity._replace(definition=definition, queues=queues)
    return comparable


def bodies(namespace: Namespace, store: Store) -> list[tuple[bytes, bytes]]:
    """The bodies of all messages, in order."""
    return [
        store.read_payloads([one.payload_id])[one.payload_id]
        if one.body is None
        else (one.body, one.annotations)
        for entity in sorted(namespace.entities(), key=lambda entity: entity.path)
        for queue in entity.queues
        for one in queue.index.walk()
    ]


class Copier:
    """Copies the namespace after some turns."""

    def __init__(self, store: Store, budget_bytes: int | None) -> None:
        self.store = store
        self._budget_bytes = budget_bytes
        self.turns = 0
        self.copied_messages = 0

    def __call__(self, records: Sequence[Record], live: Namespace, now_ms: int) -> None:
        if records:
            self.store.commit(records)
        self.turns += 1
        if self.turns % COPIED_EVERY_TURNS:
            return
        ids = live.context.ids
        expected = comparable(live, now_ms)
        expected_bodies = bodies(live, self.store)
        written: list[Record] = []
        snapshot = copied(live, self._new(ids), now_ms, self.store, written)
        self.store.commit(written)
        assert expected == comparable(live, now_ms)
        assert expected == comparable(snapshot, now_ms)
        written.clear()
        again = copied(snapshot, self._new(ids), now_ms, self.store, written, part=100)
        self.store.commit(written)
        assert expected == comparable(snapshot, now_ms)
        assert expected == comparable(again, now_ms)
        assert expected_bodies == bodies(again, self.store)
        self._check_restored(written, expected, expected_bodies, ids, now_ms)
        self.copied_messages += len(expected_bodies)
        # Deleting the copies leaves the original as it was.
        self._delete(snapshot)
        self._delete(again)
        assert expected_bodies == bodies(live, self.store)
        held = self.store.read_payloads(range(1, ids.next_message_id))
        assert set(namespace_state(live, now_ms).payload_references) == set(held)

    def _new(self, ids) -> Namespace:
        copy = new_namespace(ids=ids, payload_budget_bytes=self._budget_bytes)
        copy.context.payloads.messages_max = 0
        return copy

    def _check_restored(self, written, expected, expected_bodies, ids, now_ms) -> None:
        """A restart after the copy restores the copy."""
        apart = MemoryStore()
        apart.commit(written)
        restored = self._new(ids)
        restored.restore(apart.load(), now_ms)
        assert expected == comparable(restored, now_ms)
        assert expected_bodies == bodies(restored, apart)

    def _delete(self, copy: Namespace) -> None:
        turn = Turn()
        works = copy.close(NamespaceNotFound("copy"), turn)
        for work in works:
            while work.do_part(5, turn):
                pass
        self.store.commit(turn.records)


def _run(store: Store, seed: int, steps: int, budget_bytes: int | None) -> None:
    choices = SeededChoices(seed)
    copier = Copier(store, budget_bytes)
    run_random_commands(RandomCommands(choices, copier), choices, steps)
    assert copier.copied_messages


@pytest.mark.parametrize("budget_bytes", [None, 1 << 20], ids=["in memory", "packed"])
@pytest.mark.parametrize("seed", range(300, 308))
def test_a_copy_equals_the_original(seed, budget_bytes):
    """At many moments of a run, with deferred, scheduled, locked and dead-lettered messages."""
    _run(MemoryStore(), seed, 150, budget_bytes)


@pytest.mark.parametrize("seed", range(400, 403))
def test_a_copy_in_a_file_equals_the_original(seed, tmp_path):
    """As in memory."""
    store = SqliteStore(tmp_path / "copies.db")
    store.open()
    try:
        _run(store, seed, 80, 1 << 20)
    finally:
        store.close()


def test_a_copy_in_a_database_equals_the_original(postgres_server):
    """As in memory."""
    store = store_for(postgres_server.url())
    open_as_owner(store)
    try:
        _run(store, 410, 80, 1 << 20)
    finally:
        store.close()
