"""The broker's process in a simulation: the real parts, on a virtual loop, a store and a network.

Owns what `broker.app.server` owns in a real process: start, watching the disk, stopping in order, and
stopping when the store has failed. HTTP, TLS and signals are not part of it.
"""

from __future__ import annotations

import asyncio
import json
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from broker.app.network.amqp_clients import AmqpClients
from broker.app.runtime.durable_core import DurableCore
from broker.app.security.access import Access
from config.files import yaml_reader
from config.files.document import parse_json
from config.files.mistakes import ConfigReport
from config.model.limits import RELAXED
from protocol.sources import make_sources
from tests.simulation.virtual_loop import PROCESS
from tests.support.proton.answers import ANSWER_TIMEOUT_S, Unanswered
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping
    from random import Random

    from broker.app.runtime.batch_commit import CommitWay
    from broker.core.contract.effects import Peer
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.turn import Turn
    from broker.core.namespace import Namespace
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from tests.simulation.simulated_network import BrokerWire, Network
    from tests.simulation.sources import VirtualClock
    from tests.simulation.virtual_loop import VirtualLoop
    from tests.support.fake_store import FakeStore

CHECK_INTERVAL_S = 0.5
GRACE_S = 0.5
POLL_S = 0.003


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieves a refusal that no client waits for, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def topology_of(entities: Mapping[str, Any]) -> Topology:
    """Entities as a configuration file has them."""
    report = ConfigReport()
    document = parse_json(json.dumps(entities), "simulation.json", report)
    topology = yaml_reader.read_yaml_form(document, RELAXED, report, lambda *_: None)
    report.raise_if_wrong()
    return topology


class SimulatedBroker:
    """One start of the broker, until it is killed or has stopped."""

    def __init__(
        self,
        number: int,
        loop: VirtualLoop,
        network: Network,
        store: FakeStore,
        clock: VirtualClock,
        chance: Random,
        topology: Topology,
        settings: Settings,
        failing: Callable[[], None],
        commits: Counter[str],
    ) -> None:
        self._number = number
        self._loop = loop
        self._network = network
        self._store = store
        self._clock = clock
        self._chance = chance
        self._topology = topology
        self._settings = settings
        self._failing = failing
        """Called once, when the process is about to stop by itself."""
        self._commits = commits
        """How many commits were made in which thread."""
        self._context = copy_context()
        self._context.run(PROCESS.set, number)
        self._stopping = False
        self._is_dead = False
        self.gave_up = asyncio.Event()
        """It has stopped by itself, because its store failed."""
        self.is_up = False
        self.core: DurableCore
        self.clients: AmqpClients

    async def start(self) -> None:
        """Begin; ready when this returns. Raises what keeps the broker from it."""
        await self._loop.create_task(self._start(), context=self._context)

    async def _start(self) -> None:
        random_bytes = self._chance.randbytes
        self.core = DurableCore(
            self._settings, self._topology, self._clock, self, self._store, random_bytes
        )
        access = Access(self._settings, self._topology, self.core.namespaces, self._clock)
        sources = make_sources(self._clock.real_ms, self._clock.stopwatch_s, random_bytes)
        self.clients = AmqpClients(self._settings, self.core, access, sources)
        await self.core.open()
        await self.core.begin()
        self._network.listen(self._accept, self._context)
        self.is_up = True
        self._loop.call_later(CHECK_INTERVAL_S, self._watch)

    def _accept(self, wire: BrokerWire) -> None:
        transport = self.clients.new_transport()
        wire.protocol = transport
        transport.connection_made(wire)  # type: ignore[arg-type]

    def _watch(self) -> None:
        self.core.check_disk_space()
        self._loop.call_later(CHECK_INTERVAL_S, self._watch)

    async def ask(self, build: Callable[..., Any]) -> Any:
        """Run a request of administration. Raises its refusal, or `PeerFailed` if the process ends
        first, or `Unanswered`."""
        asked = self.core.ask(self.core.default_namespace, build)
        asking = self._loop.create_task(asked, context=self._context)
        asking.add_done_callback(_retrieve)
        until_s = self._loop.time() + ANSWER_TIMEOUT_S
        while not asking.done():
            if self._is_dead:
                raise PeerFailed("the broker's process has ended")
            if self._loop.time() > until_s:
                raise Unanswered(f"no answer to {build}")
            await asyncio.sleep(POLL_S)
        return asking.result()

    def kill(self) -> None:
        """The process ends between two instructions."""
        self.is_up = False
        self._is_dead = True
        self._network.drop_all()
        self._loop.kill(self._number)

    async def stop(self) -> None:
        """Stop in order, as for SIGTERM."""
        await self._loop.create_task(self._stop(failed=False), context=self._context)
        self.kill()  # timers of a process end with it

    async def _stop(self, *, failed: bool) -> None:
        self._stopping = True
        self.is_up = False
        self._network.refuse()
        if not failed:
            await self.core.settle()
        await self.clients.close_all(GRACE_S)
        if not failed:
            await self.core.settle()
        await self.core.close()
        if failed:
            self.gave_up.set()

    # ---- what the core tells ----------------------------------------------------------------------

    def released(self, turn: Turn) -> None:
        """See `broker.app.runtime.core_observer.CoreObserver`."""

    def committed(self, seconds: float, records: int, way: CommitWay) -> None:
        del seconds, records
        self._commits[f"commits {way.value}"] += 1
        self.clients.committed()

    def peer_failed(self, peer: Peer, error: BrokerError) -> None:
        self.clients.end_connection_of(peer, error)

    def restored_from_store(self, reason: str) -> None:
        self.clients.force_close_all(reason)

    def stopped_serving(self, reason: str) -> None:
        self.clients.force_close_all(reason)

    def serving_again(self) -> None: ...

    def failed(self, error: Exception) -> None:
        del error
        if not self._stopping:
            self._stopping = True
            self._failing()
            self._loop.create_task(self._stop(failed=True), context=self._context)

    @property
    def namespaces(self) -> dict[str, Namespace]:
        return self.core.namespaces
