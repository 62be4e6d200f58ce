"""The Proton engine: bytes of one connection in, calls on a handler, bytes out.

Owns every Proton object of the connection; not what links are for or what messages mean.
Nothing a client sends raises, and a pointer that Proton has freed is never touched again: links
know when they are gone, and deliveries are known by the link they belong to.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from protocol.amqp.arrivals import BUFFER_BYTES, Arrivals, copy_buffer
from protocol.amqp.attach import (
    Attach,
    FilterValue,
    decoded_map,
    read_attach,
    write_attach,
    write_refusal,
)
from protocol.amqp.endpoints import (
    PLAIN,
    Delivery,
    EngineHandler,
    EngineLink,
    EngineSession,
    TransferKind,
)
from protocol.amqp.frames import FrameScan, last_attach, with_link_flow
from protocol.amqp.outcomes import (
    ACCEPTED,
    ACCEPTED_CODE,
    RELEASED,
    Accepted,
    Declared,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Transactional,
    WireError,
    rejected,
    set_condition,
    text,
    write_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "ACCEPTED",
    "PLAIN",
    "RELEASED",
    "Accepted",
    "Attach",
    "Declared",
    "Delivery",
    "Engine",
    "EngineHandler",
    "EngineLink",
    "EngineSession",
    "FilterValue",
    "Modified",
    "Outcome",
    "Received",
    "Rejected",
    "Released",
    "Transactional",
    "TransferKind",
    "WireError",
]

_TAG_MAX_BYTES = 32  # AMQP 1.0 §2.8.7

_peek_event = lib.pn_collector_peek
_pop_event = lib.pn_collector_pop
_event_type = lib.pn_event_type
_link_send = lib.pn_link_send
_link_advance = lib.pn_link_advance
_new_delivery = lib.pn_delivery
_update = lib.pn_delivery_update
_settle = lib.pn_delivery_settle


class _TagBuffer(threading.local):
    """A delivery tag as Proton takes it, shared by all engines of a thread."""

    def __init__(self) -> None:
        self._memory = ffi.new("char[]", _TAG_MAX_BYTES)
        self.view = ffi.buffer(self._memory)
        self.tag = ffi.new("pn_bytes_t *", {"size": 0, "start": self._memory})


_tag_buffer = _TagBuffer()


class Engine:
    """One connection's Proton engine, without its IO and SASL."""

    def __init__(
        self,
        handler: EngineHandler,
        *,
        container_id: str,
        max_frame_size_bytes: int = 65_536,
        channel_max: int = 8_191,
        idle_timeout_ms: int = 240_000,
        max_message_size_bytes: int = 100 * 1024 * 1024,
    ) -> None:
        self.finished = False
        """Nothing more will come of this connection: write the output, then close the socket."""
        self._handler = handler
        self._container_id = container_id
        self._scan = FrameScan(max_frame_size_bytes)
        self._links: dict[Any, EngineLink] = {}
        self._sessions: dict[Any, EngineSession] = {}
        self._output: list[bytes] = []
        self._drains: list[EngineLink] = []
        """Links whose drain is to be answered though they have no credit."""
        self._ending = False
        """Either side has closed the connection, or it is broken."""
        self._remote_closed = False
        self._broken = False
        self._dispatching = False
        self._lost = False
        self._transport = lib.pn_transport()
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, max_frame_size_bytes)
        lib.pn_transport_set_channel_max(self._transport, channel_max)
        # Proton announces half of what it enforces.
        lib.pn_transport_set_idle_timeout(self._transport, 2 * idle_timeout_ms)
        self._connection = lib.pn_connection()
        self._collector = lib.pn_collector()
        lib.pn_connection_set_container(self._connection, container_id.encode())
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)
        self._arrivals = Arrivals(self._collector, handler, max_message_size_bytes)

    # --- bytes ---------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes that follow the SASL layer, from the AMQP header on."""
        for piece, batch in self._scan.split(data):
            if self._lost or self._broken:
                return
            self._push(piece)
            self._dispatch(batch=batch)

    def take_output(self) -> bytes:
        """All there is to write."""
        if self._lost:
            return b""
        self._pump()
        while not self._dispatching and _peek_event(self._collector):
            self._dispatch(local=True)
            if self._lost:
                return b""
            self._pump()
        if self._drains:
            self._answer_drains()
        output = self._output
        if not output:
            return b""
        self._output = []
        return output[0] if len(output) == 1 else b"".join(output)

    def tick(self, now_ms: int) -> int:
        """Act on silence in either direction; returns when to be called again, 0 for never."""
        if self._lost:
            return 0
        deadline: int = lib.pn_transport_tick(self._transport, now_ms)
        self._dispatch(local=True)
        return deadline

    def connection_lost(self) -> None:
        """The socket is gone: free everything. Nothing is called any more."""
        if self._lost:
            return
        self._lost = self.finished = True
        for link in self._links.values():
            _forget(link)
        self._links.clear()
        self._sessions.clear()
        self._drains.clear()
        if not self._dispatching:
            self._free()

    def _free(self) -> None:
        transport, connection, collector = self._transport, self._connection, self._collector
        self._transport = self._connection = self._collector = None
        lib.pn_transport_close_tail(transport)
        lib.pn_transport_close_head(transport)
        while _peek_event(collector):
            _pop_event(collector)
        lib.pn_transport_unbind(transport)
        lib.pn_collector_release(collector)
        lib.pn_connection_release(connection)
        lib.pn_decref(transport)
        lib.pn_decref(connection)
        lib.pn_collector_free(collector)

    def _push(self, piece: bytes) -> None:
        transport = self._transport
        size = len(piece)
        position = lib.pn_transport_push(transport, piece, size)
        if 0 < position < size:
            # Proton takes what its buffer holds, a few kilobytes at a time.
            start = ffi.from_buffer(piece)
            taken = position
            while taken > 0 and position < size:
                taken = lib.pn_transport_push(transport, start + position, size - position)
                position += taken

    def _pump(self) -> None:
        """Move what Proton has to say to our output."""
        transport = self._transport
        buffer = copy_buffer.memory
        size = lib.pn_transport_peek(transport, buffer, BUFFER_BYTES)
        while size > 0:
            self._output.append(copy_buffer.view[0:size])
            lib.pn_transport_pop(transport, size)
            size = lib.pn_transport_peek(transport, buffer, BUFFER_BYTES)
        if size < 0 or self._broken:
            self.finished = True

    # --- links ---------------------------------------------------------------------------------

    def attach(
        self,
        link: EngineLink,
        *,
        max_message_size_bytes: int = 0,
        properties: Mapping[str, bytes] | None = None,
        filter: bytes | None = None,
        credit: int = 0,
        dynamic_address: str | None = None,
    ) -> None:
        """Grant a link. `properties` are encoded values by symbol, `filter` is an encoded map of
        the filters in force; `credit` lets the client send."""
        if link.closed or link.answered:
            return
        pointer = link.pointer
        link.answered = link.whole = True
        write_attach(
            pointer,
            max_message_size_bytes=max_message_size_bytes,
            properties=properties,
            filter_map=filter,
            dynamic_address=dynamic_address,
        )
        if link.is_receiver:
            lib.pn_link_open(pointer)
            if credit > 0:
                lib.pn_link_flow(pointer, credit)
        else:
            self._open_to_send(link)

    def _open_to_send(self, link: EngineLink) -> None:
        """Open a link and learn its handle, which Proton does not tell: the attach is written
        alone, so it is the last one in what comes out."""
        self._pump()
        written = len(self._output)
        lib.pn_link_open(link.pointer)
        self._pump()
        place = last_attach(b"".join(self._output[written:]))
        if place is not None:
            link.channel, link.handle = place

    def refuse(self, link: EngineLink, error: WireError) -> None:
        """Refuse a link: an attach with a null end, then a detach with the error."""
        if link.closed or link.answered:
            return
        link.answered = link.closed = True
        write_refusal(link.pointer, error)
        lib.pn_link_open(link.pointer)
        lib.pn_link_close(link.pointer)

    def detach(self, link: EngineLink, error: WireError | None, closed: bool = True) -> None:
        """End a link from our side. The handler hears no more of it."""
        if link.closed:
            return
        if not link.answered:
            write_refusal(link.pointer, error)
            lib.pn_link_open(link.pointer)
        elif error is not None:
            set_condition(lib.pn_link_condition(link.pointer), error)
        link.answered = link.closed = True
        link.whole = False
        (lib.pn_link_close if closed else lib.pn_link_detach)(link.pointer)

    def close(self, error: WireError | None) -> None:
        """Close the connection from our side; `finished` once the client has answered."""
        if self._lost or self._ending:
            return
        self._end()
        if error is not None:
            set_condition(lib.pn_connection_condition(self._connection), error)
        lib.pn_connection_open(self._connection)
        lib.pn_connection_close(self._connection)

    def grant(self, link: EngineLink, credit: int) -> None:
        """Let a client send so many more."""
        if not link.closed and link.answered:
            lib.pn_link_flow(link.pointer, credit)

    def credit(self, link: EngineLink) -> int:
        """How many more may be sent, ours or the client's; below zero where it overran."""
        return 0 if link.closed else int(lib.pn_link_credit(link.pointer))

    def queued(self, link: EngineLink) -> int:
        """Deliveries that Proton holds back because the session's window is shut. Send no more
        while there are any; `on_flow` is called when they are gone."""
        if link.closed:
            return 0
        count: int = lib.pn_link_queued(link.pointer)
        if count:
            link.stalled = True
        return count

    def draining(self, link: EngineLink) -> bool:
        """Whether the client asked to use up its credit or get it back."""
        return not link.closed and bool(lib.pn_link_get_drain(link.pointer))

    def drained(self, link: EngineLink) -> None:
        """Give back the credit that is left, to a client that drains."""
        if link.closed or not lib.pn_link_get_drain(link.pointer):
            return
        given_back = lib.pn_link_drained(link.pointer)
        if given_back > 0:
            link.drained += given_back
        elif link not in self._drains:
            self._drains.append(link)

    def _answer_drains(self) -> None:
        """Proton says nothing to a drain when there is no credit, but clients wait for it. Touching
        the session's capacity makes it write a session flow, which we complete."""
        waiting = self._drains
        self._drains = []
        for link in waiting:
            if link.closed:
                continue
            if lib.pn_link_queued(link.pointer) > 0:
                self._drains.append(link)
                continue
            session = link.session.pointer
            written = len(self._output)
            capacity = lib.pn_session_get_incoming_capacity(session)
            lib.pn_session_set_incoming_capacity(session, capacity)
            self._pump()
            output = b"".join(self._output[written:])
            delivery_count = (link.sent + link.drained) & 0xFFFFFFFF
            self._output[written:] = [
                with_link_flow(output, link.channel, link.handle, delivery_count)
            ]

    # --- deliveries ----------------------------------------------------------------------------

    def send(
        self,
        link: EngineLink,
        tags: Sequence[bytes],
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
        settled: bool,
    ) -> list[Delivery]:
        """Send messages, each of two parts. Returns the deliveries to be settled: none, where they
        are settled already."""
        if link.closed:
            return []
        pointer = link.pointer
        tag_view, tag = _tag_buffer.view, _tag_buffer.tag
        tag_value = tag[0]
        tag_size = 0
        deliveries = []
        for tag_bytes, head, body in zip(tags, heads, bodies, strict=True):
            if len(tag_bytes) != tag_size:
                tag_size = tag.size = len(tag_bytes)
            tag_view[0:tag_size] = tag_bytes
            delivery = _new_delivery(pointer, tag_value)
            _link_send(pointer, head, len(head))
            _link_send(pointer, body, len(body))
            _link_advance(pointer)
            deliveries.append(delivery)
        link.sent += len(deliveries)
        if settled:
            for delivery in deliveries:
                _settle(delivery)
            return []
        link.unsettled.update(zip(deliveries, deliveries, strict=True))
        return deliveries

    def settle(
        self, link: EngineLink, deliveries: Sequence[Delivery], outcome: Outcome | None
    ) -> None:
        """Settle deliveries in either direction, with an outcome or without. In the order they
        came, they leave as ranges. What is settled already stays as it is."""
        if link.closed:
            return
        pop = link.unsettled.pop
        for delivery in deliveries:
            held = pop(delivery, None)
            if held is not delivery:
                if held is not None:
                    link.unsettled[held] = held
                continue
            if outcome is ACCEPTED:
                _update(delivery, ACCEPTED_CODE)
            elif outcome is not None:
                _update(delivery, write_outcome(delivery, outcome))
            _settle(delivery)

    def settle_refused(
        self, link: EngineLink, deliveries: Sequence[Delivery], error: WireError
    ) -> None:
        """Settle deliveries as rejected with an error, which to every client means failure."""
        self.settle(link, deliveries, rejected(error))

    # --- events --------------------------------------------------------------------------------

    def _dispatch(self, *, batch: bool = False, local: bool = False) -> None:
        """Tell the handler what Proton found. `local` events come of our own output."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            self._drain_events(batch, local)
        finally:
            self._dispatching = False
            if self._lost:
                self._free()

    def _drain_events(self, batch: bool, local: bool) -> None:
        collector = self._collector
        arrivals = self._arrivals
        while event := _peek_event(collector):
            event_type = _event_type(event)
            if event_type == lib.PN_DELIVERY:
                link = self._links.get(lib.pn_event_link(event))
                if link is None or self._broken:
                    _pop_event(collector)
                elif link.is_receiver:
                    if not arrivals.take_transfers(link, batch):
                        self._violate("amqp:link:transfer-limit-exceeded", _UNGRANTED)
                elif not arrivals.take_outcomes(link):
                    self._violate("amqp:not-allowed", _WRONG_WAY)
            elif event_type == lib.PN_LINK_FLOW:
                pointer = lib.pn_event_link(event)
                _pop_event(collector)
                self._flowed(pointer, local)
            else:
                context_of, act = _EVENTS.get(event_type, _IGNORED)
                context = context_of(event)
                _pop_event(collector)
                act(self, context)

    def _flowed(self, pointer: Any, local: bool) -> None:
        link = self._links.get(pointer)
        if link is None or link.is_receiver or link.closed or not link.answered:
            return
        if local:
            # Proton says so whenever it has written a transfer; only a waiting sender cares.
            if not link.stalled or lib.pn_link_queued(pointer) > 0:
                return
            link.stalled = False
        self._handler.on_flow(link)

    def _opened(self, connection: Any) -> None:
        lib.pn_connection_open(connection)
        self._handler.on_open(
            text(lib.pn_connection_remote_hostname(connection)) or "",
            text(lib.pn_connection_remote_container(connection)) or "",
            decoded_map(lib.pn_connection_remote_properties(connection)),
        )

    def _session_begun(self, pointer: Any) -> None:
        self._sessions[pointer] = EngineSession(pointer)
        lib.pn_session_open(pointer)

    def _link_attached(self, pointer: Any) -> None:
        session = self._sessions.get(lib.pn_link_session(pointer))
        if session is None:
            return
        attach = read_attach(pointer)
        link = EngineLink(pointer, session, attach)
        self._links[pointer] = link
        session.links[link] = None
        if attach.target_is_coordinator:
            self._arrivals.transactional = True
        if self._ending:
            link.closed = True
        else:
            self._handler.on_attach(link, attach)

    def _link_closed(self, pointer: Any) -> None:
        self._link_gone(pointer, closed=True)

    def _link_detached(self, pointer: Any) -> None:
        self._link_gone(pointer, closed=False)

    def _link_gone(self, pointer: Any, *, closed: bool) -> None:
        link = self._links.pop(pointer, None)
        if link is None:
            return
        del link.session.links[link]
        ended_by_us = link.closed
        if not link.answered:
            write_refusal(pointer, None)
            lib.pn_link_open(pointer)
        _forget(link)
        if not ended_by_us:
            self._handler.on_detach(link, closed)
            (lib.pn_link_close if closed else lib.pn_link_detach)(pointer)
        lib.pn_link_free(pointer)

    def _session_ended(self, pointer: Any) -> None:
        session = self._sessions.pop(pointer, None)
        if session is None:
            return
        links = [link for link in session.links if not link.closed]
        for link in session.links:
            del self._links[link.pointer]
            _forget(link)
        session.links.clear()
        if links:
            self._handler.on_session_end(links)
        lib.pn_session_close(pointer)
        lib.pn_session_free(pointer)

    def _closed(self, connection: Any) -> None:
        ended_by_us = self._ending
        self._remote_closed = True
        self._end()
        if not ended_by_us:
            self._handler.on_close()
        lib.pn_connection_close(connection)

    def _transport_failed(self, transport: Any) -> None:
        condition = lib.pn_transport_condition(transport)
        name = text(lib.pn_condition_get_name(condition)) or "amqp:internal-error"
        description = text(lib.pn_condition_get_description(condition)) or ""
        # Proton puts this condition into its own close.
        set_condition(condition, self._error(name, description))
        self._break(name, description)

    def _tail_closed(self, _: Any) -> None:
        """Proton takes no more input. It says why, except for a performative it does not know."""
        if not self._remote_closed:
            self._violate("amqp:decode-error", "A frame cannot be understood.")

    def _violate(self, condition: str, description: str) -> None:
        """Close the connection, since the client does what it must not."""
        if self._broken:
            return
        error = self._error(condition, description)
        set_condition(lib.pn_connection_condition(self._connection), error)
        lib.pn_connection_open(self._connection)
        lib.pn_connection_close(self._connection)
        self._break(condition, description)

    def _error(self, condition: str, description: str) -> WireError:
        return WireError(condition, description, {"container-id": self._container_id})

    def _break(self, condition: str, description: str) -> None:
        if self._broken:
            return
        self._broken = True
        self._end()
        self._handler.on_transport_error(condition, description)

    def _end(self) -> None:
        self._ending = True
        for link in self._links.values():
            link.closed = True
            link.whole = False


def _forget(link: EngineLink) -> None:
    """The link's Proton object is going: nothing of it may be used any more."""
    link.closed = True
    link.whole = False
    link.partial = None
    link.unsettled.clear()


_UNGRANTED = "A transfer came on a link that has not been granted any credit."
_WRONG_WAY = "A transfer came on a link on which the client receives."

_EVENTS: dict[int, tuple[Callable[[Any], Any], Callable[[Engine, Any], None]]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: (lib.pn_event_connection, Engine._opened),
    lib.PN_CONNECTION_REMOTE_CLOSE: (lib.pn_event_connection, Engine._closed),
    lib.PN_SESSION_REMOTE_OPEN: (lib.pn_event_session, Engine._session_begun),
    lib.PN_SESSION_REMOTE_CLOSE: (lib.pn_event_session, Engine._session_ended),
    lib.PN_LINK_REMOTE_OPEN: (lib.pn_event_link, Engine._link_attached),
    lib.PN_LINK_REMOTE_CLOSE: (lib.pn_event_link, Engine._link_closed),
    lib.PN_LINK_REMOTE_DETACH: (lib.pn_event_link, Engine._link_detached),
    lib.PN_TRANSPORT_ERROR: (lib.pn_event_transport, Engine._transport_failed),
    lib.PN_TRANSPORT_TAIL_CLOSED: (lib.pn_event_transport, Engine._tail_closed),
}
_IGNORED = (lambda event: None, lambda engine, context: None)
