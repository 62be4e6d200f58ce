"""Who owns a shared store, and when a process may be sure of it. The time is virtual."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from structlog.testing import capture_logs

from broker.app.runtime.ownership_lease import ANSWER_S, POLL_S, OwnershipLease
from storage.contract import OwnershipLost, StorageError, StoreUnavailable
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.shared_store import SharedDatabase, SharedFakeStore
from tests.support.virtual_time import THREAD_CALL_S, on_virtual_time

LEASE_S = 10.0


class Process:
    """One process and what it was told."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self.store = SharedFakeStore(database, name)
        self.events: list[str] = []
        loop = asyncio.get_running_loop()
        self.stopped_s = 0.0
        self.ownership = OwnershipLease(
            self.store, LEASE_S, lambda: loop.time() + self.stopped_s, self
        )

    def waits_for_owner(self, owner: str) -> None:
        self._note(f"standby of {owner}")

    def waits_for_store(self, error: StoreUnavailable) -> None:
        self._note("no database")

    def ownership_ended(self, error: StorageError) -> None:
        self._note(type(error).__name__)

    def _note(self, event: str) -> None:
        if self.events[-1:] != [event]:
            self.events.append(event)

    async def seconds_to_acquire(self) -> float:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        await self.ownership.acquire()
        return loop.time() - begin_s

    def die(self) -> None:
        """The process ends: it sends nothing more, and the database ends its session."""
        self.store.is_cut_off = True
        self.ownership._stop()
        self.store.process_ended()


async def owner_and_standby() -> tuple[Process, Process, asyncio.Task[float]]:
    database = SharedDatabase()
    owner, standby = Process(database, "first"), Process(database, "second")
    assert await owner.seconds_to_acquire() < POLL_S
    waiting = asyncio.get_running_loop().create_task(standby.seconds_to_acquire())
    await asyncio.sleep(3 * LEASE_S)
    assert ["standby of first"] == standby.events
    return owner, standby, waiting


@on_virtual_time
async def test_an_owner_that_lives_stays_the_owner() -> None:
    """It is certain of it all the time, however long it does nothing."""
    owner, _, waiting = await owner_and_standby()
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert owner.ownership.is_certain
    waiting.cancel()


@on_virtual_time
async def test_a_standby_takes_over_at_once_when_the_owner_dies() -> None:
    """The database ends the lock with the connection."""
    owner, standby, waiting = await owner_and_standby()
    loop = asyncio.get_running_loop()
    owner.die()
    begin_s = loop.time()
    await waiting
    assert loop.time() - begin_s < 2 * POLL_S
    assert standby.ownership.is_certain


@on_virtual_time
async def test_a_standby_takes_over_after_the_lease_time_when_the_owner_is_cut_off() -> None:
    """The owner knows it no later than the standby takes over, without being told."""
    owner, _, waiting = await owner_and_standby()
    loop = asyncio.get_running_loop()
    owner.store.is_cut_off = True
    begin_s = loop.time()
    while not waiting.done():
        was_certain = owner.ownership.is_certain
        await asyncio.sleep(0.01)
    assert not was_certain
    assert LEASE_S * 0.7 < loop.time() - begin_s < LEASE_S + 2 * POLL_S
    assert ["StoreUnavailable"] == owner.events
    with pytest.raises(OwnershipLost):
        await owner.ownership.confirm()


@on_virtual_time
async def test_an_owner_that_was_stopped_asks_before_it_is_certain_again() -> None:
    """Somebody else may own the store by then, and here does."""
    owner, standby, waiting = await owner_and_standby()
    owner.store.is_cut_off = True  # a stopped process sends nothing
    owner.stopped_s -= 1e9
    await waiting
    owner.stopped_s += 1e9
    owner.store.is_cut_off = False
    assert not owner.ownership.is_certain
    with pytest.raises(OwnershipLost):
        await owner.ownership.confirm()
    assert standby.ownership.is_certain


@on_virtual_time
async def test_an_owner_that_was_stopped_goes_on_if_nobody_took_over() -> None:
    """One question is enough."""
    database = SharedDatabase()
    owner = Process(database, "first")
    await owner.ownership.acquire()
    await asyncio.sleep(1)
    owner.stopped_s += 5 * LEASE_S
    heartbeat = database.heartbeat
    await owner.ownership.confirm()
    assert heartbeat + 1 == database.heartbeat
    assert owner.ownership.is_certain
    assert [] == owner.events


@on_virtual_time
async def test_an_owner_without_an_answer_steps_down() -> None:
    """A database that hangs does not keep it waiting for ever."""
    owner = Process(SharedDatabase(), "first")
    await owner.ownership.acquire()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._thread_delays_s = lambda: (1000.0, 0.0)
    begin_s = loop.time()
    while owner.ownership.is_held:  # noqa: ASYNC110 -- the time is virtual
        await asyncio.sleep(0.1)
    assert loop.time() - begin_s <= LEASE_S + ANSWER_S
    assert ["StoreUnavailable"] == owner.events


@on_virtual_time
async def test_an_owner_whose_heartbeats_fail_steps_down_within_the_lease_time() -> None:
    """Not later, although it tries again and again. What waits for the database is interrupted, so that the process can
    be the next standby at once."""
    owner = Process(SharedDatabase(), "first")
    await owner.ownership.acquire()
    loop = asyncio.get_running_loop()
    owner.store.is_cut_off = True
    begin_s = loop.time()
    while owner.ownership.is_held:  # noqa: ASYNC110 -- the time is virtual
        await asyncio.sleep(0.01)
    assert loop.time() - begin_s <= LEASE_S + 0.01
    assert 1 == owner.store.interruptions


