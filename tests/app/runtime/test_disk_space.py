"""What the namespaces know about the room of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.runtime.clock import Clock
from broker.app.runtime.disk_space import DiskSpace
from broker.app.runtime.durable_core import DurableCore
from broker.core.contract.turn import Turn
from config.files.topology import Topology
from config.model.definitions import QueueDefinition
from config.settings.settings import Settings
from storage.contract import Room
from storage.memory import MemoryStore
from tests.support.core_dialogue import Accepted, CoreDialogue, S, SendRefused, send
from tests.support.core_observer import QuietObserver
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record

NAMESPACE = "sbemulatorns"
SOME = Room(10_000, 20_000)


class MeasuringStore(FakeStore):
    """A store with scarce room. Each commit leaves less of it."""

    def __init__(self) -> None:
        super().__init__()
        self.room = SOME

    def commit(self, records: Sequence[Record]) -> None:
        super().commit(records)
        if records:
            self.room = Room(self.room.message_bytes - 1_000, self.room.state_bytes)


def test_the_room_that_is_left_after_a_commit_is_known_at_once():
    """Turns that are not stored yet are subtracted from it."""
    store = MeasuringStore()
    space = DiskSpace(store, "sqlite:", {})
    space.check()
    first, second = Turn(), Turn()
    space.room.take(3_000, first)
    space.room.take(4_000, second)
    assert space.room.has(3_000)
    assert not space.room.has(3_001)
    store.room = Room(7_000, 7_000)
    space.stored(first)
    assert space.room.has(3_000)
    assert not space.room.has(3_001)
    store.room = Room(3_000, 3_000)
    space.stored(second)
    assert space.room.has(3_000)


def test_sends_are_refused_and_accepted_as_the_store_has_room():
    """A restart from the store begins with what the store says then."""
    dialogue = CoreDialogue()
    store = FakeStore()
    space = DiskSpace(store, "sqlite:", {"ns": dialogue.namespace})
    store.has_room = False
    assert not space.check()
    (refused,) = dialogue.run(send("a")).effects
    assert isinstance(refused, SendRefused)
    assert "disk is full" in str(refused.error)
    store.has_room = True
    assert space.check()
    assert [Accepted(S, ["a"])] == dialogue.run(send("a")).effects
    store.has_room = False
    space.check()
    store.has_room = True
    space.begin_again()
    assert space.sends_refused is None


async def test_namespaces_know_the_room_from_the_start_and_after_each_commit():
    """Those of which nothing is stored have no limit."""
    store = MeasuringStore()
    core = DurableCore(
        Settings(storage="memory:"),
        Topology({NAMESPACE: {"q": QueueDefinition()}}),
        Clock(),
        QuietObserver(),
        store,
    )
    await core.open()
    await core.begin()
    room = core.namespaces[NAMESPACE]._context.room
    assert room.is_scarce
    assert room.has(store.room.message_bytes)
    assert not room.has(store.room.message_bytes + 1)
    assert not core.new_namespace("other", in_memory=True)._context.room.is_scarce
    await core.close()


def test_a_store_in_memory_has_no_limit():
    space = DiskSpace(MemoryStore(), "memory:", {})
    space.check()
    assert not space.room.is_scarce
