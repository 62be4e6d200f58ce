"""`make crash`: kill the broker at random moments, restart it, and audit what clients were told.

`python -m tests.crash.run [--kills N] [--seed S] [--workloads NAME,NAME]`. It ends with 1 if a
promise was broken; what each workload looks for is printed with how often it was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash import remains
from tests.crash.ledgers.report import Report
from tests.crash.sabotage import SABOTAGES, VARIABLE
from tests.crash.workload import NO_LIFE, Surroundings, Workload, run_workload
from tests.crash.workloads.administration import Administration
from tests.crash.workloads.batches import Batches
from tests.crash.workloads.deferral import Deferrals
from tests.crash.workloads.duplicates import Duplicates
from tests.crash.workloads.fan_out import FanOut
from tests.crash.workloads.schedules import Schedules
from tests.crash.workloads.sessions import Sessions
from tests.crash.workloads.stock_sdk import SdkQueue
from tests.crash.workloads.transactions import Transactions
from tests.crash.workloads.volume import VolumeQueue, VolumeTopic
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.sharedctypes import Synchronized

WORKLOADS: dict[str, type[Workload]] = {
    "volume": VolumeQueue,
    "topic": VolumeTopic,
    "sdk": SdkQueue,
    "batches": Batches,
    "rules": FanOut,
    "transactions": Transactions,
    "sessions": Sessions,
    "schedules": Schedules,
    "deferral": Deferrals,
    "administration": Administration,
    "duplicates": Duplicates,
}
"""A new scenario is one more line."""

KILLS = 50
UPTIME_S = (0.3, 2.0)
"""Shortest and longest time from healthy to the kill."""
START_KILL_SHARE = 0.1
"""Kills that hit a broker still starting, on top of the counted ones."""
START_KILL_AFTER_S = (0.05, 0.6)
FINISH_TIMEOUT_S = 120.0
EXAMPLES = 5
"""Of the contradictions of one kind, so many are shown."""


def config(workloads: Sequence[type[Workload]]) -> dict[str, Any]:
    """All workloads' entities in one file."""
    return {
        "queues": {name: queue for kind in workloads for name, queue in kind.queues.items()},
        "topics": {name: topic for kind in workloads for name, topic in kind.topics.items()},
    }


class Killer:
    """Ends the broker's lives and starts new ones."""

    def __init__(self, broker: BrokerProcess, life: Synchronized[int], seed: int) -> None:
        self.kills = 0
        self.kills_at_start = 0
        self.slowest_start_s = 0.0
        self._broker = broker
        self._life = life
        self._chance = random.Random(seed)

    def kill_once(self) -> None:
        """Let the broker work for a while, kill it, and bring it back."""
        time.sleep(self._chance.uniform(*UPTIME_S))
        life = self._life.value
        # Workloads must know before it happens, or they would call it the broker's own failure.
        self._life.value = NO_LIFE
        self._broker.kill()
        self.kills += 1
        while self._chance.random() < START_KILL_SHARE:
            self._broker.launch()
            time.sleep(self._chance.uniform(*START_KILL_AFTER_S))
            self._broker.kill()
            self.kills_at_start += 1
        self._broker.start()
        self.slowest_start_s = max(self.slowest_start_s, self._broker.ready_after_s)
        self._life.value = life + 1


