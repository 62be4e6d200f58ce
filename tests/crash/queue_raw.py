"""Volume on one queue: pipelined senders and one receiver on the bare AMQP engine.

Many sends wait for their outcome and completions come late, so that a kill always catches some of
each. One receiver sees every message, which allows the strictest check of order.
"""

from __future__ import annotations

import random
import select
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.ledger import Ledger, Link, Report
from tests.crash.raw_links import RawReceiver, RawSender
from tests.crash.workload import NO_LIFE, Surroundings, Workload
from tests.support.proton_client import PeerFailed, ProtonClient

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE = "crash-raw"
DEAD_LETTERS = f"{QUEUE}/$DeadLetterQueue"
SENDERS = ("raw-0", "raw-1")
RATE_PER_S = 2_000
"""Over both senders: enough to load every commit, little enough to audit in memory."""
MAX_BACKLOG = 3_000
HOLD_SHARE = 0.2
SERVE_INTERVAL_S = 0.005
RETRY_INTERVAL_S = 0.05
QUIET_S = 2.0
"""A queue that delivers nothing for so long is empty."""


class RawQueue(Workload):
    name = "raw queue"
    queues: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"Name": QUEUE, "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 10}},
    )

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._chance = random.Random(surroundings.seed)
        self._ledger = Ledger(single_receiver=True)
        self._next_index = dict.fromkeys(SENDERS, 0)
        self._links = 0
        self._clients: list[ProtonClient] = []

    def work(self) -> None:
        while (life := self.surroundings.wait_for_life()) != NO_LIFE:
            try:
                self._live(life)
            except (PeerFailed, OSError) as failure:
                self.note_failure(life, failure, self._ledger)
                time.sleep(RETRY_INTERVAL_S)
            finally:
                self._hang_up()

    def _live(self, life: int) -> None:
        """Work over fresh connections until they break or it is time to stop."""
        senders = {name: self._sender(name) for name in SENDERS}
        receiver = self._receiver(QUEUE, life, HOLD_SHARE)
        if not self.surroundings.is_still(life):
            return
        begin_s, sent = time.monotonic(), 0
        while not self.surroundings.stop.is_set():
            limit = int((time.monotonic() - begin_s) * RATE_PER_S) - sent
            if self._ledger.backlog > MAX_BACKLOG:
                limit = 0
            for name, sender in senders.items():
                first = self._next_index[name]
                self._next_index[name] = sender.send(first, limit // len(senders))
                sent += self._next_index[name] - first
            receiver.grant()
            self._exchange_bytes()
            for sender in senders.values():
                sender.handle_events()
            receiver.handle_events()
            self._check_connections()

    def finish(self) -> Report:
        """Empty the queue, then see that nothing was put aside."""
        self._drain(QUEUE, self._ledger)
        strays = Ledger(single_receiver=False)
        self._drain(DEAD_LETTERS, strays)
        report = self._ledger.audit()
        if dead_lettered := strays.audit().counts["deliveries"]:
            report.violations["dead-lettered"] = [f"{dead_lettered} messages"]
        return report

    def _drain(self, address: str, ledger: Ledger) -> None:
        receiver = self._receiver(address, self.surroundings.life.value, 0.0, ledger)
        quiet_since_s = time.monotonic()
        while time.monotonic() - quiet_since_s < QUIET_S:
            receiver.grant()
            self._exchange_bytes()
            if receiver.handle_events() or not receiver.is_idle:
                quiet_since_s = time.monotonic()
            self._check_connections()
        self._hang_up()

    # ---- connections --------------------------------------------------------------------------

    def _connect(self, container_id: str) -> ProtonClient:
        surroundings = self.surroundings
        client = ProtonClient(surroundings.host, surroundings.amqp_port, container_id)
        self._clients.append(client)
        return client

    def _sender(self, name: str) -> RawSender:
        return RawSender(name, self._connect(name), QUEUE, self._ledger)

    def _receiver(
        self, address: str, life: int, hold_share: float, ledger: Ledger | None = None
    ) -> RawReceiver:
        self._links += 1
        client = self._connect(f"receiver-{self._links}")
        identity = Link(self._links, life)
        ledger = ledger or self._ledger
        return RawReceiver(client, address, identity, ledger, self._chance, hold_share)

    def _exchange_bytes(self) -> None:
        for client in self._clients:
            client.flush()
        blocked = [client for client in self._clients if client.has_unsent]
        readable, _, _ = select.select(self._clients, blocked, [], SERVE_INTERVAL_S)
        for client in readable:
            client.receive()

    def _check_connections(self) -> None:
        if any(client.is_closed for client in self._clients):
            raise PeerFailed("the connection ended")

    def _hang_up(self) -> None:
        for client in self._clients:
            client.free()
        self._clients.clear()
