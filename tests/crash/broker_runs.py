"""The runs of the broker process in a crash test: how each starts and ends, and how much memory it may use.

The controller here starts and ends the process; workloads only get the number of the run. The same
seed gives the same runs, except for the timing of the machine.
"""

from __future__ import annotations

import http.client
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.crash import failing_steps, faults, first_answers
from tests.crash.database import CrashDatabase
from tests.crash.failing_steps import FailingStep
from tests.crash.injected_bugs import VARIABLE
from tests.crash.workload import NO_RUN
from tests.support.server import MODULE, BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.sharedctypes import Synchronized

    from tests.crash.faults import Fault
    from tests.crash.workload import Workload
    from tests.support.io_faults import IoFaults

UPTIME_S = (0.3, 3.0)
"""Shortest and longest time from healthy to the kill."""
START_KILL_SHARE = 0.1
"""Kills that hit a broker still starting, on top of the counted ones."""
START_KILL_AFTER_S = (0.05, 0.6)
FAULT_SHARE = 0.5
"""Lives with a fault in them, on top of the kills."""
FAULT_AT_START_SHARE = 0.25
FAULT_S = (1.0, 4.0)
"""How long a fault lasts that is for good."""
RECOVERY_S = 20.0
"""So soon after a fault a broker is healthy or has ended."""
WATCH_INTERVAL_S = 0.02
STOPPED_BY_FAILURE = 1
AFTER_COUNTING_S = (0.0, 0.02)
"""How long after the commits were counted the kill comes: the answer may not decide the moment."""
COMMITS = "peeklock_commit_seconds_count"
INLINE_COMMITS = "peeklock_inline_commits_total"
BACKGROUND_COMMITS = "peeklock_background_commits_total"
STOP_SHARE = 0.1
"""Lives that end as an orchestrator ends them, on top of the kills: those must lose nothing too."""
REWRITING_SHARE = 0.5
"""Runs in which commits write old blocks again all the time."""
PAYLOAD_MEMORIES = ("128MiB", "16KiB")
"""Each run has one of these: all bodies stay in memory, or hardly any."""


def config(workloads: Sequence[type[Workload]]) -> dict[str, Any]:
    """All workloads' entities in one file."""
    return {
        "queues": {
            **first_answers.QUEUES,
            **{name: queue for kind in workloads for name, queue in kind.queues.items()},
        },
        "topics": {name: topic for kind in workloads for name, topic in kind.topics.items()},
    }


class CrashableBroker(BrokerProcess):
    """The broker with its own storage, unchanged or with an injected bug or fault."""

    def __init__(
        self,
        kinds: Sequence[type[Workload]],
        storage: str,
        seed: int,
        injected_bug: str | None,
        io_faults: IoFaults | CrashDatabase | None = None,
        amqp_port: int | None = None,
    ) -> None:
        super().__init__(
            amqp_port=amqp_port,
            config=config(kinds),
            storage=storage,
            testing_api=False,
            environment={
                VARIABLE: injected_bug or "",
                "PEEKLOCK_LOG_LEVEL": "warning",
                **(io_faults.environment if io_faults else {}),
            },
        )
        self._memory_chance = random.Random(seed)
        self._rewrite_chance = random.Random(f"{seed} rewrites")
        self._injected_bug = injected_bug
        self.failing_step: FailingStep | None = None
        """What fails in the runs that begin from now on."""

    def launch(self) -> None:
        """See `BrokerProcess.launch`."""
        payload_memory = self._memory_chance.choice(PAYLOAD_MEMORIES)
        self._environment["PEEKLOCK_PAYLOAD_MEMORY"] = payload_memory
        self._environment.pop(failing_steps.VARIABLE, None)
        if self.failing_step is not None:
            self._environment.update(self.failing_step.environment)
        rewrites = self._rewrite_chance.random() < REWRITING_SHARE
        for name in failing_steps.REWRITES:
            self._environment.pop(name, None)
        if rewrites:
            self._environment.update(failing_steps.REWRITES)
        is_changed = rewrites or self._injected_bug is not None or self.failing_step is not None
        self.use_module(failing_steps.__name__ if is_changed else MODULE)
        super().launch()


