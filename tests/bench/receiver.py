"""The receiving role: takes messages with credit to spare, completes and checks every one.

What is wrong with a message is decided in `payload`. The role never takes more than its count, so
what other loads put into the queue behind it stays there.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from tests.bench.payload import DeliveryChecks, Verdict, shares
from tests.bench.roles import (
    SECOND,
    SETTLED,
    Load,
    Mark,
    Role,
    Take,
    percentiles_us,
    session_id,
)

if TYPE_CHECKING:
    from tests.support.proton.connection import ProtonConnection

RECEIVE_BUFFER_BYTES = 1 << 21


class Receiver(Role):
    """Receives and completes `count` messages over all links, and checks every one."""

    kind = "receive"

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        links, of_streams = load.link_count, shares(load.count, load.streams)
        self.goal = load.count
        # Links draw what they may still take from one pool, or each from its own.
        self.grantable = [load.count]
        self._checks = [self._new_checks(of_streams, links)]
        if load.take is Take.OWN:
            self.grantable = of_streams
        elif load.take is Take.NEXT:
            self.grantable = [load.count // load.streams] * links
        elif load.take is Take.COPY:
            self.goal = load.count * links
            self.grantable = [load.count] * links
            self._checks = [self._new_checks(of_streams, 1) for _ in range(links)]
        self._buffer = ffi.new("char[]", RECEIVE_BUFFER_BYTES)
        self._view = ffi.buffer(self._buffer)
        self.settled = [0] * links
        """By link, since it was attached."""
        self._settled = 0

    def _new_checks(self, expected: list[int], links: int) -> DeliveryChecks:
        load = self.load
        return DeliveryChecks(load.run, load.body_bytes, expected, links, load.first_sequence)

    def attach_link(self, client: ProtonConnection, name: str, index: int) -> Any:
        load = self.load
        is_named = load.mark is Mark.SESSION and load.take is Take.OWN
        return client.attach_receiver(
            load.link_address(index),
            name=name,
            settled=load.settle == SETTLED,
            second=load.settle == SECOND,
            session_id=session_id(index) if is_named else None,
            next_session=load.take is Take.NEXT,
        )

    @property
    def progress(self) -> int:
        return self._settled

    @property
    def is_done(self) -> bool:
        return self._settled >= self.goal

    def push(self, index: int) -> None:
        """Keep the credit between half and all of what it may be, as long as there is more to take."""
        pool = index % len(self.grantable)
        left = self.grantable[pool]
        if not left:
            return
        credit = lib.pn_link_credit(self.links[index])
        if credit > self.load.credit // 2:
            return
        count = min(self.load.credit - credit, left)
        self.grantable[pool] -= count
        lib.pn_link_flow(self.links[index], count)

    def work(self, client: ProtonConnection, now_ns: int) -> None:
        buffer, view, places = self._buffer, self._view, self.places
        collector, waits = client.collector, self.load.settle == SECOND
        peek, pop, delivery_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
        is_readable, is_partial = lib.pn_delivery_readable, lib.pn_delivery_partial
        size_of, receive, link_of = lib.pn_delivery_pending, lib.pn_link_recv, lib.pn_delivery_link
        advance, update, settle = (
            lib.pn_link_advance,
            lib.pn_delivery_update,
            lib.pn_delivery_settle,
        )
        is_settled, accepted = lib.pn_delivery_settled, lib.PN_ACCEPTED
        came: dict[int, list[bytes]] = {}
        settled: list[int] = []
        while event := peek(collector):
            if delivery := delivery_of(event):
                link = link_of(delivery)
                index = places[link]
                if is_readable(delivery):
                    if not is_partial(delivery):
                        size = size_of(delivery)
                        receive(link, buffer, size)
                        payloads = came.get(index)
                        if payloads is None:
                            payloads = came[index] = []
                        payloads.append(view[0:size])
                        advance(link)
                        update(delivery, accepted)
                        if not waits:
                            settle(delivery)
                            settled.append(index)
                elif waits and is_settled(delivery):
                    settle(delivery)
                    settled.append(index)
            else:
                client.check(event)
            pop(collector)
        self.end_ns = now_ns
        shared = len(self._checks) == 1
        for index, payloads in came.items():
            checks = self._checks[0 if shared else index]
            checks.add(payloads, index if shared else 0, now_ns)
        self._settled += len(settled)
        for index in settled:
            self.settled[index] += 1
        if self.load.take is Take.NEXT:
            for index in set(settled):
                self._peek_next(client, index)

    def _peek_next(self, client: ProtonConnection, index: int) -> None:
        """Leave a session that is done, and ask for the next one, if there will be one."""
        load = self.load
        per_session = load.count // load.streams
        if self.settled[index] % per_session:
            return
        lib.pn_link_close(self.links[index])
        if self.settled[index] >= load.count // load.link_count:
            return
        name = f"{self.kind}-{load.run}-{index}-{self.settled[index]}"
        link = self.attach_link(client, name, index)
        self.links[index] = link
        self.places[link] = index
        self.grantable[index] = per_session

    @property
    def attaches_at_once(self) -> bool:
        """An accept of the next session is answered when there is one."""
        return self.load.take is not Take.NEXT

    def result(self) -> dict[str, Any]:
        verdicts = [checks.verdict() for checks in self._checks]
        verdict = Verdict.sum_of(verdicts)
        latencies_ns = array("q")
        for checks in self._checks:
            latencies_ns.extend(checks.latencies_ns)
        return super().result() | {
            "received": sum(checks.received for checks in self._checks),
            "verdict": verdict._asdict(),
            "latency_us": percentiles_us(latencies_ns),
            "is_clean": not self.error and verdict.is_clean,
        }
