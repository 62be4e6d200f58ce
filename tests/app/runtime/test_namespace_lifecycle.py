"""Namespaces and snapshots in the running core: what waits, what fails as a whole, and what is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from broker.app.runtime import namespace_lifecycle
from broker.app.runtime.clock import Clock
from broker.app.runtime.durable_core import DurableCore
from broker.app.runtime.namespace_lifecycle import NamespaceLifecycle
from broker.core.contract.commands import AttachReceiver, AttachSender, Credit, Peek, Send
from broker.core.contract.effects import Deliver, Detached, SendAccepted
from broker.core.contract.errors import (
    NamespaceAlreadyExists,
    NamespaceNotFound,
    NamespaceRestored,
    NotAllowed,
    QuotaExceeded,
    ServerBusy,
    SnapshotNotFound,
)
from broker.core.contract.message import Message
from broker.core.contract.records import EntityStored, MessagesStored
from broker.core.contract.settlement_values import ReceiveMode
from config.files.topology import Topology
from config.model.definitions import QueueDefinition
from config.model.limits import RELAXED
from config.settings.settings import Settings
from storage.contract import Room
from tests.support.core_observer import QuietObserver
from tests.support.fake_store import FakeStore, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.turn import Turn

DEFAULT = "sbemulatorns"
QUEUE = {"q": QueueDefinition()}


class Clients(QuietObserver):
    """Records which connections would be closed."""

    def __init__(self) -> None:
        self.closed: list[tuple[str, type[BrokerError]]] = []

    def closer(self, namespace: str) -> Callable[[BrokerError], None]:
        return lambda error: self.closed.append((namespace, type(error)))


class Peer:
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def receive(self, effect: Effect) -> None:
        self.effects.append(effect)

    def got(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


class Broker:
    """A core with a store, and its lifecycle."""

    def __init__(self, store: FakeStore, **limits: int) -> None:
        self.store = store
        self.clients = Clients()
        self.clock = Clock()
        topology = Topology({DEFAULT: QUEUE})
        self.core = DurableCore(Settings(), topology, self.clock, self.clients, store)
        numbers = count(1)
        self.lifecycle = NamespaceLifecycle(
            self.core,
            self.clock,
            replace(RELAXED, **limits),  # type: ignore[arg-type]
            self.clients,
            lambda size: next(numbers).to_bytes(size, "big"),
        )

    async def start(self) -> Broker:
        await self.core.open()
        await self.core.begin()
        return self

    async def send(self, namespace: str, *texts: str) -> Peer:
        peer = Peer()
        submit = self.core.enter(namespace)
        submit(AttachSender(peer, "q"))
        submit(Send(peer, [Message(text.encode()) for text in texts], list(texts)))
        await self._until(lambda: bool(peer.got(SendAccepted)))
        return peer

    async def receive(self, namespace: str, most: int, expected: int) -> list[str]:
        peer = Peer()
        submit = self.core.enter(namespace)
        submit(AttachReceiver(peer, "q", ReceiveMode.RECEIVE_AND_DELETE))
        submit(Credit(peer, most))

        def messages() -> list[Message]:
            return [one for effect in peer.got(Deliver) for one in effect.messages]

        await self._until(lambda: len(messages()) >= expected)
        return [(one.body or b"").decode() for one in messages()]

    async def peek(self, namespace: str) -> list[str]:
        found: Any = await self.core.ask(
            namespace, lambda peer, request: Peek(peer, request, "q", 0, 1_000)
        )
        return [(one.body or b"").decode() for one in found]

    @staticmethod
    async def _until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110 -- the core sets no events
                await asyncio.sleep(0.001)


@pytest.fixture
async def broker() -> Any:
    started = await Broker(FakeStore()).start()
    yield started
    await started.core.close()


async def test_commands_wait_while_their_namespace_is_copied(broker: Broker, monkeypatch):
    """They are done afterwards, in order, and are not in the snapshot. Another namespace is served meanwhile."""
    monkeypatch.setattr(namespace_lifecycle, "PART_MESSAGES", 2)
    name = await broker.lifecycle.create("other", QUEUE)
    peer = await broker.send(name, *(f"{number}" for number in range(10)))
    loop = asyncio.get_running_loop()
    taking = loop.create_task(broker.lifecycle.take_snapshot(name, "s", is_ephemeral=False))
    await asyncio.sleep(0)
    submit = broker.core.enter(name)
    submit(Send(peer, [Message(b"late")], ["late"]))
    await broker.send(DEFAULT, "neighbour")
    taken = await taking
    assert 10 == taken.message_count
    await broker._until(lambda: len(peer.got(SendAccepted)) == 2)
    assert [*(f"{number}" for number in range(10)), "late"] == await broker.peek(name)
    await broker.lifecycle.restore_snapshot(name, "s")
    assert 10 == len(await broker.peek(name))


async def test_a_restore_is_durable_when_it_is_answered(broker: Broker):
    """The links of clients have ended with an error that SDKs retry, and their connections are closed."""
    name = await broker.lifecycle.create(None, QUEUE)
    peer = await broker.send(name, "a", "b")
    await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=False)
    assert ["a", "b"] == await broker.receive(name, 5, 2)
    await broker.lifecycle.restore_snapshot(name, "s")
    assert [NamespaceRestored] == [type(effect.error) for effect in peer.got(Detached)]
    assert [(name, NamespaceRestored)] == broker.clients.closed
    again = await Broker(broker.store).start()
    assert ["a", "b"] == await again.peek(name)
    assert "s" == again.lifecycle.snapshot(name, "s").definition.name


async def test_old_messages_are_deleted_from_the_store(broker: Broker):
    """After a restore and after a deletion, the store has only what can be reached."""
    name = await broker.lifecycle.create(None, QUEUE)
    await broker.send(name, *(f"{number}" for number in range(3_000)))
    await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=True)
    await broker.lifecycle.restore_snapshot(name, "s")
    await broker._until(lambda: len(broker.store._messages) == 3_000)
    await broker.lifecycle.delete(name)
    await broker._until(lambda: not broker.store._messages and not broker.store._payloads)
    content = broker.store.load()
    assert ([], [DEFAULT]) == (content.namespaces, [one.namespace for one in content.entities])
    assert [(name, NamespaceRestored), (name, NamespaceNotFound)] == broker.clients.closed


def _fail_at(store: FakeStore, at: int) -> None:
    """Let the disk be full at one of the next commits."""
    commit = store.commit
    numbers = count()

    def fail_once(records: Any) -> None:
        if next(numbers) == at:
            store.fault = StoreFault.FULL
        commit(records)

    store.commit = fail_once  # type: ignore[method-assign]


@pytest.mark.parametrize("operation", ["take", "restore", "branch"])
@pytest.mark.parametrize("at", range(3))
async def test_a_full_disk_in_the_middle_changes_nothing(
    broker: Broker, monkeypatch, operation, at
):
    """The operation is refused, and the namespace is as it was."""
    monkeypatch.setattr(namespace_lifecycle, "PART_MESSAGES", 4)
    name = await broker.lifecycle.create("n", QUEUE)
    texts = [f"{number}" for number in range(8)]
    await broker.send(name, *texts)
    await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=False)
    await broker.send(name, "later")
    lifecycle = broker.lifecycle
    coroutine = {
        "take": lambda: lifecycle.take_snapshot(name, "t", is_ephemeral=False),
        "restore": lambda: lifecycle.restore_snapshot(name, "s"),
        "branch": lambda: lifecycle.create("b", {}, snapshot=lifecycle.snapshot(name, "s")),
    }[operation]()
    _fail_at(broker.store, at)
    with pytest.raises(ServerBusy):
        await coroutine
    await broker._until(lambda: broker.core.is_serving)
    assert [*texts, "later"] == await broker.peek(name)
    assert ["s"] == [one.definition.name for one in lifecycle.snapshots(name)]
    assert {DEFAULT, name} == set(broker.core.namespaces)
    # What was written of the copy is deleted.
    await broker._until(lambda: len(broker.store._messages) == 9 + 8)
    assert 17 == len(broker.store._payloads)
    await lifecycle.restore_snapshot(name, "s")
    assert texts == await broker.peek(name)


async def test_a_snapshot_that_is_too_large_for_the_disk_is_refused(broker: Broker):
    """Nothing of it is stored. One in memory needs no space on the disk."""
    await broker.send(DEFAULT, "x" * 10_000)
    commits = broker.store.commits
    broker.store.room = Room(5_000, 5_000)
    broker.core.check_disk_space()
    await broker.core._disk_space.finish()
    with pytest.raises(ServerBusy, match="disk has no room"):
        await broker.lifecycle.take_snapshot(DEFAULT, "s", is_ephemeral=False)
    assert commits == broker.store.commits
    assert [] == broker.lifecycle.snapshots(DEFAULT)
    await broker.lifecycle.take_snapshot(DEFAULT, "s", is_ephemeral=True)
    with pytest.raises(ServerBusy, match="disk has no room"):
        await broker.lifecycle.restore_snapshot(DEFAULT, "s")
    assert ["x" * 10_000] == await broker.peek(DEFAULT)


@pytest.mark.parametrize("end", ["replace", "delete", "delete namespace"])
async def test_an_ephemeral_snapshot_that_ends_leaves_the_memory(broker: Broker, end):
    """Its messages do not wait for the garbage collector. The store has nothing of it."""
    name = await broker.lifecycle.create("n", QUEUE)
    await broker.send(name, *map(str, range(1_500)))
    taken = await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=True)
    stored = broker.store.load().messages
    if end == "replace":
        await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=True, replace=True)
    elif end == "delete":
        await broker.lifecycle.delete_snapshot(name, "s")
    else:
        await broker.lifecycle.delete(name)
    await broker._until(lambda: not taken.message_count)
    if end != "delete namespace":
        assert stored == broker.store.load().messages


async def test_ephemeral_snapshots_survive_a_full_disk(broker: Broker):
    """The broker starts again from its store, and they are in memory."""
    await broker.send(DEFAULT, "a")
    await broker.lifecycle.take_snapshot(DEFAULT, "s", is_ephemeral=True)
    broker.store.fault = StoreFault.FULL
    with pytest.raises(ServerBusy):
        await broker.lifecycle.create("x", QUEUE)
    await broker._until(lambda: broker.core.is_serving)
    assert {DEFAULT} == set(broker.core.namespaces)
    await broker.lifecycle.restore_snapshot(DEFAULT, "s")
    assert ["a"] == await broker.peek(DEFAULT)


async def test_the_number_of_namespaces_is_bounded():
    """Also of those that are being created at the same time."""
    broker = await Broker(FakeStore(), namespaces_max=3).start()
    results = await asyncio.gather(
        *(broker.lifecycle.create(f"n{number}", QUEUE) for number in range(5)),
        return_exceptions=True,
    )
    assert ["n0", "n1", QuotaExceeded, QuotaExceeded, QuotaExceeded] == [
        one if isinstance(one, str) else type(one) for one in results
    ]
    await broker.lifecycle.delete("n0")
    assert "n5" == await broker.lifecycle.create("n5", QUEUE)
    await broker.core.close()


async def test_a_name_is_created_once_at_a_time(broker: Broker):
    """The second is refused though the first is not durable yet."""
    results = await asyncio.gather(
        *(broker.lifecycle.create("same", QUEUE) for _ in range(2)), return_exceptions=True
    )
    assert "same" == results[0]
    assert isinstance(results[1], NamespaceAlreadyExists)


async def test_the_size_and_the_number_of_snapshots_are_bounded():
    """Those in memory are counted twice: together with all, and alone."""
    broker = await Broker(
        FakeStore(),
        snapshots_max=3,
        snapshots_max_bytes=2_300,
        snapshots_in_memory_max_bytes=1_100,
    ).start()
    await broker.send(DEFAULT, "x", "y")  # some thousand bytes
    take = broker.lifecycle.take_snapshot
    await take(DEFAULT, "a", is_ephemeral=True)
    with pytest.raises(QuotaExceeded, match="in memory"):
        await take(DEFAULT, "b", is_ephemeral=True)
    await take(DEFAULT, "a", is_ephemeral=True, replace=True)
    await take(DEFAULT, "b", is_ephemeral=False)
    with pytest.raises(QuotaExceeded, match="the maximum is 2300"):
        await take(DEFAULT, "c", is_ephemeral=False)
    assert 2 == len(await broker.receive(DEFAULT, 5, 2))
    await take(DEFAULT, "c", is_ephemeral=False)
    with pytest.raises(QuotaExceeded, match="3 snapshots"):
        await take(DEFAULT, "d", is_ephemeral=False)
    await broker.core.close()


async def test_unknown_and_declared_names_are_refused(broker: Broker):
    """Without a change."""
    lifecycle = broker.lifecycle
    with pytest.raises(NotAllowed):
        await lifecycle.delete(DEFAULT)
    for unknown in (lifecycle.delete("x"), lifecycle.take_snapshot("x", "s", is_ephemeral=True)):
        with pytest.raises(NamespaceNotFound):
            await unknown
    with pytest.raises(SnapshotNotFound):
        await lifecycle.restore_snapshot(DEFAULT, "s")
    with pytest.raises(NamespaceNotFound):
        broker.core.enter("x")


async def test_the_entities_of_a_copy_are_recorded_after_its_messages(broker: Broker):
    """So a broker that is killed in between finds messages of no entity, and deletes them."""
    await broker.send(DEFAULT, "a")
    seen: list[type] = []
    commit = broker.store.commit

    def note(records: Any) -> None:
        seen.extend(type(record) for record in records)
        commit(records)

    broker.store.commit = note  # type: ignore[method-assign]
    await broker.lifecycle.take_snapshot(DEFAULT, "s", is_ephemeral=False)
    assert seen.index(MessagesStored) < seen.index(EntityStored)


def _fail_a_turn(broker: Broker) -> None:
    """Let a command fail in the next turn, so that the broker starts again from its store."""
    unknown: Any = object()
    broker.core.enter(DEFAULT)(unknown)


def _lock(broker: Broker, name: str) -> asyncio.Lock:
    """Return what an operation on this namespace takes first."""
    return broker.lifecycle._lock(name)


async def test_an_operation_that_waited_changes_nothing_while_the_broker_starts_again(
    broker: Broker,
):
    """The store is being read."""
    name = await broker.lifecycle.create("n", QUEUE)
    taken = await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=False)
    loop = asyncio.get_running_loop()
    async with _lock(broker, name):
        creating = loop.create_task(broker.lifecycle.create("b", {}, snapshot=taken))
        await asyncio.sleep(0)
        _fail_a_turn(broker)
        await broker._until(lambda: not broker.core.is_serving)
        commits = broker.store.commits
    with pytest.raises(ServerBusy):
        await creating
    await broker._until(lambda: broker.core.is_serving)
    assert commits == broker.store.commits
    assert {DEFAULT, name} == set(broker.core.namespaces)


async def test_an_operation_that_waited_until_the_broker_has_started_again_uses_no_old_ids(
    broker: Broker,
):
    """Ids of the time before are given to other messages. The name may belong to another namespace again, too."""
    name = await broker.lifecycle.create("n", QUEUE)
    await broker.send(name, "a", "b")
    taken = await broker.lifecycle.take_snapshot(name, "s", is_ephemeral=True)
    loop = asyncio.get_running_loop()
    async with _lock(broker, name):
        creating = loop.create_task(broker.lifecycle.create("b", {}, snapshot=taken))
        await asyncio.sleep(0)
        _fail_a_turn(broker)
        await broker._until(lambda: not broker.core.is_serving)
        await broker._until(lambda: broker.core.is_serving)
        await broker.send(name, "c", "d", "e", "f")
    with pytest.raises(ServerBusy):
        await creating
    assert {DEFAULT, name} == set(broker.core.namespaces)
    assert "b" == await broker.lifecycle.create("b", {}, snapshot=taken)
    assert ["a", "b"] == await broker.peek("b")


@pytest.mark.parametrize("operation", ["take", "restore", "delete"])
async def test_nothing_is_changed_after_a_command_that_came_before_has_failed(
    broker: Broker, operation
):
    """It runs when the namespace is held. Then the broker starts again."""
    lifecycle = broker.lifecycle
    name = await lifecycle.create("n", QUEUE)
    await lifecycle.take_snapshot(name, "s", is_ephemeral=False)
    commits = broker.store.commits
    _fail_a_turn(broker)
    with pytest.raises(ServerBusy):
        await {
            "take": lambda: lifecycle.take_snapshot(name, "t", is_ephemeral=True),
            "restore": lambda: lifecycle.restore_snapshot(name, "s"),
            "delete": lambda: lifecycle.delete(name),
        }[operation]()
    await broker._until(lambda: broker.core.is_serving)
    assert commits == broker.store.commits
    assert ["s"] == [one.definition.name for one in lifecycle.snapshots(name)]
    assert [] == await broker.peek(name)


@pytest.mark.parametrize("operation", ["restore", "delete"])
async def test_a_namespace_is_served_again_after_a_bug_in_an_operation(
    broker: Broker, monkeypatch, operation
):
    """Its commands do not wait for ever."""

    def fail(namespace: str) -> Any:
        raise RuntimeError(f"a bug with {namespace}")

    lifecycle = broker.lifecycle
    name = await lifecycle.create("n", QUEUE)
    await broker.send(name, "a")
    await lifecycle.take_snapshot(name, "s", is_ephemeral=False)
    with monkeypatch.context() as patch:
        patch.setattr(broker.clients, "closer", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            await {
                "restore": lambda: lifecycle.restore_snapshot(name, "s"),
                "delete": lambda: lifecycle.delete(name),
            }[operation]()
    async with asyncio.timeout(10):
        assert ["a"] == await broker.peek(name)
    await lifecycle.restore_snapshot(name, "s")
    assert ["a"] == await broker.peek(name)


async def test_operations_on_a_namespace_that_was_created_again_follow_one_another(
    broker: Broker, monkeypatch
):
    """Also after an operation that waited for the deletion of the earlier namespace of this name."""
    lifecycle, turns = broker.lifecycle, broker.core.turns
    entities = {f"q{number}": QueueDefinition() for number in range(5)} | QUEUE
    name = await lifecycle.create("n", entities)
    commit, may_commit = turns.commit, asyncio.Event()

    async def commit_later(turn: Turn) -> None:
        await may_commit.wait()
        await commit(turn)

    monkeypatch.setattr(turns, "commit", commit_later)
    loop = asyncio.get_running_loop()
    deleting = loop.create_task(lifecycle.delete(name))
    await asyncio.sleep(0)
    first = loop.create_task(lifecycle.take_snapshot(name, "a", is_ephemeral=True))
    creating = loop.create_task(lifecycle.create(name, entities))
    await asyncio.sleep(0)
    monkeypatch.setattr(namespace_lifecycle, "PART_ENTITIES", 1)
    may_commit.set()
    async with asyncio.timeout(10):
        while not turns.held.by_namespace:  # noqa: ASYNC110 -- the core sets no events
            await asyncio.sleep(0)
        asking = loop.create_task(broker.peek(name))
        await asyncio.sleep(0)
        second = loop.create_task(lifecycle.take_snapshot(name, "b", is_ephemeral=True))
        await asyncio.gather(deleting, creating, first, second)
        assert [] == await asking
    assert ["a", "b"] == [one.definition.name for one in lifecycle.snapshots(name)]


async def test_names_of_no_namespace_are_not_kept(broker: Broker):
    """Clients may try as many as they like."""
    lifecycle = broker.lifecycle
    for number in range(10):
        with pytest.raises(NamespaceNotFound):
            await lifecycle.take_snapshot(f"n{number}", "s", is_ephemeral=True)
    await lifecycle.delete(await lifecycle.create("n", QUEUE))
    assert [] == list(lifecycle._locks)
