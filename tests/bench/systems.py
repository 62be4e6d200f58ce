"""What is measured: Peeklock on each storage, other brokers, and the disk below them.

A `Target` is one that is running, with what the generator must know to use its queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import observe
from tests.bench.load_program import run_program
from tests.bench.rows import Row, row_of
from tests.support.server import HOST

if TYPE_CHECKING:
    from tests.bench.roles import Load
    from tests.support.server import BrokerProcess

MEMORY, SQLITE, POSTGRESQL = "memory", "sqlite", "postgresql"
RABBITMQ, ARTEMIS, DISK = "RabbitMQ", "Artemis", "disk"
STORAGES = (MEMORY, SQLITE, POSTGRESQL)
LOCAL = (MEMORY, SQLITE)
TITLES = {
    MEMORY: "Peeklock, memory",
    SQLITE: "Peeklock, SQLite",
    POSTGRESQL: "Peeklock, PostgreSQL",
    RABBITMQ: "RabbitMQ, quorum queue",
    ARTEMIS: "Artemis, journal synced",
    DISK: "disk",
}
QUEUE = "measured"
"""The queue that all loads of a target use, if they name no other."""


@dataclass(frozen=True, slots=True)
class Target:
    """A broker that runs, and how its queue is reached."""

    system: str
    port: int
    process_id: int | None
    """None where the process cannot be seen: then there are no figures of CPU and memory."""
    host: str = HOST
    address: str = QUEUE
    capability: str = ""
    """What the links must ask of the address."""
    sasl: bool = False
    """Whether connections must log in."""

    @classmethod
    def of(cls, system: str, broker: BrokerProcess) -> Target:
        return cls(system, broker.amqp_port, broker.process_id)

    def run(self, case: str, kind: str, load: Load) -> Row:
        """Run a role, or both, and charge the broker for what it used meanwhile."""
        before_s = self.cpu_s
        results = run_program(kind, load, capability=self.capability, sasl=self.sasl)
        row = row_of(case, self.cpu_s - before_s, results)
        row.system = self.system
        if self.process_id is None:
            row.figures.pop("broker_cpu_us", None)
        return row

    @property
    def cpu_s(self) -> float:
        return 0.0 if self.process_id is None else observe.cpu_s(self.process_id)
