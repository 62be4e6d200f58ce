"""Two brokers with one shared store: one serves, the other waits, and what a broker does that has lost the store.

The time is virtual. `tests/failover` does the same with processes and a PostgreSQL server.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.app.runtime.clock import Clock
from broker.app.runtime.durable_core import DurableCore
from broker.core.contract.commands import CreateEntity, GetEntity
from broker.core.contract.errors import ServerBusy
from config.files.topology import Topology
from config.model.definitions import QueueDefinition
from config.settings.settings import Settings
from storage.contract import OwnershipLost, StorageError, StoreUnavailable
from tests.support.core_observer import QuietObserver
from tests.support.shared_store import SharedDatabase, SharedFakeStore
from tests.support.virtual_time import on_virtual_time

NAMESPACE = "sbemulatorns"
LEASE_S = 10.0


class LoopClock(Clock):
    """Leases are measured in the time of the loop, from which a process can be left behind."""

    __slots__ = ("_loop", "stopped_s")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.stopped_s = 0.0

    def uptime_s(self) -> float:  # type: ignore[override]
        return self._loop.time() + self.stopped_s


class Broker(QuietObserver):
    """A process, without its network."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self.store = SharedFakeStore(database, name)
        self.clock = LoopClock()
        self.events: list[str] = []
        settings = Settings(storage="memory:")
        topology = Topology({NAMESPACE: {}})
        self.core = DurableCore(settings, topology, self.clock, self, self.store)

    async def start(self) -> Broker:
        await self.core.open()
        await self.core.begin()
        return self

    async def create(self, name: str) -> None:
        build = partial(CreateEntity, path=name, definition=QueueDefinition())
        await self.core.ask(NAMESPACE, build)

    async def look(self, name: str) -> object:
        """Asks for something that only memory knows: nothing is committed."""
        return await self.core.ask(NAMESPACE, partial(GetEntity, path=name))

    @property
    def queues(self) -> set[str]:
        return {view.path for view in self.core.namespaces[NAMESPACE].views()}

    async def until(self, event: str) -> None:
        async with asyncio.timeout(5 * LEASE_S):
            while event not in self.events:  # noqa: ASYNC110 -- the time is virtual
                await asyncio.sleep(0.01)

    # ---- CoreObserver ---------------------------------------------------------------------------

    def stopped_serving(self, reason: str) -> None:
        self.events.append("stopped")

    def serving_again(self) -> None:
        self.events.append("serving again")


async def pair() -> tuple[Broker, Broker, asyncio.Task[Any]]:
    """An owner with a queue, and a standby."""
    database = SharedDatabase()
    owner, standby = Broker(database, "first"), Broker(database, "second")
    await owner.start()
    await owner.create("orders")
    starting = asyncio.get_running_loop().create_task(standby.start())
    await asyncio.sleep(1)
    assert not starting.done()
    assert owner.core.is_serving
    assert standby.core.not_serving is not None
    assert "standby" == standby.core.not_serving.reason
    assert "first" in standby.core.not_serving.text
    return owner, standby, starting


@on_virtual_time
async def test_a_standby_serves_everything_after_a_planned_hand_over() -> None:
    """Also what was asked for last."""
    owner, standby, starting = await pair()
    await owner.create("last")
    begin_s = asyncio.get_running_loop().time()
    await owner.core.hand_over()
    await starting
    assert asyncio.get_running_loop().time() - begin_s < 1
    assert standby.core.is_serving
    assert {"orders", "last"} <= standby.queues
    with pytest.raises(ServerBusy):
        await asyncio.gather(owner.look("orders"), owner.core.close())


@on_virtual_time
async def test_an_owner_that_cannot_release_the_store_says_so() -> None:
    """It stops all the same."""
    owner, _, starting = await pair()
    owner.store.is_cut_off = True
    with capture_logs() as lines:
        await owner.core.hand_over()
    assert ["ownership.not_released"] == [line["event"] for line in lines]
    assert "cannot be reached" in lines[0]["error"]
    starting.cancel()


