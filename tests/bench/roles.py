"""What a role of a measurement has to do, and the loop both roles share.

A role drives any number of connections in a process of its own; what it does with them is in
`sender` and `receiver`. It ends when all its messages are accounted for, or nothing moves.

The roles walk the events of `ProtonConnection` themselves: that takes 4.5 µs of the client's processor a
message of 1 KiB, `ProtonClient` takes 15 µs, and the broker that is measured takes 12 µs.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from cproton_ffi import lib

from tests.bench.payload import MIN_BODY_BYTES
from tests.support.proton.connection import PeerFailed, ProtonConnection

if TYPE_CHECKING:
    from array import array

SECOND_NS = 1_000_000_000
TICK_INTERVAL_S = 0.5
CLOSE_PATIENCE_S = 10.0
READABLE, WRITABLE = select.POLLIN, select.POLLOUT

SETTLED, FIRST, SECOND = "settled", "first", "second"
"""Receive-and-delete; complete and forget; complete and wait for the broker's answer."""


class Mark(Enum):
    """How a message shows which stream it belongs to, besides in its body."""

    NONE = "none"
    SESSION = "session"
    """Its session id."""
    PROPERTY = "property"
    """An application property."""


class Take(Enum):
    """What the links of a receiving role take."""

    ANY = "any"
    """Any message that comes, together all of them."""
    OWN = "own"
    """Each the stream that has its number."""
    COPY = "copy"
    """Each a copy of every message."""
    NEXT = "next"
    """Each one session after the other, whichever comes next."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one role has to do. Sender and receiver of one run share run, count, streams, mark."""

    port: int
    address: str
    """A `{}` in it stands for the number of the link."""
    count: int
    host: str = "127.0.0.1"
    run: int = 1
    body_bytes: int = 256
    connections: int = 1
    links: int = 0
    """Spread over the connections in turn; 0 is one on each."""
    streams: int = 1
    """Series of messages, each in an order of its own; a sending link has one, or several."""
    mark: Mark = Mark.NONE
    take: Take = Take.ANY
    window: int = 1000
    """Sender: messages awaiting their outcome, per link."""
    credit: int = 1000
    """Receiver: link credit, per link."""
    settle: str = SECOND
    """Receiver: settled, first or second."""
    presettled: bool = False
    with_ids: bool = False
    """Each message has an id of its own."""
    scheduled_ms: int = 0
    """When the messages are to be enqueued; 0 is at once."""
    rate_per_s: float = 0.0
    """Sender: scheduled messages per second over all links; 0 is as fast as it goes."""
    first_sequence: int = 0
    """Where each stream's sequences begin: how many were sent in earlier parts of the same run."""
    stall_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.body_bytes < MIN_BODY_BYTES:
            raise ValueError(f"a body needs at least {MIN_BODY_BYTES} bytes")
        if self.settle not in (SETTLED, FIRST, SECOND):
            raise ValueError(f"unknown way to settle: {self.settle}")
        uneven = self.streams % self.link_count or self.count % self.streams
        if self.take is Take.NEXT and uneven:
            raise ValueError("links must share the sessions, and sessions the messages, evenly")

    @property
    def link_count(self) -> int:
        return self.links or self.connections

    def link_address(self, index: int) -> str:
        return self.address.replace("{}", str(index))


def session_id(stream: int) -> str:
    """The session of the stream with this number."""
    return f"session-{stream}"


class Role:
    """A loop over the connections of one role; `attach`, `run`, `result`, in this order."""

    kind = "role"

    def __init__(self, load: Load) -> None:
        self.load = load
        self.clients: list[ProtonConnection] = []
        self.links: list[Any] = []
        self.places: dict[Any, int] = {}
        """The number of each link."""
        self.error = ""
        self.begin_ns = self.end_ns = 0
        self.cpu_s = 0.0
        self._due_ns = 0
        self._is_closing = False

    # ---- what the roles differ in -------------------------------------------------------------

    def attach_link(self, client: ProtonConnection, name: str, index: int) -> Any:
        raise NotImplementedError

    def work(self, client: ProtonConnection, now_ns: int) -> None:
        """Walk the events of one connection."""
        raise NotImplementedError

    def push(self, index: int) -> None:
        """Send or grant on one link what may now be sent or granted."""
        raise NotImplementedError

    @property
    def progress(self) -> int:
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        raise NotImplementedError

    @property
    def attaches_at_once(self) -> bool:
        """The broker answers an attach even before there are messages."""
        return True

    # ---- the loop -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Open every connection and link, and wait for the broker's attach."""
        load = self.load
        for index in range(load.connections):
            name = f"{self.kind}-{load.run}-{index}"
            self.clients.append(ProtonConnection(load.host, load.port, name))
        for index in range(load.link_count):
            client = self.client_of(index)
            link = self.attach_link(client, f"{self.kind}-{load.run}-{index}", index)
            if self.attaches_at_once:
                client.wait_until_attached(link, load.stall_timeout_s)
            self.links.append(link)
            self.places[link] = index

    def client_of(self, index: int) -> ProtonConnection:
        """The connection of the link with this number."""
        return self.clients[index % len(self.clients)]

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
        links = range(len(self.links))
        sockets = select.poll()  # `select` ends at a thousand sockets
        by_socket = {client.fileno(): client for client in clients}
        for client in clients:
            sockets.register(client, READABLE)
        blocked: set[ProtonConnection] = set()
        stall_ns = int(self.load.stall_timeout_s * SECOND_NS)
        last_progress, last_progress_ns = -1, self.begin_ns
        while not self.is_done:
            self._due_ns = 0
            for index in links:
                self.push(index)
            for client in clients:
                client.flush()
                if client.has_unsent != (client in blocked):
                    sockets.modify(client, READABLE | WRITABLE * client.has_unsent)
                    blocked ^= {client}
            ready = sockets.poll(self._patience_s() * 1e3)
            now_ns = time.monotonic_ns()
            for descriptor, _ in ready:
                client = by_socket[descriptor]
                client.receive()
                self.work(client, now_ns)
                if client.is_closed:
                    raise PeerFailed("the connection ended")
            if self.progress != last_progress:
                last_progress, last_progress_ns = self.progress, now_ns
            elif now_ns - last_progress_ns > stall_ns:
                raise PeerFailed(f"nothing moved for {self.load.stall_timeout_s} s")
            if not ready:
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
        deadline_s = time.monotonic() + CLOSE_PATIENCE_S
        for client in self.clients:
            while not (self._peer_has_closed(client) or client.is_closed):
                if time.monotonic() > deadline_s:
                    raise PeerFailed("the broker did not answer the close")
                client.wait(1.0)
                client.receive()
                client.flush()

    def _peer_has_closed(self, client: ProtonConnection) -> bool:
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
