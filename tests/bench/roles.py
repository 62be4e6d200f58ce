"""The two halves of a measurement: many connections that send, or many that receive and complete.

Each role is one loop over its own sockets, meant for a process of its own; `load` starts them and
puts their results together. A role ends when all its messages are accounted for, or nothing moves.
"""

from __future__ import annotations

import select
import time
from array import array
from dataclasses import asdict, dataclass
from typing import Any

from cproton_ffi import ffi, lib

from tests.bench.payload import (
    MIN_BODY_BYTES,
    SEQUENCE_OFFSET,
    STAMP,
    STAMP_OFFSET,
    DeliveryChecks,
    encode,
    shares,
)
from tests.support.proton_client import PeerFailed, ProtonClient

SECOND_NS = 1_000_000_000
TICK_INTERVAL_S = 0.5
CLOSE_PATIENCE_S = 10.0
CHUNK_MESSAGES = 128
"""Messages handed to the engine before the socket is served again."""
OUTGOING_LIMIT_BYTES = 1 << 17
"""Beyond this the engine would search its backlog on every write."""
RECEIVE_BUFFER_BYTES = 1 << 21

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

    def attach_link(self, client: ProtonClient, name: str) -> Any:
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
            link = self.attach_link(client, name)
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


class Sender(Role):
    """Sends its share on every connection; a message is done when its outcome is known."""

    kind = "send"

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        message, body_at = encode(load.run, load.body_bytes)
        self._message = ffi.new("char[]", bytes(message))
        self._message_bytes = len(message)
        self._view = ffi.buffer(self._message, len(message))
        self._stamp_at = body_at + STAMP_OFFSET
        # The sequence inside the message serves as the delivery tag: written once, used twice.
        self._tag = ffi.new("pn_delivery_tag_t *")
        self._tag.start = self._message + body_at + SEQUENCE_OFFSET
        self._tag.size = 8
        self._end = [load.first_sequence + n for n in shares(load.count, load.connections)]
        self._sequence = [load.first_sequence] * load.connections
        self._sent_ns: list[dict[Any, int]] = [{} for _ in range(load.connections)]
        self._latencies_ns = array("q")
        self._outcomes: dict[int, int] = {}
        self._settled = 0

    def attach_link(self, client: ProtonClient, name: str) -> Any:
        return client.attach_sender(self.load.address, name=name, settled=self.load.presettled)

    @property
    def progress(self) -> int:
        return self._settled

    @property
    def is_done(self) -> bool:
        if self._settled < self.load.count:
            return False
        return not (self.load.presettled and any(client.has_unsent for client in self.clients))

    def push(self, index: int) -> None:
        load, link, awaited = self.load, self.links[index], self._sent_ns[index]
        sequence = start = self._sequence[index]
        allowed = min(
            lib.pn_link_credit(link),
            load.window - len(awaited),
            self._end[index] - sequence,
            CHUNK_MESSAGES,
        )
        outgoing_bytes = lib.pn_session_outgoing_bytes(self.clients[index].amqp_session)
        if allowed <= 0 or outgoing_bytes > OUTGOING_LIMIT_BYTES:
            return
        now_ns = stamp_ns = time.monotonic_ns()
        pack, view, stamp_at = STAMP.pack_into, self._view, self._stamp_at
        message, message_bytes, tag = self._message, self._message_bytes, self._tag
        new_delivery, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        end = sequence + allowed
        while sequence < end:
            if load.rate_per_s:
                place = (sequence - load.first_sequence) * load.connections + index
                stamp_ns = self.begin_ns + int(place * SECOND_NS / load.rate_per_s)
                if stamp_ns > now_ns:
                    self._due_ns = min(self._due_ns or stamp_ns, stamp_ns)
                    break
            pack(view, stamp_at, index, sequence, stamp_ns)
            delivery = new_delivery(link, tag[0])
            send(link, message, message_bytes)
            advance(link)
            awaited[delivery] = stamp_ns
            sequence += 1
        else:
            if allowed == CHUNK_MESSAGES:
                self._due_ns = now_ns  # there is more to send: look at the sockets, do not wait
        self._sequence[index] = sequence
        if load.presettled:
            for delivery in awaited:
                lib.pn_delivery_settle(delivery)
            awaited.clear()
            self._settled += sequence - start

    def work(self, index: int, now_ns: int) -> None:
        client, awaited = self.clients[index], self._sent_ns[index]
        collector, outcomes = client.collector, self._outcomes
        peek, pop, delivery_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
        state_of, settle = lib.pn_delivery_remote_state, lib.pn_delivery_settle
        accepted = lib.PN_ACCEPTED
        add_latency, forget = self._latencies_ns.append, awaited.pop
        before = len(awaited)
        while event := peek(collector):
            # Every other kind of event has no delivery.
            if delivery := delivery_of(event):
                state = state_of(delivery)
                sent_ns = forget(delivery, None) if state else None
                if sent_ns is not None:
                    if state == accepted:
                        add_latency(now_ns - sent_ns)
                    else:
                        outcomes[state] = outcomes.get(state, 0) + 1
                    settle(delivery)
            else:
                client.check(event)
            pop(collector)
        self._settled += before - len(awaited)
        self.end_ns = now_ns

    def _close(self) -> None:
        super()._close()
        if self.load.presettled:
            # Only the broker's answer to the close shows that it has read every message.
            self.end_ns = time.monotonic_ns()

    def result(self) -> dict[str, Any]:
        accepted = len(self._latencies_ns)
        not_accepted = 0 if self.load.presettled else self.load.count - accepted
        return super().result() | {
            "accepted": accepted,
            "not_accepted": not_accepted,
            "latency_us": percentiles_us(self._latencies_ns),
            "is_clean": not self.error and not not_accepted,
        }


