"""Two brokers on one shared store, through cut-offs, pauses, outages and hand-overs that a seed chooses.

The time is virtual, and the same seed gives the same run. Nothing that a client was told is lost, and no broker answers
while another one owns the store.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from broker.app.runtime.ownership_lease import OwnershipLease
from broker.core.contract.errors import BrokerError
from tests.app.runtime.test_standby import LEASE_S, Broker
from tests.support.shared_store import SharedDatabase
from tests.support.virtual_time import on_virtual_time

if TYPE_CHECKING:
    from broker.core.contract.turn import Turn

SEEDS = range(8)
SEED_OF_LATE_ANSWER = 10
"""A run in which an owner that does not ask is still connected to clients when another one takes over."""
EVENTS = 12
"""In one run."""
CLIENTS = 3
OUTAGE_S = 1.0
"""The shortest outage. If a standby does not notice it, it takes an owner whose sessions have ended for a dead one, and
the owner answers from its memory until its next heartbeat."""


class WatchedBroker(Broker):
    """A process that can be paused, and whose answers are checked."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        super().__init__(database, name)
        self.is_paused = False
        self.late_answers = 0
        """Answers while another process owned the store."""

    def released(self, turn: Turn) -> None:
        # A process that is really paused releases nothing; this one only looks like it.
        is_owner = self.store.epoch == self.store.database.epoch
        if turn.effects and not is_owner and not self.is_paused:
            self.late_answers += 1

    def pause(self) -> None:
        """As SIGSTOP: it sends nothing, and its clock is behind when it goes on."""
        self.is_paused = self.store.is_cut_off = True
        self.clock.stopped_s -= 1e9

    def go_on(self) -> None:
        self.is_paused = self.store.is_cut_off = False
        self.clock.stopped_s += 1e9


class Run:
    """One run, from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._database = SharedDatabase()
        self.brokers = [WatchedBroker(self._database, name) for name in ("first", "second")]
        self.told: list[str] = []
        """Queues that a broker has told a client about: they exist."""
        self._number = 0
        self._enough = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        starts = [loop.create_task(broker.start()) for broker in self.brokers]
        clients = [loop.create_task(self._keep_asking()) for _ in range(CLIENTS)]
        for _ in range(EVENTS):
            await asyncio.sleep(self._chance.uniform(0.1, LEASE_S))
            await self._chance.choice((self._cut_off, self._pause, self._outage))()
        await asyncio.sleep(5 * LEASE_S)
        self._enough = True
        await asyncio.gather(*clients)
        for start in starts:
            start.cancel()

    # ---- events ---------------------------------------------------------------------------------

    async def _cut_off(self) -> None:
        broker = self._chance.choice(self.brokers)
        broker.store.is_cut_off = True
        await asyncio.sleep(self._chance.uniform(0.1, 3 * LEASE_S))
        broker.store.is_cut_off = False

    async def _pause(self) -> None:
        broker = self._chance.choice(self.brokers)
        broker.pause()
        await asyncio.sleep(self._chance.uniform(0.1, 3 * LEASE_S))
        broker.go_on()

    async def _outage(self) -> None:
        self._database.is_available = False
        self._database.end_sessions()
        await asyncio.sleep(self._chance.uniform(OUTAGE_S, 2 * LEASE_S))
        self._database.is_available = True

    # ---- clients --------------------------------------------------------------------------------

    async def _keep_asking(self) -> None:
        """Asks whichever broker says that it serves, also one that is about to lose the store."""
        while not self._enough:
            await asyncio.sleep(self._chance.uniform(0.01, 0.5))
            serving = [one for one in self.brokers if one.core.is_serving and not one.is_paused]
            if not serving:
                continue
            broker = self._chance.choice(serving)
            with suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(6 * LEASE_S):
                    if self._chance.random() < 0.5 and self.told:
                        assert await broker.look(self._chance.choice(self.told)) is not None
                    else:
                        self._number += 1
                        name = f"queue-{self._number}"
                        await broker.create(name)
                        self.told.append(name)

    def check(self) -> None:
        stored = {entity.path for entity in self._database.content.load().entities}
        assert set() == set(self.told) - stored
        assert [0, 0] == [broker.late_answers for broker in self.brokers]
        epochs = self._database.epochs_of_commits
        assert sorted(epochs) == epochs


def run(seed: int) -> Run:
    finished: list[Run] = []

    @on_virtual_time
    async def whole() -> None:
        one = Run(seed)
        await one.run()
        finished.append(one)

    whole()
    return finished[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_and_no_broker_answers_for_another(seed: int) -> None:
    """Whatever happens to them, and in which order."""
    one = run(seed)
    one.check()
    assert len(one.told) > EVENTS


def test_the_checks_notice_a_broker_that_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that answers from its memory without regard to the lease is seen."""
    monkeypatch.setattr(OwnershipLease, "is_certain", property(lambda _: True))
    assert any(broker.late_answers for broker in run(SEED_OF_LATE_ANSWER).brokers)
