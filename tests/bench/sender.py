"""The sending role: pipelined, paced or one at a time, each message with its own stamp.

It knows outcomes, not what becomes of the messages. A message is done when its outcome is known, or,
sent settled, when the broker has answered the close behind it.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from tests.bench.payload import SEQUENCE_OFFSET, STAMP, STAMP_OFFSET, encode, shares
from tests.bench.roles import SECOND_NS, Load, Role, percentiles_us, session_id

if TYPE_CHECKING:
    from tests.support.proton_client import ProtonClient

CHUNK_MESSAGES = 128
"""Messages handed to the engine before the socket is served again."""
OUTGOING_LIMIT_BYTES = 1 << 17
"""Beyond this the engine would search its backlog on every write."""


class Template:
    """An encoded message in the engine's reach, of which only the stamp changes."""

    def __init__(self, load: Load, index: int) -> None:
        session = session_id(index) if load.in_sessions else ""
        message, body_at = encode(load.run, load.body_bytes, session)
        self.size = len(message)
        self.start = ffi.new("char[]", bytes(message))
        self.view = ffi.buffer(self.start, self.size)
        self.stamp_at = body_at + STAMP_OFFSET
        # The sequence inside the message serves as the delivery tag: written once, used twice.
        self.tag = ffi.new("pn_delivery_tag_t *")
        self.tag.start = self.start + body_at + SEQUENCE_OFFSET
        self.tag.size = 8


class Sender(Role):
    """Sends its share on every connection; a message is done when its outcome is known."""

    kind = "send"

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._templates = [Template(load, index) for index in range(load.connections)]
        self._end = [load.first_sequence + n for n in shares(load.count, load.connections)]
        self._sequence = [load.first_sequence] * load.connections
        self._sent_ns: list[dict[Any, int]] = [{} for _ in range(load.connections)]
        self._latencies_ns = array("q")
        self._settled = 0

    def attach_link(self, client: ProtonClient, name: str, index: int) -> Any:
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
        template = self._templates[index]
        pack, view, stamp_at = STAMP.pack_into, template.view, template.stamp_at
        message, message_bytes, tag = template.start, template.size, template.tag
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
        collector = client.collector
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
