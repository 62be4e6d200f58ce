"""The delays of a well-behaved client while another abuses the broker.

One client sends and receives one message at a time, from its own process, while another does what
takes a broker long (`abuses.py`). The figures are the round trips of the first client during the
abuse, and the memory of the broker. Other work on the machine slows down all of them. So the load average is shown as
well, and the waits of a client of an idle broker at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cproton_ffi import lib

from tests.bench.observe import resident_megabytes
from tests.soak.abuses import ABUSES, SMALL_MESSAGE
from tests.soak.mass_abuses import MASS_ABUSES
from tests.soak.neighbour import Waits, control_neighbour, processor_s
from tests.support.proton.connection import ProtonConnection
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from tests.soak.neighbour import Neighbour

ALL_ABUSES = ABUSES | MASS_ABUSES
VICTIM = "victim"
MEMORY_LIMIT_MEGABYTES = 300.0
CALM_S = 1.0
"""How long the victim goes on after an abuse: parts of it may be left to do."""
ARRIVALS_EVERY_S = 0.005


class Felt(NamedTuple):
    """The delays of the victim during one abuse."""

    name: str
    seconds: float
    rounds: int
    waits: Waits
    megabytes_before: float
    megabytes: float
    """The most there was during it."""

    control: Waits
    """What a client of an idle broker waited at the same time."""

    load: float
    """Processes that wanted to run, on average over the last minute."""

    @property
    def failed(self) -> bool:
        return bool(self.missed)

    @property
    def missed(self) -> list[str]:
        """The bounds that did not hold."""
        missed = []
        p99_max_ms = ALL_ABUSES[self.name].p99_max_ms
        if self.waits.p99_ms > p99_max_ms:
            missed.append(f"p99 over {p99_max_ms:g} ms")
        if self.megabytes > MEMORY_LIMIT_MEGABYTES:
            missed.append(f"more than {MEMORY_LIMIT_MEGABYTES:g} MB")
        return missed

    def __str__(self) -> str:
        return (
            f"{self.name:<16} {self.seconds:6.1f} s {self.rounds:>6} rounds  "
            f"{self.waits}  "
            f"{self.megabytes_before:6.0f} -> {self.megabytes:6.0f} MB  "
            f"control {self.control}, ratio {self.waits.p99_ms / self.control.p99_ms:.1f}  "
            f"load {self.load:.1f}{'  MISSED: ' if self.missed else ''}{', '.join(self.missed)}"
        )


# --- the victim --------------------------------------------------------------------------------


def _live(port: int, broker_process_id: int, pipe: Connection) -> None:
    """Sends and receives one message at a time until it is stopped. Returns the beginning of each round, its
    time, and the broker's processor time during it."""
    client = ProtonConnection(HOST, port, "victim")
    sender = client.attach_sender(VICTIM, name="to")
    client.wait_until_attached(sender, 30)
    receiver = client.attach_receiver(VICTIM, name="from")
    client.wait_until_attached(receiver, 30)
    lib.pn_link_flow(receiver, 1)
    client.flush()
    rounds: list[tuple[float, float, float]] = []
    number = 0
    pipe.send("ready")
    while not pipe.poll():
        number += 1
        busy_s, began_s = processor_s(broker_process_id), time.monotonic()
        client.send(sender, SMALL_MESSAGE, b"%d" % number)
        client.flush()
        accepted = received = False
        while not (accepted and received):
            client.wait(1.0)
            client.receive()
            while event := lib.pn_collector_peek(client.collector):
                if lib.pn_event_type(event) == lib.PN_DELIVERY:
                    delivery = lib.pn_event_delivery(event)
                    link = lib.pn_delivery_link(delivery)
                    if lib.pn_link_is_sender(link):
                        accepted = True
                    elif not received:
                        client.take(link, delivery)
                        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
                        received = True
                        lib.pn_link_flow(receiver, 1)
                    lib.pn_delivery_settle(delivery)
                else:
                    client.check(event)
                lib.pn_collector_pop(client.collector)
            client.flush()
        took_s = time.monotonic() - began_s
        rounds.append((began_s, took_s, processor_s(broker_process_id) - busy_s))
        time.sleep(0.001)
    pipe.send(rounds)


def feel(
    name: str, storage: str | None = None, settle: Callable[[], object] = lambda: None
) -> Felt:
    """Runs one abuse beside a victim. Calls `settle` after the abuse is prepared: the disk may still write that."""
    abuse = ALL_ABUSES[name]
    config = {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": "sbemulatorns",
                    "Queues": [{"Name": VICTIM}, *abuse.entities()],
                    "Topics": abuse.topics(),
                }
            ]
        }
    }
    with tempfile.TemporaryDirectory(prefix="peeklock-neighbours-") as folder:
        url = storage or f"sqlite:///{Path(folder) / 'store.db'}"
        with BrokerProcess(config=config, storage=url) as broker:
            prepared = abuse.prepare(broker)
            with control_neighbour(Path(folder)) as control:
                settle()
                return _feel(name, broker, control, lambda: abuse.act(broker, prepared))


def _feel(name: str, broker: BrokerProcess, control: Neighbour, act: Callable[[], None]) -> Felt:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    victim = context.Process(
        target=_live, args=(broker.amqp_port, broker.process_id, theirs), daemon=True
    )
    victim.start()
    assert ours.recv() == "ready"
    time.sleep(CALM_S)
    before = resident_megabytes(broker.process_id)
    sizes = [before]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            sizes.append(resident_megabytes(broker.process_id))

    watching = threading.Thread(target=watch)
    watching.start()
    control.begin()
    began_s = time.monotonic()
    try:
        act()
        ended_s = time.monotonic()
        time.sleep(CALM_S)
        control_waits = control.end()
    finally:
        over.set()
        watching.join()
        ours.send("stop")
    rounds: list[tuple[float, float, float]] = ours.recv()
    victim.join()
    during = [
        (took_s, busy_s)
        for at_s, took_s, busy_s in rounds
        if at_s + took_s >= began_s and at_s <= ended_s
    ]
    waits = Waits.of(
        [wait_s for took_s, _ in during for wait_s in _waits(took_s)],
        [wait_s for _, busy_s in during for wait_s in _waits(busy_s)],
    )
    return Felt(
        name,
        ended_s - began_s,
        len(during),
        waits,
        before,
        max(sizes),
        control_waits,
        os.getloadavg()[0],
    )


def _waits(took_s: float) -> list[float]:
    """Returns how long clients that arrive steadily during one round would have waited: the victim
    sends nothing while it waits, and so would count a long delay only once."""
    return [took_s - late * ARRIVALS_EVERY_S for late in range(int(took_s / ARRIVALS_EVERY_S) + 1)]


def run_neighbours(names: list[str] | None = None) -> list[Felt]:
    """Runs each abuse of the table, or these, each with a new broker on a file."""
    results = []
    for name in names or ABUSES:
        felt = feel(name)
        print(f"{'FAILED' if felt.failed else 'ok':<6} {felt}", flush=True)
        results.append(felt)
    return results