class BrokenStore(SharedFakeStore):
    """A store with a method that fails as no store should."""

    def __init__(self, database: SharedDatabase, broken: str) -> None:
        super().__init__(database, "first")
        setattr(self, broken, self._fail)

    def _fail(self) -> None:
        raise RuntimeError("nobody has thought of this")


@on_virtual_time
async def test_an_owner_that_sends_no_heartbeats_for_any_reason_steps_down() -> None:
    """A commit that waits for one would wait for ever. The cause is in the log."""
    for broken in ("duplicate_session_socket", "heartbeat"):
        owner = Process(SharedDatabase(), "first")
        store = BrokenStore(owner.store.database, broken)
        owner.ownership = OwnershipLease(store, LEASE_S, asyncio.get_running_loop().time, owner)
        with capture_logs() as lines:
            await owner.ownership.acquire()
            await asyncio.sleep(2 * LEASE_S)
            with pytest.raises(OwnershipLost):
                await asyncio.wait_for(owner.ownership.confirm(), LEASE_S)
        assert ["StoreUnavailable"] == owner.events
        assert 1 == store.interruptions
        (line,) = lines
        assert "nobody has thought of this" in line["error"]
        assert line["exc_info"]


@on_virtual_time
async def test_a_release_without_an_answer_is_given_up() -> None:
    """A stop does not wait for a database that hangs."""
    owner = Process(SharedDatabase(), "first")
    await owner.ownership.acquire()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._thread_delays_s = lambda: (1000.0, 0.0)
    begin_s = loop.time()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await owner.ownership.release()
    assert loop.time() - begin_s <= ANSWER_S + THREAD_CALL_S
    assert 1 == owner.store.interruptions


@on_virtual_time
async def test_a_restart_of_the_database_does_not_change_the_owner() -> None:
    """Its connections end, and the lock with them. The owner gets the time to connect again."""
    owner, standby, waiting = await owner_and_standby()
    database = owner.store.database
    database.is_available = False
    database.end_sessions()
    await asyncio.sleep(LEASE_S / 2)
    database.is_available = True
    await asyncio.sleep(5 * LEASE_S)
    assert not waiting.done()
    assert owner.ownership.is_certain
    assert [] == owner.events
    assert ["standby of first", "no database", "standby of first"] == standby.events
    owner.die()
    await waiting


@on_virtual_time
async def test_an_owner_that_dies_with_the_database_is_replaced_after_the_lease_time() -> None:
    """The standby cannot tell a dead owner from one that connects again."""
    owner, _, waiting = await owner_and_standby()
    database = owner.store.database
    database.is_available = False
    owner.die()
    await asyncio.sleep(1)
    database.is_available = True
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    await waiting
    assert loop.time() - begin_s < LEASE_S + 2 * POLL_S


@on_virtual_time
async def test_a_long_outage_of_the_database_ends_the_ownership_and_it_comes_back() -> None:
    """The one that was the owner asks at once; it has the clients."""
    owner, _, waiting = await owner_and_standby()
    database = owner.store.database
    database.is_available = False
    database.end_sessions()
    await asyncio.sleep(2 * LEASE_S)
    assert ["StoreUnavailable"] == owner.events
    again = asyncio.get_running_loop().create_task(owner.seconds_to_acquire())
    await asyncio.sleep(1)
    database.is_available = True
    await again
    assert owner.ownership.is_certain
    assert not waiting.done()
    waiting.cancel()


@on_virtual_time
async def test_a_planned_hand_over_takes_no_lease_time() -> None:
    """The owner releases the store itself."""
    owner, _, waiting = await owner_and_standby()
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    await owner.ownership.release()
    assert not owner.ownership.is_held
    await waiting
    assert loop.time() - begin_s < 2 * POLL_S
    assert [] == owner.events


@on_virtual_time
async def test_of_two_standbys_one_takes_over() -> None:
    """The other waits for the new owner."""
    owner, standby, waiting = await owner_and_standby()
    third = Process(owner.store.database, "third")
    other = asyncio.get_running_loop().create_task(third.seconds_to_acquire())
    await asyncio.sleep(1)
    owner.store.is_cut_off = True
    await asyncio.sleep(3 * LEASE_S)
    assert waiting.done() != other.done()
    new = standby if waiting.done() else third
    assert new.ownership.is_certain
    for task in (waiting, other):
        task.cancel()


class WatchedStore(SharedFakeStore):
    """A store whose session has a real socket."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        super().__init__(database, name)
        self.session, self.server = socket.socketpair()

    def duplicate_session_socket(self) -> int | None:
        return os.dup(self.session.fileno())


def test_an_owner_whose_session_was_ended_asks_at_once_who_owns_the_store() -> None:
    """A standby can have taken the lock that ended with the session. The owner does not wait for its next heartbeat,
    which is ten minutes away."""

    async def run() -> None:
        database = SharedDatabase()
        owner, store = Process(database, "first"), WatchedStore(database, "first")
        owner.ownership = OwnershipLease(store, 3000.0, asyncio.get_running_loop().time, owner)
        await owner.ownership.acquire()
        database.end_sessions()
        assert SharedFakeStore(database, "second").try_acquire()
        assert [] == owner.events
        beating = owner.ownership._beating
        assert beating is not None
        store.server.close()
        await asyncio.wait_for(asyncio.wait([beating]), 10)
        assert ["OwnershipLost"] == owner.events
        assert not owner.ownership.is_certain
        owner.ownership.close()
        store.session.close()

    asyncio.run(run())
