"""Volume on the bare AMQP engine: pipelined senders, and one receiver for every place of arrival.

Many sends wait for their outcome and completions come late, so that a kill always catches some of
each. One receiver sees every message of its place, which allows the strictest check of order.
"""

from __future__ import annotations

import random
import select
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.clients.raw_links import RawReceiver, RawSender
from tests.crash.ledgers.messages import Ledger, Link, Order
from tests.crash.ledgers.report import Report
from tests.crash.workload import LOCK, NO_LIFE, Surroundings, Workload
from tests.support.proton.connection import PeerFailed, ProtonConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

SENDERS = ("raw-0", "raw-1")
MAX_BACKLOG = 3_000
HOLD_SHARE = 0.2
SERVE_INTERVAL_S = 0.005
RETRY_INTERVAL_S = 0.05
QUIET_S = 2.0
"""A place that delivers nothing for so long is empty."""


class VolumeWorkload(Workload):
    """Sends to `target`; whatever is accepted must arrive at each of `sources`."""

    target: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    rate_per_s: ClassVar[int]
    """Over both senders: enough to load every commit, little enough to audit in memory."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._chance = random.Random(surroundings.seed)
        self._ledgers = {source: Ledger() for source in self.sources}
        self._next_index = dict.fromkeys(SENDERS, 0)
        self._links = 0
        self._clients: list[ProtonConnection] = []

    def work(self) -> None:
        while (life := self.surroundings.wait_for_life()) != NO_LIFE:
            try:
                self._live(life)
            except (PeerFailed, OSError) as failure:
                self.note_failure(life, failure, *self._ledgers.values())
                time.sleep(RETRY_INTERVAL_S)
            finally:
                self._hang_up()

    def _live(self, life: int) -> None:
        """Work over fresh connections until they break or it is time to stop."""
        senders = [self._sender(name) for name in SENDERS]
        receivers = [
            self._receiver(source, life, ledger, HOLD_SHARE)
            for source, ledger in self._ledgers.items()
        ]
        if not self.surroundings.is_still(life):
            return
        begin_s, sent = time.monotonic(), 0
        while not self.surroundings.stop.is_set():
            limit = int((time.monotonic() - begin_s) * self.rate_per_s) - sent
            if max(ledger.backlog for ledger in self._ledgers.values()) > MAX_BACKLOG:
                limit = 0
            for sender in senders:
                first = self._next_index[sender.name]
                self._next_index[sender.name] = sender.send(first, limit // len(senders))
                sent += self._next_index[sender.name] - first
            for receiver in receivers:
                receiver.grant()
            self._exchange_bytes()
            for sender in senders:
                sender.handle_events()
            for receiver in receivers:
                receiver.handle_events()
            self._check_connections()

    # ---- the end ------------------------------------------------------------------------------

    def finish(self) -> Report:
        """Empty every place, then see that nothing was put aside."""
        report = Report({})
        for source, ledger in self._ledgers.items():
            self._drain(source, ledger)
            strays = Ledger(Order.NONE)
            self._drain(f"{source}/$DeadLetterQueue", strays)
            found = ledger.audit()
            if count := strays.audit().counts["deliveries"]:
                found.violations["dead-lettered"] = [f"{count} messages of {source}"]
            report = report.plus(found)
        return report

    def _drain(self, source: str, ledger: Ledger) -> None:
        receiver = self._receiver(source, self.surroundings.life.value, ledger, hold_share=0.0)
        quiet_since_s = time.monotonic()
        while time.monotonic() - quiet_since_s < QUIET_S:
            receiver.grant()
            self._exchange_bytes()
            if receiver.handle_events() or not receiver.is_idle:
                quiet_since_s = time.monotonic()
            self._check_connections()
        self._hang_up()

    # ---- connections --------------------------------------------------------------------------

    def _connect(self, container_id: str) -> ProtonConnection:
        surroundings = self.surroundings
        client = ProtonConnection(surroundings.host, surroundings.amqp_port, container_id)
        self._clients.append(client)
        return client

    def _sender(self, name: str) -> RawSender:
        ledgers = list(self._ledgers.values())
        return RawSender(name, self._connect(name), self.target, ledgers)

    def _receiver(self, source: str, life: int, ledger: Ledger, hold_share: float) -> RawReceiver:
        self._links += 1
        client = self._connect(f"receiver-{self._links}")
        identity = Link(self._links, life)
        return RawReceiver(client, source, identity, ledger, self._chance, hold_share)

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


class VolumeQueue(VolumeWorkload):
    """One queue."""

    name = "volume on a queue"
    queues: ClassVar[Mapping[str, Any]] = {"crash-raw": LOCK}
    target = "crash-raw"
    sources = ("crash-raw",)
    rate_per_s = 2_000


class VolumeTopic(VolumeWorkload):
    """One topic: accepted means stored for every subscription, not for some."""

    name = "volume on a topic with two subscriptions"
    topics: ClassVar[Mapping[str, Any]] = {
        "crash-topic": {"subscriptions": {"one": LOCK, "two": LOCK}}
    }
    target = "crash-topic"
    sources = ("crash-topic/Subscriptions/one", "crash-topic/Subscriptions/two")
    rate_per_s = 500
