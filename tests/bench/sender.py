"""The sending role: pipelined, paced or one at a time, each message with its own stamp.

It knows outcomes, not what becomes of the messages. A message is done when its outcome is known, or,
sent settled, when the broker has answered the close behind it.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from tests.bench.payload import ID_BYTES, STAMP, STAMP_OFFSET, encode, message_id, shares
from tests.bench.roles import SECOND_NS, Load, Mark, Role, percentiles_us, session_id

if TYPE_CHECKING:
    from tests.support.proton.connection import ProtonConnection

CHUNK_MESSAGES = 128
"""Messages handed to the engine before the socket is served again."""
OUTGOING_LIMIT_BYTES = 1 << 17
"""Beyond this the engine would search its backlog on every write."""
TAG_BYTES = 12


class Template:
    """An encoded message in the engine's reach, of which only the stamp and the id change."""

    def __init__(self, load: Load, stream: int) -> None:
        message, body_at, self.id_at = encode(
            load.run,
            load.body_bytes,
            session_id=session_id(stream) if load.mark is Mark.SESSION else "",
            stream=stream if load.mark is Mark.PROPERTY else None,
            scheduled_ms=load.scheduled_ms,
            with_id=load.with_ids,
        )
        self.stream = stream
        self.size = len(message)
        self.start = ffi.new("char[]", bytes(message))
        self.view = ffi.buffer(self.start, self.size)
        self.stamp_at = body_at + STAMP_OFFSET
        # Stream and sequence inside the message serve as the delivery tag: written once, used twice.
        self.tag = ffi.new("pn_delivery_tag_t *")
        self.tag.start = self.start + self.stamp_at
        self.tag.size = TAG_BYTES


class Sender(Role):
    """Sends its streams on every link, in turn; a message is done when its outcome is known."""

    kind = "send"

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        links, of_streams = load.link_count, shares(load.count, load.streams)
        self._templates = [
            [Template(load, stream) for stream in range(link, load.streams, links)]
            for link in range(links)
        ]
        self._end = [sum(of_streams[link::links]) for link in range(links)]
        self._position = [0] * links
        self._sent_ns: list[dict[Any, int]] = [{} for _ in range(links)]
        self._latencies_ns = array("q")
        self._settled = 0

    def attach_link(self, client: ProtonConnection, name: str, index: int) -> Any:
        return client.attach_sender(
            self.load.link_address(index), name=name, settled=self.load.presettled
        )

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
        position = start = self._position[index]
        allowed = min(
            lib.pn_link_credit(link),
            load.window - len(awaited),
            self._end[index] - position,
            CHUNK_MESSAGES,
        )
        outgoing_bytes = lib.pn_session_outgoing_bytes(self.client_of(index).amqp_session)
        if allowed <= 0 or outgoing_bytes > OUTGOING_LIMIT_BYTES:
            return
        now_ns = stamp_ns = time.monotonic_ns()
        templates, first_sequence = self._templates[index], load.first_sequence
        streams, links, pack = len(templates), len(self.links), STAMP.pack_into
        new_delivery, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        end = position + allowed
        while position < end:
            if load.rate_per_s:
                place = position * links + index
                stamp_ns = self.begin_ns + int(place * SECOND_NS / load.rate_per_s)
                if stamp_ns > now_ns:
                    self._due_ns = min(self._due_ns or stamp_ns, stamp_ns)
                    break
            template = templates[position % streams]
            sequence = first_sequence + position // streams
            pack(template.view, template.stamp_at, template.stream, sequence, stamp_ns)
            if load.with_ids:
                text = message_id(load.run, template.stream, sequence)
                template.view[template.id_at : template.id_at + ID_BYTES] = text
            delivery = new_delivery(link, template.tag[0])
            send(link, template.start, template.size)
            advance(link)
            awaited[delivery] = stamp_ns
            position += 1
        else:
            if allowed == CHUNK_MESSAGES:
                self._due_ns = now_ns  # there is more to send: look at the sockets, do not wait
        self._position[index] = position
        if load.presettled:
            for delivery in awaited:
                lib.pn_delivery_settle(delivery)
            awaited.clear()
            self._settled += position - start

    def work(self, client: ProtonConnection, now_ns: int) -> None:
        collector = client.collector
        peek, pop, delivery_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
        state_of, settle = lib.pn_delivery_remote_state, lib.pn_delivery_settle
        accepted, link_of = lib.PN_ACCEPTED, lib.pn_delivery_link
        places, all_awaited, add_latency = self.places, self._sent_ns, self._latencies_ns.append
        settled = 0
        while event := peek(collector):
            # Every other kind of event has no delivery.
            if delivery := delivery_of(event):
                state = state_of(delivery)
                awaited = all_awaited[places[link_of(delivery)]]
                sent_ns = awaited.pop(delivery, None) if state else None
                if sent_ns is not None:
                    if state == accepted:
                        add_latency(now_ns - sent_ns)
                    settle(delivery)
                    settled += 1
            else:
                client.check(event)
            pop(collector)
        self._settled += settled
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