class Crew:
    """The workloads, each in a process of its own, until the `with` block ends."""

    def __init__(self, kinds: Sequence[type[Workload]], broker: BrokerProcess, seed: int) -> None:
        # Forked from a process that has everything imported: eleven imports take their time.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["tests.crash.sabotage", *(kind.__module__ for kind in WORKLOADS.values())]
        )
        self.life = context.Value("i", 0)
        self.stop = context.Event()
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._pipes: list[Connection[Any, Any]] = []
        for number, kind in enumerate(kinds):
            surroundings = Surroundings(
                host=HOST,
                amqp_port=broker.amqp_port,
                http_port=broker.http_port,
                connection_string=broker.connection_string,
                admin_connection_string=broker.admin_connection_string,
                seed=seed + number,
                life=self.life,
                stop=self.stop,
            )
            ours, theirs = context.Pipe()
            arguments = (kind, surroundings, theirs)
            process = context.Process(target=run_workload, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def reports(self) -> list[Report]:
        """Let all of them finish; their reports, in order."""
        self.stop.set()
        return [receive_report(pipe) for pipe in self._pipes]

    def dismiss(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


class CrashingBroker(BrokerProcess):
    """The broker on a file of its own, as it is or with a mistake built in."""

    def __init__(
        self, kinds: Sequence[type[Workload]], database: Path, sabotage: str | None
    ) -> None:
        super().__init__(
            config=config(kinds),
            storage=f"sqlite:///{database}",
            testing_api=False,
            environment={VARIABLE: sabotage or "", "PEEKLOCK_LOG_LEVEL": "warning"},
        )
        if sabotage is not None:
            self._command[self._command.index("broker")] = "tests.crash.sabotage"


def run(
    kinds: Sequence[type[Workload]], kills: int, seed: int, folder: Path, sabotage: str | None
) -> list[Report]:
    """The whole ordeal; gives each workload's report, in order, and the file's."""
    database = folder / "crash.db"
    with CrashingBroker(kinds, database, sabotage) as broker:
        crew = Crew(kinds, broker, seed)
        try:
            killer = Killer(broker, crew.life, seed)
            for _ in range(kills):
                killer.kill_once()
            time.sleep(UPTIME_S[1])
            reports = crew.reports()
        finally:
            crew.dismiss()
        print(
            f"{killer.kills} kills of a working broker, {killer.kills_at_start} of one still "
            f"starting; slowest start {killer.slowest_start_s:.2f} s"
        )
        broker.kill()
        log = broker.log_text()
    complaints = [log] if log else []
    ours = remains.look_at(database).plus(Report({}, {"complaints in the log": complaints}))
    return [*reports, ours]


def receive_report(pipe: Connection[Any, Any]) -> Report:
    try:
        if pipe.poll(FINISH_TIMEOUT_S):
            report: Report = pipe.recv()
            return report
        return Report({}, {"the workload did not finish": ["no report"]})
    except EOFError:
        return Report({}, {"the workload itself failed": ["it ended without a report"]})


def show(name: str, report: Report) -> None:
    print(f"\n{name}")
    for what, count in report.counts.items():
        print(f"  {count:>9,} {what}")
    kept = [kind for kind, texts in report.violations.items() if not texts]
    if kept:
        print(f"          0 {', '.join(kept)}")
    for kind, texts in report.violations.items():
        if texts:
            print(f"  VIOLATION: {len(texts):,} {kind}")
        for text in texts[:EXAMPLES]:
            print(f"    {text}")


def workload_names(text: str) -> list[str]:
    """Names with commas between them; raises what argparse turns into a usage error."""
    names = text.split(",")
    for name in names:
        if name not in WORKLOADS:
            known = ", ".join(WORKLOADS)
            raise argparse.ArgumentTypeError(f"'{name}' is none of {known}")
    return names


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.crash.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--workloads", type=workload_names, default=list(WORKLOADS))
    parser.add_argument(
        "--sabotage", choices=SABOTAGES, help="build a mistake into the broker: it must be seen"
    )
    parser.add_argument("--folder", type=Path, help="where the database file goes")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}: --seed {options.seed} repeats the moments of this run", flush=True)
    kinds = [WORKLOADS[name] for name in options.workloads]
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="peeklock-crash-") as name:
        reports = run(kinds, options.kills, options.seed, Path(name), options.sabotage)
    for name, report in zip(
        [*(kind.name for kind in kinds), "the file and the log"], reports, strict=True
    ):
        show(name, report)
    is_clean = all(report.is_clean for report in reports)
    verdict = "every promise kept" if is_clean else "PROMISES BROKEN"
    print(f"\n{verdict} ({time.monotonic() - begin_s:.0f} s)")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
