"""What a workload is, and the process it runs in while the broker is killed around it.

A workload owns its entities, its clients and its ledger; the harness owns the broker and tells, by
`Surroundings`, which run of the broker is on. A new scenario is a subclass and a line in `run`.
"""

from __future__ import annotations

import sys
import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.ledgers.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

    from tests.crash.ledgers.messages import Ledger
    from tests.support.proton.connection import ByteSocket

NO_RUN = -1
LOCK = {"lock_duration": "PT5M", "max_delivery_count": 1_000}
"""Properties of entities whose locks are never meant to run out. Each connection that breaks counts as a failed
delivery of every message that it has locked, and here connections break as often as a client is told to come
again. So the maximum is out of reach, and the ledger checks the count itself."""
POLL_INTERVAL_S = 0.01


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a workload may know of the world outside its process."""

    host: str
    amqp_port: int
    http_port: int
    connection_string: str
    admin_connection_string: str
    seed: int
    broker_run: Synchronized[int]
    """Which run of the broker is on; NO_RUN from before a kill until it is healthy again."""
    faulty: Synchronized[int]
    """1 while the broker may have met a fault, so that connections and links may be refused."""
    stop: Event
    dial: Callable[[], ByteSocket] | None = None
    """Connects to a broker that has no port."""
    now_ms: Callable[[], int] = wall_clock_ms
    """The broker's time."""

    def wait_for_run(self) -> int:
        """The run that is on, as soon as there is one; NO_RUN if it is time to stop."""
        while not self.stop.is_set():
            broker_run: int = self.broker_run.value
            if broker_run != NO_RUN:
                return broker_run
            time.sleep(POLL_INTERVAL_S)
        return NO_RUN

    def is_still(self, broker_run: int) -> bool:
        """Whether this run has not been ended; asked after an error, it tells who is to blame."""
        return bool(self.broker_run.value == broker_run)


class Workload(ABC):
    """Clients that work until told to stop, then empty their entities and judge."""

    name: ClassVar[str]
    queues: ClassVar[Mapping[str, Any]] = {}
    """Entities it needs, by name, as a config file has them."""
    topics: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings

    def note_failure(self, broker_run: int, failure: BaseException, *ledgers: Ledger) -> None:
        """A client failed: after a kill that is the point, otherwise it is worth knowing."""
        if self.surroundings.is_still(broker_run):
            for ledger in ledgers:
                ledger.disturbed(broker_run)
            if not self.surroundings.faulty.value:
                print(f"{self.name}: {type(failure).__name__}: {failure}", file=sys.stderr)

    @abstractmethod
    def work(self) -> None:
        """Send and receive through any number of kills; return soon after `stop` is set."""

    @abstractmethod
    def finish(self) -> Report:
        """With the broker up for good: receive all that is left, then audit."""


def run_workload(
    kind: type[Workload], surroundings: Surroundings, parent: Connection[Any, Any]
) -> None:
    """Runs a workload in its process."""
    try:
        workload = kind(surroundings)
        workload.work()
        parent.send(workload.finish())
    except BaseException:
        parent.send(Report({}, {"the workload itself failed": [traceback.format_exc()]}))
        raise
