"""What the namespaces know about the room of the store."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

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


async def measured(space: DiskSpace) -> None:
    space.check()
    await space.finish()


async def test_the_room_that_is_left_after_a_commit_is_known_at_once():
    """Turns that are not stored yet are subtracted from it."""
    store = MeasuringStore()
    space = DiskSpace(store, "sqlite:", lambda: None)
    await measured(space)
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
    space.close()


async def test_sends_are_refused_and_accepted_as_the_store_has_room():
    """Also after a restart from the store."""
    dialogue = CoreDialogue()
    store = FakeStore()
    again: list[bool] = []
    space = DiskSpace(store, "sqlite:", lambda: again.append(True))
    dialogue.namespace._context.room = space.room
    store.has_room = False
    await measured(space)
    (refused,) = dialogue.run(send("a")).effects
    assert isinstance(refused, SendRefused)
    assert "disk is full" in str(refused.error)
    store.has_room = True
    await measured(space)
    assert [Accepted(S, ["a"])] == dialogue.run(send("a")).effects
    found = []
    for has_room in (False, True):
        store.has_room = has_room
        await space.begin_again()
        found.append(space.room.is_full)
    assert ([True, False], [True, True]) == (found, again)
    space.close()


class HeldStore(FakeStore):
    """A store on a disk that does not answer until a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.asked = 0

    def measure_room(self) -> bool:
        self.asked += 1
        self.may_answer.wait()
        return super().measure_room()


async def test_a_disk_that_does_not_answer_is_asked_once():
    """The event loop goes on, and no thread waits for each check. After the answer it is asked again."""
    store = HeldStore()
    space = DiskSpace(store, "sqlite:", lambda: None)
    for _ in range(5):
        space.check()
        await asyncio.sleep(0.01)
    assert 1 == store.asked
    store.may_answer.set()
    await space.finish()
    await measured(space)
    assert 2 == store.asked
    space.close()


async def test_namespaces_that_were_restored_wait_for_an_answer_that_is_not_too_old():
    """The disk became full after it was asked."""
    store = HeldStore()
    space = DiskSpace(store, "sqlite:", lambda: None)
    space.check()
    await asyncio.sleep(0)
    beginning = asyncio.get_running_loop().create_task(space.begin_again())
    await asyncio.sleep(0.01)
    assert not beginning.done()
    store.may_answer.set()
    await beginning
    assert 2 == store.asked
    space.close()


async def test_a_measurement_that_fails_is_logged_and_made_again():
    """It is no reason to refuse sends."""

    class FailingStore(FakeStore):
        def measure_room(self) -> bool:
            raise MemoryError

    space = DiskSpace(FailingStore(), "sqlite:", lambda: None)
    with capture_logs() as logs:
        await measured(space)
        await measured(space)
    assert ["storage.not_measured"] * 2 == [one["event"] for one in logs]
    assert not space.room.is_full
    space.close()


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


async def test_a_store_in_memory_has_no_limit():
    space = DiskSpace(MemoryStore(), "memory:", lambda: None)
    await measured(space)
    assert not space.room.is_scarce