class Receiver(Role):
    """Receives and completes `count` messages over all connections, and checks every one."""

    kind = "receive"

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        expected = shares(load.count, load.senders)
        self.checks = DeliveryChecks(
            load.run, load.body_bytes, expected, load.connections, load.first_sequence
        )
        self._buffer = ffi.new("char[]", RECEIVE_BUFFER_BYTES)
        self._view = ffi.buffer(self._buffer)
        self._granted = 0
        self._settled = 0

    def attach_link(self, client: ProtonClient, name: str) -> Any:
        settle = self.load.settle
        return client.attach_receiver(
            self.load.address, name=name, settled=settle == SETTLED, second=settle == SECOND
        )

    @property
    def progress(self) -> int:
        return self._settled

    @property
    def is_done(self) -> bool:
        return self._settled >= self.load.count

    def push(self, index: int) -> None:
        """Keep the credit between half and all of what it may be, never beyond `count` in total."""
        left = self.load.count - self._granted
        if not left:
            return
        credit = lib.pn_link_credit(self.links[index])
        if credit > self.load.credit // 2:
            return
        count = min(self.load.credit - credit, left)
        self._granted += count
        lib.pn_link_flow(self.links[index], count)

    def work(self, index: int, now_ns: int) -> None:
        client, link, buffer, view = (
            self.clients[index],
            self.links[index],
            self._buffer,
            self._view,
        )
        collector, waits = client.collector, self.load.settle == SECOND
        peek, pop, delivery_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
        is_readable, is_partial = lib.pn_delivery_readable, lib.pn_delivery_partial
        size_of, receive = lib.pn_delivery_pending, lib.pn_link_recv
        advance, update, settle = (
            lib.pn_link_advance,
            lib.pn_delivery_update,
            lib.pn_delivery_settle,
        )
        is_settled, accepted = lib.pn_delivery_settled, lib.PN_ACCEPTED
        payloads: list[bytes] = []
        settled = 0
        while event := peek(collector):
            if delivery := delivery_of(event):
                if is_readable(delivery):
                    if not is_partial(delivery):
                        size = size_of(delivery)
                        receive(link, buffer, size)
                        payloads.append(view[0:size])
                        advance(link)
                        update(delivery, accepted)
                        if not waits:
                            settle(delivery)
                            settled += 1
                elif waits and is_settled(delivery):
                    settle(delivery)
                    settled += 1
            else:
                client.check(event)
            pop(collector)
        self._settled += settled
        self.end_ns = now_ns
        self.checks.add(payloads, index, now_ns)

    def result(self) -> dict[str, Any]:
        verdict = self.checks.verdict()
        return super().result() | {
            "received": self.checks.received,
            "verdict": asdict(verdict),
            "latency_us": percentiles_us(self.checks.latencies_ns),
            "is_clean": not self.error and verdict.is_clean,
        }


def percentiles_us(latencies_ns: array[int]) -> dict[str, float]:
    """Latencies at and below which half, most and nearly all messages were."""
    if not latencies_ns:
        return {}
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    figures = {f"p{share}": ordered[round(last * share / 100)] / 1e3 for share in (50, 95, 99)}
    return figures | {"max": ordered[-1] / 1e3}
