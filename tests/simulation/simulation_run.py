"""One run from a seed: a broker, its clients, a disk, a network, and faults in each.

The clients and the ledgers of their answers are those of the crash runs. At the end all messages
are received, the ledgers are checked, and the broker must have no clients and hold exactly what its
store holds.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import traceback
from collections import Counter
from contextlib import redirect_stderr
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from config.settings.settings import Settings
from tests.crash.client_workload import QUIET_S
from tests.crash.ledgers.report import Report
from tests.crash.workload import NO_RUN, Surroundings
from tests.crash.workloads.deferral import Deferrals
from tests.crash.workloads.duplicates import Duplicates
from tests.crash.workloads.fan_out import FanOut
from tests.crash.workloads.moves import Moves
from tests.crash.workloads.schedules import Schedules
from tests.crash.workloads.sessions import Sessions
from tests.crash.workloads.transactions import Transactions
from tests.simulation.administration import Administrator
from tests.simulation.final_checks import differences
from tests.simulation.findings import (
    AN_END,
    ENDING_FAULTS,
    EXPLAINED_BY,
    NO_MISTAKES,
    NOT_HUNG_UP,
    NOTHING_UNHANDLED,
    Finding,
    failure,
    findings_of,
    noted,
)
from tests.simulation.locks import Locks
from tests.simulation.part_sizes import drawn_sizes, drawn_threads
from tests.simulation.simulated_broker import SimulatedBroker, topology_of
from tests.simulation.simulated_network import Network
from tests.simulation.simulated_store import SimulatedStore
from tests.simulation.sources import STEPS_S, VirtualClock, seeded
from tests.simulation.trace import Trace
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.fake_store import StoreFault
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence

    from tests.crash.client_workload import ClientWorkload

WORKLOADS: tuple[type[ClientWorkload], ...] = (
    Deferrals,
    Duplicates,
    FanOut,
    Locks,
    Moves,
    Schedules,
    Sessions,
    Transactions,
)
FAULTS_MAX = 6
ADMINISTERED_SHARE = 0.4
"""Of the runs, those in which somebody changes entities and rules meanwhile."""
BETWEEN_FAULTS_S = (0.02, 0.5)
PATIENCE_S = 300.0
"""Virtual seconds: every wait of a client ends long before."""
SETTLED_S = 3.0
RESTART_S = 0.05
"""How often somebody looks whether the broker has to be started again."""
PAYLOAD_MEMORIES_BYTES = (128 * 1024 * 1024, 4 * 1024)


class Result(NamedTuple):
    """What a run came to."""

    seed: int
    hash: str
    events: int
    virtual_s: float
    faults: tuple[str, ...]
    counts: dict[str, int]
    findings: list[Finding]
    """Promises that were broken."""
    lines: list[str]
    """The last events before the first finding, in words."""


class _Flag:
    """What `Surroundings` has of multiprocessing, in one process."""

    def __init__(self, value: int) -> None:
        self.value = value
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True


class World:
    """Everything in one run."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.chance = Random(f"{seed} world")
        self._disk_chance = Random(f"{seed} disk")
        self._speed_chance = Random(f"{seed} speed")
        self.loop = VirtualLoop(self._thread_delays_s)
        self.trace = Trace(self.loop.time, show)
        self.clock = VirtualClock(self.loop, self._speed_chance.choice(STEPS_S))
        self.network = Network(self.loop, seed, self.trace, self._ended_by_broker)
        self.store = SimulatedStore(self.loop, Random(f"{seed} store"), self.trace.note)
        self.findings: list[Finding] = []
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}
        self._commits: Counter[str] = Counter()
        self._broker_run = _Flag(NO_RUN)
        self._broker_runs = 0
        self._slow_disk = False
        self.kinds = self.chance.sample(WORKLOADS, self.chance.choice((1, 1, 2, 3)))
        entities: dict[str, dict[str, Any]] = {"queues": {}, "topics": {}}
        for kind in self.kinds:
            entities["queues"].update(kind.queues)
            entities["topics"].update(kind.topics)
        self._administrator: Administrator | None = None
        if self.chance.random() < ADMINISTERED_SHARE:
            self._administrator = Administrator(self.chance.randrange(1 << 32), self._ask)
        self._topology = topology_of(entities)
        self.broker: SimulatedBroker

    def _thread_delays_s(self) -> tuple[float, float]:
        longest_s = 0.5 if self._slow_disk else 0.01
        chance = self._disk_chance
        return chance.uniform(0, longest_s), chance.uniform(0, longest_s / 2)

    # ---- the broker's runs --------------------------------------------------------------------------

    async def start_broker(self) -> None:
        while True:
            self._broker_runs += 1
            self.trace.note(f"start {self._broker_runs}")
            memory_bytes = self.chance.choice(PAYLOAD_MEMORIES_BYTES)
            self.broker = SimulatedBroker(
                self._broker_runs,
                self.loop,
                self.network,
                self.store,
                self.clock,
                Random(f"{self.seed} broker {self._broker_runs}"),
                self._topology,
                Settings(storage="memory:", payload_memory_bytes=memory_bytes),
                self._broker_fails,
                self._commits,
            )
            try:
                await self.broker.start()
            except Exception as error:  # noqa: BLE001 -- whoever runs a broker starts it again
                self.trace.note(f"start {self._broker_runs} failed: {error!r}")
                self.broker.kill()
                continue
            self._broker_run.value = self._broker_runs
            return

    def _broker_fails(self) -> None:
        self.trace.note("the broker gives up")
        self._broker_run.value = NO_RUN

    async def _keep_alive(self) -> None:
        """Start a broker again that has stopped by itself."""
        while True:
            broker = self.broker
            if broker.gave_up.is_set():
                broker.kill()
                await self.start_broker()
            await asyncio.sleep(RESTART_S)

    # ---- what goes wrong ------------------------------------------------------------------------------

    async def _crash(self) -> None:
        self._broker_run.value = NO_RUN
        self.broker.kill()
        await self.start_broker()

    async def _stop_in_order(self) -> None:
        self._broker_run.value = NO_RUN
        await self.broker.stop()
        await self.start_broker()

    async def _break_connection(self) -> None:
        if self.network.open:
            connection = self.chance.choice(list(self.network.open))
            self.trace.note(f"break connection {connection.number}")
            connection.break_off()

    async def _stall_connection(self) -> None:
        if self.network.open:
            connection = self.chance.choice(list(self.network.open))
            self.trace.note(f"stall connection {connection.number}")
            connection.stall(self.chance.uniform(0.1, 2.0))

    async def _fail_commit(self) -> None:
        self.store.fault = self.chance.choice(list(StoreFault))

    async def _fill_disk(self) -> None:
        self.store.fault = StoreFault.FULL

    async def _lose_room(self) -> None:
        self.store.has_room = False
        await asyncio.sleep(self.chance.uniform(0.1, 1.5))
        self.store.has_room = True

    async def _fail_read(self) -> None:
        self.store.fails_to_read = True

    async def _slow_down_disk(self) -> None:
        self._slow_disk = True
        await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        self._slow_disk = False

    async def _go_wrong(self) -> None:
        faults: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (
            self._crash,
            self._crash,
            self._crash,
            self._stop_in_order,
            self._break_connection,
            self._break_connection,
            self._stall_connection,
            self._fail_commit,
            self._fill_disk,
            self._lose_room,
            self._fail_read,
            self._slow_down_disk,
        )
        await asyncio.sleep(self.chance.uniform(*BETWEEN_FAULTS_S))
        for _ in range(self.chance.randrange(FAULTS_MAX + 1)):
            await self._until_up()
            fault = self.chance.choice(faults)
            name = fault.__name__.strip("_").replace("_", " ")
            self.trace.note(f"fault: {name}")
            self.faults.append(name)
            await fault()
            await asyncio.sleep(self.chance.uniform(*BETWEEN_FAULTS_S))

    async def _until_up(self) -> None:
        while not self.broker.is_up:  # noqa: ASYNC110 -- it may be another one by then
            await asyncio.sleep(0.01)

    def note_log_line(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> Mapping[str, Any]:
        """What the broker logs as an error; those that no fault explains are findings."""
        self.trace.note(f"log: {event['event']}")
        if not EXPLAINED_BY.get(event["event"], frozenset()) & set(self.faults):
            error = event.get("exc_info")
            text = traceback.format_exc() if error is True else str(error)
            self._found(failure(NO_MISTAKES, event["event"], text))
        raise structlog.DropEvent

    def _ended_by_broker(self, number: int) -> None:
        if not ENDING_FAULTS & set(self.faults):
            self._found(Finding(NOT_HUNG_UP, f"connection {number} was ended by the broker"))

    def _found(self, finding: Finding) -> None:
        self.trace.note_finding(finding.sentence)
        self.findings.append(finding)

    # ---- the run ----------------------------------------------------------------------------------------

    async def _work(self, workload: ClientWorkload) -> None:
        while not self._broker_run.is_set():
            if self._broker_run.value == NO_RUN:
                await asyncio.sleep(0.01)
            else:
                await workload.work_in_one_run(self._broker_run.value)

    async def _ask(self, build: Callable[..., Any]) -> Any:
        if not self.broker.is_up:
            raise PeerFailed("the broker is not there")
        return await self.broker.ask(build)

    async def _administer(self, administrator: Administrator) -> None:
        while not self._broker_run.is_set():
            broker_run = self._broker_run.value
            if broker_run == NO_RUN:
                await asyncio.sleep(0.01)
            else:
                await administrator.work_in_one_run(
                    lambda broker_run=broker_run: (
                        not self._broker_run.is_set() and self._broker_run.value == broker_run
                    )  # type: ignore[misc]
                )

    async def _run(self) -> None:
        await self.start_broker()
        keeping = self.loop.create_task(self._keep_alive())
        workloads = [
            kind(
                Surroundings(
                    host="localhost",
                    amqp_port=0,
                    http_port=0,
                    connection_string="",
                    admin_connection_string="",
                    seed=self.chance.randrange(1 << 32),
                    broker_run=self._broker_run,  # type: ignore[arg-type]
                    faulty=_Flag(0),  # type: ignore[arg-type]
                    stop=self._broker_run,  # type: ignore[arg-type]
                    dial=self.network.dial,
                    now_ms=self.clock.now_ms,
                )
            )
            for kind in self.kinds
        ]
        working = [self.loop.create_task(self._work(workload)) for workload in workloads]
        if self._administrator is not None:
            working.append(self.loop.create_task(self._administer(self._administrator)))
        await self._go_wrong()
        self.store.fault, self.store.fails_to_read = None, False
        self._broker_run.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*working)
        # What a slow disk was asked to do is done one after the other, perhaps long after the fault: clients would
        # take a queue for empty whose bodies are still being read.
        while (busy_s := self.loop.threads_busy_s) > QUIET_S / 10:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(busy_s)
        await self._until_up()
        await asyncio.sleep(SETTLED_S)  # until the last broken connection is noticed
        keeping.cancel()
        report = Report({})
        for workload in workloads:
            workload.broker_run = self._broker_run.value
            async with asyncio.timeout(PATIENCE_S):
                report = report.plus(await workload.empty_and_audit())
        if self._administrator is not None:
            report = report.plus(await self._administrator.conclude())
        self.counts = {**report.counts, **self._commits}
        self.findings += findings_of(report)
        await asyncio.sleep(SETTLED_S)
        for finding in differences(self.broker, self.store, self.clock.now_ms()):
            self._found(finding)
        self._broker_run.value = NO_RUN
        await self.broker.stop()

    def run(self) -> Result:
        """Everything; the same for the same seed."""
        asyncio.set_event_loop(self.loop)
        output = io.StringIO()
        try:
            with (
                redirect_stderr(output),
                seeded(Random(f"{self.seed} ids"), self.clock),
                drawn_sizes(self._speed_chance),
                drawn_threads(Random(f"{self.seed} threads")),
                noted(self.trace.note_finding),
            ):
                self.loop.run_until_complete(self._run())
        except Exception:  # noqa: BLE001 -- each is a finding
            self._found(failure(AN_END, "an exception", traceback.format_exc()))
        self.findings += [Finding(NOTHING_UNHANDLED, text) for text in self.loop.complaints]
        asyncio.set_event_loop(None)
        self.loop.close()
        return Result(
            self.seed,
            self.trace.hash,
            self.trace.events,
            self.loop.time(),
            tuple(self.faults),
            self.counts,
            self.findings,
            self.trace.lines,
        )


def run_seed(seed: int, show: Callable[[str], None] | None = None) -> Result:
    """One run, with nothing left of it afterwards."""
    world = World(seed, show)
    configured = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        processors=[world.note_log_line],
        cache_logger_on_first_use=False,
    )
    gc.disable()  # finalizers run when references end, not at a moment of the collector's choice
    try:
        return world.run()
    finally:
        gc.enable()
        structlog.configure(**configured)
