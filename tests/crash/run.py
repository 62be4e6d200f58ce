"""`make crash`: kill the broker at random moments, restart it, and audit what clients were told.

`python -m tests.crash.run [--kills N] [--seed S] [--workloads NAME,NAME]`. Between the kills file calls
and steps of commits fail, or, with `--storage postgresql`, the database restarts. With `--power-cuts` the power is cut instead (`power/run.py`). It ends with 1
if a promise was broken; what each workload looks for is printed with how often it was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.model.storage_urls import POSTGRESQL, SQLITE
from tests.crash import recovered_state
from tests.crash.broker_pair import BrokerPair, as_broker
from tests.crash.broker_runs import UPTIME_S, CrashableBroker, RunController
from tests.crash.database import CrashDatabase
from tests.crash.injected_bugs import INJECTED_BUGS
from tests.crash.ledgers.promises import PROMISES
from tests.crash.ledgers.report import Report
from tests.crash.power import run as power
from tests.crash.workload import Surroundings, Workload, run_workload
from tests.crash.workloads.administration import Administration
from tests.crash.workloads.batches import Batches
from tests.crash.workloads.deferral import Deferrals
from tests.crash.workloads.duplicates import Duplicates
from tests.crash.workloads.fan_out import FanOut
from tests.crash.workloads.moves import Moves
from tests.crash.workloads.schedules import Schedules
from tests.crash.workloads.sessions import Sessions
from tests.crash.workloads.stock_sdk import SdkQueue
from tests.crash.workloads.transactions import Transactions
from tests.crash.workloads.volume import VolumeQueue, VolumeTopic
from tests.support.io_faults import IoFaults
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from tests.support.server import BrokerProcess

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
    "moves": Moves,
    "administration": Administration,
    "duplicates": Duplicates,
}
"""A new scenario is one more line."""

KILLS = 50
FINISH_TIMEOUT_S = 120.0
EXAMPLES = 5
"""Of the contradictions of one kind, so many are shown."""


class Workers:
    """The workloads, each in its own process, until the `with` block ends."""

    def __init__(self, kinds: Sequence[type[Workload]], broker: BrokerProcess, seed: int) -> None:
        # Forked from a process that has everything imported: a dozen imports take their time.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["tests.crash.injected_bugs", *(kind.__module__ for kind in WORKLOADS.values())]
        )
        self.broker_run = context.Value("i", 0)
        self.faulty = context.Value("i", 0)
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
                broker_run=self.broker_run,
                faulty=self.faulty,
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


def run(kinds: Sequence[type[Workload]], options: argparse.Namespace, folder: Path) -> list[Report]:
    """Runs everything. Returns the report of each workload, in order, and that of the storage."""
    # The faults are below the folder of the database, and of nothing else.
    (database_folder := folder / "store").mkdir()
    path, seed = database_folder / "crash.db", options.seed
    with ExitStack() as stack:
        database = None
        io_faults: IoFaults | CrashDatabase | None = None
        if options.storage == POSTGRESQL:
            database = stack.enter_context(CrashDatabase())
        if options.faults:
            io_faults = database or stack.enter_context(IoFaults(database_folder))
        url = f"sqlite:///{path}" if database is None else database.url
        broker = CrashableBroker(kinds, url, seed, options.inject_bug, io_faults)
        if options.standby:
            beside = CrashableBroker(
                kinds, url, seed, options.inject_bug, None, amqp_port=broker.amqp_port
            )
            broker = as_broker(BrokerPair(broker, beside))
        stack.enter_context(broker)
        crew = Workers(kinds, broker, seed)
        try:
            reaper = RunController(broker, crew.broker_run, crew.faulty, io_faults, seed)
            for _ in range(options.kills):
                reaper.kill_once()
            time.sleep(UPTIME_S[1])
            reports = crew.reports()
        finally:
            crew.dismiss()
        print(reaper)
        if options.standby:
            print(broker)
        broker.close()
        log = reaper.complaints()
        found = recovered_state.check_database(path) if database is None else database.check(path)
    complaints = {"complaints in the log": [log] if log else [], **reaper.violations}
    return [*reports, found.plus(Report({}, complaints))]


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
            if kind in PROMISES:
                print(f"    promised: {PROMISES[kind]}")
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
        "--inject-bug",
        choices=INJECTED_BUGS,
        help="build a mistake into the broker: it must be seen",
    )
    parser.add_argument(
        "--no-faults",
        dest="faults",
        action="store_false",
        help="only kill and stop it: let no file call and no step of a commit fail",
    )
    parser.add_argument("--storage", choices=(SQLITE, POSTGRESQL), default=SQLITE)
    parser.add_argument("--folder", type=Path, help="where the database file goes")
    parser.add_argument(
        "--power-cuts", action="store_true", help="cut the power of a recorded run instead"
    )
    parser.add_argument("--images", type=int, default=power.IMAGES, help="of so many power cuts")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="kill the owner of a PostgreSQL database with a standby beside it, which takes over",
    )
    options = parser.parse_args(arguments)
    if options.standby:
        options.storage, options.faults = POSTGRESQL, False
    print(f"seed {options.seed}: --seed {options.seed} repeats the moments of this run", flush=True)
    kinds = [WORKLOADS[name] for name in options.workloads]
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="peeklock-crash-") as name:
        if options.power_cuts:
            names = ["images of power cuts"]
            reports = [power.run(options.images, options.seed, Path(name), options.inject_bug)]
        else:
            names = [*(kind.name for kind in kinds), "the storage and the log"]
            reports = run(kinds, options, Path(name))
    for name, report in zip(names, reports, strict=True):
        show(name, report)
    is_clean = all(report.is_clean for report in reports)
    verdict = "every promise kept" if is_clean else "PROMISES BROKEN"
    print(f"\n{verdict} ({time.monotonic() - begin_s:.0f} s)")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
