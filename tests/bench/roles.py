"""What a role of a measurement has to do, and the loop both roles share.

A role drives any number of connections in a process of its own; what it does with them is in
`sender` and `receiver`. It ends when all its messages are accounted for, or nothing moves.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cproton_ffi import lib

from tests.bench.payload import MIN_BODY_BYTES
from tests.support.proton_client import PeerFailed, ProtonClient

if TYPE_CHECKING:
    from array import array

SECOND_NS = 1_000_000_000
TICK_INTERVAL_S = 0.5
CLOSE_PATIENCE_S = 10.0

SETTLED, FIRST, SECOND = "settled", "first", "second"
"""Receive-and-delete; complete and forget; complete and wait for the broker's answer."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one role has to do. Sender and receiver of one run share run, count and senders."""

    port: int
    address: str
    count: int
    host: str = "127.0.0.1"
    run: int = 1
    body_bytes: int = 256
    connections: int = 1
    senders: int = 1
    """Connections on the sending side, which the receiving side needs for its checks."""
    window: int = 1000
    """Sender: messages awaiting their outcome, per connection."""
    credit: int = 1000
    """Receiver: link credit, per connection."""
    settle: str = SECOND
    """Receiver: settled, first or second."""
    presettled: bool = False
    in_sessions: bool = False
    """Each sender's messages are a session, each receiver holds one."""
    rate_per_s: float = 0.0
    """Sender: scheduled messages per second over all connections; 0 is as fast as it goes."""
    first_sequence: int = 0
    """Where each sender's sequences begin: how many it sent in earlier parts of the same run."""
    stall_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.body_bytes < MIN_BODY_BYTES:
            raise ValueError(f"a body needs at least {MIN_BODY_BYTES} bytes")
        if self.settle not in (SETTLED, FIRST, SECOND):
            raise ValueError(f"unknown way to settle: {self.settle}")


def session_id(index: int) -> str:
    """The session of the sender or receiver with this number."""
    return f"session-{index}"


class Role:
    """A loop over the connections of one role; `attach`, `run`, `result`, in this order."""

    kind = "role"

    def __init__(self, load: Load) -> None:
        self.load = load
        self.clients: list[ProtonClient] = []
        self.links: list[Any] = []
        self.error = ""
        self.begin_ns = self.end_ns = 0
        self.cpu_s = 0.0
        self._due_ns = 0
        self._is_closing = False

    # ---- what the roles differ in -------------------------------------------------------------

    def attach_link(self, client: ProtonClient, name: str, index: int) -> Any:
        raise NotImplementedError

    def work(self, index: int, now_ns: int) -> None:
        """Walk the events of one connection."""
        raise NotImplementedError

    def push(self, index: int) -> None:
        """Send or grant what may now be sent or granted."""
        raise NotImplementedError

    @property
    def progress(self) -> int:
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        raise NotImplementedError

    # ---- the loop -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Open every connection and link, and wait for the broker's attach."""
        load = self.load
        for index in range(load.connections):
            name = f"{self.kind}-{load.run}-{index}"
            client = ProtonClient(load.host, load.port, name)
            self.clients.append(client)
            link = self.attach_link(client, name, index)
            client.wait_until_attached(link, load.stall_timeout_s)
            self.links.append(link)

    def run(self) -> None:
        """Do the work, then close; whatever goes wrong ends in `error`."""
        cpu_before_s = time.process_time()
        self.begin_ns = self.end_ns = time.monotonic_ns()
        try:
            self._loop()
            self.cpu_s = time.process_time() - cpu_before_s
            self._close()
        except PeerFailed as failure:
            self.error = str(failure)
        finally:
            self.cpu_s = self.cpu_s or time.process_time() - cpu_before_s
            for client in self.clients:
                client.free()

    def _loop(self) -> None:
        clients = self.clients
        everyone = range(len(clients))
        stall_ns = int(self.load.stall_timeout_s * SECOND_NS)
        last_progress, last_progress_ns = -1, self.begin_ns
        while not self.is_done:
            self._due_ns = 0
            for index in everyone:
                self.push(index)
                clients[index].flush()
            blocked = [client for client in clients if client.has_unsent]
            readable, _, _ = select.select(clients, blocked, [], self._patience_s())
            now_ns = time.monotonic_ns()
            for client in readable:
                client.receive()
                self.work(clients.index(client), now_ns)
                if client.is_closed:
                    raise PeerFailed("the connection ended")
            if self.progress != last_progress:
                last_progress, last_progress_ns = self.progress, now_ns
            elif now_ns - last_progress_ns > stall_ns:
                raise PeerFailed(f"nothing moved for {self.load.stall_timeout_s} s")
            if not readable:
                for client in clients:
                    client.tick(now_ns // 1_000_000)

    def _patience_s(self) -> float:
        """Until the next scheduled message, or the next look at the heartbeat."""
        if not self._due_ns:
            return TICK_INTERVAL_S
        wait_s = (self._due_ns - time.monotonic_ns()) / SECOND_NS
        return min(max(wait_s, 0.0), TICK_INTERVAL_S)

    def _close(self) -> None:
        """Close every connection and wait for the answer: then the broker has read it all."""
        self._is_closing = True
        for client in self.clients:
            client.close()
            client.flush()
        waiting = list(self.clients)
        deadline_s = time.monotonic() + CLOSE_PATIENCE_S
        while waiting:
            blocked = [client for client in waiting if client.has_unsent]
            readable, writable, _ = select.select(waiting, blocked, [], 1.0)
            for client in writable:
                client.flush()
            for client in readable:
                client.receive()
                if self._peer_has_closed(client) or client.is_closed:
                    waiting.remove(client)
            if time.monotonic() > deadline_s:
                raise PeerFailed("the broker did not answer the close")

    def _peer_has_closed(self, client: ProtonClient) -> bool:
        has_closed = False
        while event := lib.pn_collector_peek(client.collector):
            has_closed |= lib.pn_event_type(event) == lib.PN_CONNECTION_REMOTE_CLOSE
            lib.pn_collector_pop(client.collector)
        return has_closed

    def result(self) -> dict[str, Any]:
        """Figures of this role as plain data."""
        elapsed_s = (self.end_ns - self.begin_ns) / SECOND_NS
        return {
            "role": self.kind,
            "count": self.progress,
            "elapsed_s": elapsed_s,
            "messages_per_s": self.progress / elapsed_s if elapsed_s else 0.0,
            "client_cpu_us_per_message": self.cpu_s * 1e6 / max(self.progress, 1),
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "error": self.error,
        }


def percentiles_us(latencies_ns: array[int]) -> dict[str, float]:
    """Latencies at and below which half, most and nearly all messages were."""
    if not latencies_ns:
        return {}
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    figures = {f"p{share}": ordered[round(last * share / 100)] / 1e3 for share in (50, 95, 99)}
    return figures | {"max": ordered[-1] / 1e3}