@on_virtual_time
async def test_an_owner_that_was_cut_off_stops_and_serves_again_when_the_other_is_gone() -> None:
    """In the same process. It has what the other has stored meanwhile."""
    owner, standby, starting = await pair()
    owner.store.is_cut_off = True
    await starting
    await standby.create("meanwhile")
    await owner.until("stopped")
    owner.store.is_cut_off = False
    await asyncio.sleep(1)
    assert owner.core.not_serving is not None
    assert "second" in owner.core.not_serving.text
    await standby.core.hand_over()
    await owner.until("serving again")
    assert owner.core.is_serving
    assert "meanwhile" in owner.queues
    await owner.create("again")
    epochs = owner.store.database.epochs_of_commits
    assert ([1, 2, 3], sorted(epochs)) == (sorted(set(epochs)), epochs)


@on_virtual_time
async def test_what_a_stopped_owner_does_afterwards_takes_no_effect_and_is_not_answered() -> None:
    """Neither a commit, nor an answer from its memory that needs none."""
    owner, standby, starting = await pair()
    owner.store.is_cut_off = True  # a process that is stopped sends nothing
    owner.clock.stopped_s -= 1e9
    await starting
    owner.clock.stopped_s += 1e9
    owner.store.is_cut_off = False
    asked = asyncio.gather(owner.look("orders"), owner.create("late"), return_exceptions=True)
    answers = await asked
    assert [ServerBusy, ServerBusy] == [type(answer) for answer in answers]
    assert ["stopped"] == owner.events
    assert "late" not in standby.queues
    epochs = standby.store.database.epochs_of_commits
    assert sorted(epochs) == epochs


@on_virtual_time
async def test_an_answer_from_memory_waits_for_the_store_after_a_stop() -> None:
    """If nobody took over, it comes."""
    owner, _, starting = await pair()
    starting.cancel()
    owner.clock.stopped_s += 10 * LEASE_S
    heartbeat = owner.store.database.heartbeat
    assert await owner.look("orders")
    assert owner.store.database.heartbeat > heartbeat
    assert [] == owner.events


@on_virtual_time
async def test_a_broker_starts_again_from_the_store_after_an_outage() -> None:
    """A commit that failed was not answered, and is not in its memory any more."""
    owner, _, starting = await pair()
    starting.cancel()
    owner.store.database.is_available = False
    with pytest.raises(ServerBusy):
        await owner.create("lost")
    assert owner.core.not_serving is not None
    owner.store.database.is_available = True
    await owner.until("serving again")
    assert "lost" not in owner.queues
    await owner.create("lost")
    assert owner.core.not_serving is None


@on_virtual_time
async def test_a_start_waits_for_the_database_for_as_long_as_the_settings_say() -> None:
    """Then it fails with a sentence that names the setting."""
    database = SharedDatabase()
    database.is_available = False
    late = Broker(database, "late")
    starting = asyncio.get_running_loop().create_task(late.start())
    await asyncio.sleep(30)
    assert late.core.not_serving is not None
    assert "storage_unavailable" == late.core.not_serving.reason
    database.is_available = True
    await starting

    database.is_available = False
    with pytest.raises(StoreUnavailable, match="storage_wait"):
        await Broker(database, "never").start()


@on_virtual_time
async def test_a_store_that_is_lost_while_it_is_loaded_is_loaded_again() -> None:
    """The start does not fail: it waits for the store again."""
    owner, standby, starting = await pair()
    load = standby.store.load
    failures: list[StorageError] = [StoreUnavailable("gone"), OwnershipLost("taken")]

    def failing_load() -> Any:
        if failures:
            raise failures.pop()
        return load()

    standby.store.load = failing_load  # type: ignore[method-assign]
    await owner.core.hand_over()
    await starting
    assert not failures
    assert standby.core.is_serving
    assert "orders" in standby.queues


@on_virtual_time
async def test_a_store_that_changes_while_it_is_loaded_is_loaded_again() -> None:
    """The process was stopped for the lease time. Another one owns the store then, and changes what is being read."""
    owner, standby, starting = await pair()
    load = standby.store.load
    third = SharedFakeStore(owner.store.database, "third")
    loads = 0

    def load_of_a_stopped_process() -> Any:
        nonlocal loads
        loads += 1
        if loads == 1:
            standby.clock.stopped_s += 2 * LEASE_S
            assert third.take_over(third.read_lease().heartbeat)
            raise KeyError("a block of the new owner")
        return load()

    standby.store.load = load_of_a_stopped_process  # type: ignore[method-assign]
    await owner.core.hand_over()
    await asyncio.sleep(1)
    assert not starting.done()
    third.release()
    await starting
    assert standby.core.is_serving
    assert "orders" in standby.queues
