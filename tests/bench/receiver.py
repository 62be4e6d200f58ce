"""The receiving role: takes messages with credit to spare, completes and checks every one.

What is wrong with a message is decided in `payload`. The role never takes more than its count, so
what other loads put into the queue behind it stays there.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from tests.bench.payload import DeliveryChecks, shares
from tests.bench.roles import SECOND, SETTLED, Load, Role, percentiles_us, session_id

if TYPE_CHECKING:
    from tests.support.proton_client import ProtonClient

RECEIVE_BUFFER_BYTES = 1 << 21


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
        # A session's messages come over its own link alone; otherwise any link takes any message.
        self._grantable = expected if load.in_sessions else [load.count]
        self._settled = 0

    def attach_link(self, client: ProtonClient, name: str, index: int) -> Any:
        settle = self.load.settle
        return client.attach_receiver(
            self.load.address,
            name=name,
            settled=settle == SETTLED,
            second=settle == SECOND,
            session_id=session_id(index) if self.load.in_sessions else None,
        )

    @property
    def progress(self) -> int:
        return self._settled

    @property
    def is_done(self) -> bool:
        return self._settled >= self.load.count

    def push(self, index: int) -> None:
        """Keep the credit between half and all of what it may be, as long as there is more to take."""
        pool = index % len(self._grantable)
        left = self._grantable[pool]
        if not left:
            return
        credit = lib.pn_link_credit(self.links[index])
        if credit > self.load.credit // 2:
            return
        count = min(self.load.credit - credit, left)
        self._grantable[pool] -= count
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