class RunController:
    """Ends the broker's runs and starts new ones."""

    def __init__(
        self,
        broker: CrashableBroker,
        broker_run: Synchronized[int],
        faulty: Synchronized[int],
        io_faults: IoFaults | CrashDatabase | None,
        seed: int,
    ) -> None:
        self.kills = 0
        self.kills_at_start = 0
        self.stops = 0
        self.violations: dict[str, list[str]] = {
            "bad stops": [],
            "hangs": [],
            "wrong exits after a fault": [],
        }
        self.fault_counts: Counter[str] = Counter()
        self.slowest_start_s = 0.0
        self.commits = 0
        self.inline_commits = 0
        self.background_commits = 0
        self._broker = broker
        self._broker_run = broker_run
        self._faulty = faulty
        self._io_faults = io_faults
        self._chance = random.Random(seed)
        self._moment_chance = random.Random(f"{seed} moments")
        self._fault_chance = random.Random(f"{seed} faults")
        self._excused: list[tuple[int, int]] = []
        """Parts of the log that faults explain."""
        self._excused_from: int | None = None

    def kill_once(self) -> None:
        """Let the broker work for a while, kill it, and bring it back."""
        while self._chance.random() < STOP_SHARE:
            self._end_run(self._stop)
        while self._io_faults is not None and self._fault_chance.random() < FAULT_SHARE:
            is_database = isinstance(self._io_faults, CrashDatabase)
            self._meet_fault(faults.choose(self._fault_chance, database=is_database))
        self._end_run(self._kill)

    def complaints(self) -> str:
        """What the broker logged at warning or above without a fault to explain it."""
        log = self._broker.log_text()
        position, parts = 0, []
        for begin, end in self._excused:
            parts.append(log[position:begin])
            position = end
        return "".join([*parts, log[position:]])

    def _end_run(self, end: Callable[[], None]) -> None:
        time.sleep(self._chance.uniform(*UPTIME_S))
        broker_run = self._broker_run.value
        # Workloads must know before it happens, or they would call it the broker's own failure.
        self._broker_run.value = NO_RUN
        end()
        self._begin_run(broker_run + 1)

    def _begin_run(self, broker_run: int) -> None:
        self._process_ended()
        self._broker.start()
        self.slowest_start_s = max(self.slowest_start_s, self._broker.ready_after_s)
        self._broker_run.value = broker_run

    def _kill(self) -> None:
        self._count_commits()
        time.sleep(self._moment_chance.uniform(*AFTER_COUNTING_S))
        self._broker.kill()
        self.kills += 1
        while self._chance.random() < START_KILL_SHARE:
            self._broker.launch()
            time.sleep(self._chance.uniform(*START_KILL_AFTER_S))
            self._broker.kill()
            self.kills_at_start += 1

    def _count_commits(self) -> None:
        """Counts what this run has committed, and in which way: a kill has to be able to hit each."""
        with suppress(BrokerFailed, OSError, http.client.HTTPException):
            text = self._broker.request("GET", "/metrics")[1].decode()
            numbers = {
                name: int(float(number))
                for name, _, number in (line.rpartition(" ") for line in text.splitlines())
                if name in {BACKGROUND_COMMITS, INLINE_COMMITS, COMMITS}
            }
            self.inline_commits += numbers[INLINE_COMMITS]
            self.background_commits += numbers[BACKGROUND_COMMITS]
            self.commits += numbers[COMMITS]

    def _stop(self) -> None:
        self._count_commits()
        self.stops += 1
        code = self._broker.terminate()
        if code and not self._faulty.value:
            self.violations["bad stops"].append(f"the broker ended with {code}")

    # ---- faults -------------------------------------------------------------------------------

    def _meet_fault(self, fault: Fault) -> None:
        """Starts a fault in a broker that runs or starts, and checks that it continues, or stops
        with its reason."""
        assert self._io_faults is not None
        chance = self._fault_chance
        time.sleep(chance.uniform(*UPTIME_S))
        broker_run = self._broker_run.value
        if isinstance(fault, FailingStep) or chance.random() < FAULT_AT_START_SHARE:
            self._broker_run.value = NO_RUN
            self._broker.kill()
            self._fault_begins()
            if isinstance(fault, FailingStep):
                self._broker.failing_step = fault
            else:
                faults.arm(fault, self._io_faults)
            self._broker.launch()
            broker_run += 1
            if self._is_healthy_in_time(fault):
                self._broker_run.value = broker_run
        else:
            self._fault_begins()
            faults.arm(fault, self._io_faults)
        self._watch(fault, time.monotonic() + chance.uniform(*FAULT_S))
        self._io_faults.stop()
        self._broker.failing_step = None
        # Once it is over, a broker that still runs serves again or has stopped.
        if not self._is_healthy_in_time(fault) or isinstance(fault, FailingStep):
            self._broker_run.value = NO_RUN
            self._note_end(fault)
            self._broker.close()
            self._begin_run(broker_run + 1)
        else:
            self._count_end(fault, "went on")

    def _fault_begins(self) -> None:
        self._process_ended()
        self._faulty.value = 1
        self._excused_from = len(self._broker.log_text())

    def _process_ended(self) -> None:
        """What is logged from now on is the next process's."""
        if self._excused_from is not None:
            self._excused.append((self._excused_from, len(self._broker.log_text())))
            self._excused_from = None
            self._faulty.value = 0

    def _watch(self, fault: Fault, until_s: float) -> None:
        """Waits until the time has passed or the process has ended. Workloads are informed at
        once."""
        unhealthy_since_s: float | None = None
        while time.monotonic() < until_s and self._broker.is_running:
            if self._broker.is_healthy():
                unhealthy_since_s = None
            elif unhealthy_since_s is None:
                unhealthy_since_s = time.monotonic()
            elif time.monotonic() - unhealthy_since_s > RECOVERY_S:
                self.violations["hangs"].append(f"{fault}: neither healthy nor ended")
                return
            time.sleep(WATCH_INTERVAL_S)
        if not self._broker.is_running:
            self._broker_run.value = NO_RUN

    def _is_healthy_in_time(self, fault: Fault) -> bool:
        """Whether it serves; false if it has ended, or never does either, which is noted."""
        deadline_s = time.monotonic() + RECOVERY_S
        while self._broker.is_running:
            if self._broker.is_healthy():
                return True
            if time.monotonic() > deadline_s:
                self.violations["hangs"].append(f"{fault}: neither healthy nor ended")
                return False
            time.sleep(WATCH_INTERVAL_S)
        return False

    def _note_end(self, fault: Fault) -> None:
        if self._broker.is_running:
            self._count_end(fault, "went on until killed")
            return
        code = self._broker.wait()
        self._count_end(fault, f"stopped with {code}")
        assert self._excused_from is not None
        said = self._broker.log_text()[self._excused_from :]
        if code != STOPPED_BY_FAILURE or not said.strip():
            text = f"{fault}: ended with {code}, saying {said[-500:]!r}"
            self.violations["wrong exits after a fault"].append(text)

    def _count_end(self, fault: Fault, end: str) -> None:
        self.fault_counts[end] += 1
        print(f"  {fault}: {end}", flush=True)

    def __str__(self) -> str:
        text = (
            f"{self.kills} kills of a working broker, {self.kills_at_start} of one still starting, "
            f"{self.stops} orderly stops; slowest start {self.slowest_start_s:.2f} s\n"
            f"{self.inline_commits:,} commits on the event loop, "
            f"{self.background_commits:,} in the background, "
            f"{self.commits - self.inline_commits - self.background_commits:,} in the commit thread"
        )
        if self.fault_counts:
            ends = ", ".join(f"{count} {end}" for end, count in sorted(self.fault_counts.items()))
            text += f"\n{self.fault_counts.total()} runs with faults: {ends}"
        return text
