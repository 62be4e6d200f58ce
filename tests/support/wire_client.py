"""A client on Proton's own engine, joined to ours in memory.

For dialogues that a real client should lead; nothing here opens a socket or waits.
What it is sent and told is kept in plain lists, for a test to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

if TYPE_CHECKING:
    from protocol.amqp.engine.engine import Engine


class ProtonClient:
    """A client on Proton's own engine, whose bytes are carried by `pump`."""

    def __init__(self, *, container_id: str = "client", max_frame_size_bytes: int = 65_536) -> None:
        self.transport = lib.pn_transport()
        lib.pn_transport_set_max_frame(self.transport, max_frame_size_bytes)
        self.connection = lib.pn_connection()
        self.collector = lib.pn_collector()
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_connection_set_container(self.connection, container_id.encode())
        lib.pn_connection_set_hostname(self.connection, b"localhost")
        lib.pn_transport_bind(self.transport, self.connection)
        lib.pn_connection_open(self.connection)
        self.events: list[str] = []
        self.received: list[tuple[Any, bytes]] = []
        self.outcomes: list[tuple[Any, int, bool]] = []
        self._session: Any = None
        self._tags = 0

    @property
    def session(self) -> Any:
        """The session links are made in, begun when it is needed."""
        if self._session is None:
            self._session = lib.pn_session(self.connection)
            lib.pn_session_open(self._session)
        return self._session

    def sender(self, address: str, name: str = "to") -> Any:
        link = lib.pn_sender(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_link_open(link)
        return link

    def receiver(self, address: str, name: str = "from", *, credit: int = 0) -> Any:
        link = lib.pn_receiver(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), address.encode())
        lib.pn_link_set_rcv_settle_mode(link, lib.PN_RCV_SECOND)
        lib.pn_link_open(link)
        if credit:
            lib.pn_link_flow(link, credit)
        return link

    def send(self, link: Any, payload: bytes, *, settled: bool = False) -> Any:
        self._tags += 1
        tag = b"%d" % self._tags
        memory = ffi.from_buffer(tag)
        delivery = lib.pn_delivery(link, ffi.new("pn_bytes_t *", (len(tag), memory))[0])
        lib.pn_link_send(link, payload, len(payload))
        lib.pn_link_advance(link)
        if settled:
            lib.pn_delivery_settle(delivery)
        return delivery

    def feed(self, data: bytes) -> None:
        position = 0
        memory = ffi.from_buffer(data)
        while position < len(data):
            taken = lib.pn_transport_push(self.transport, memory + position, len(data) - position)
            if taken <= 0:
                break
            position += taken
        self._drain_events()

    def take_output(self) -> bytes:
        parts = []
        buffer = ffi.new("char[]", 65_536)
        while (size := lib.pn_transport_peek(self.transport, buffer, 65_536)) > 0:
            parts.append(bytes(ffi.buffer(buffer, size)))
            lib.pn_transport_pop(self.transport, size)
        self._drain_events()
        return b"".join(parts)

    def _drain_events(self) -> None:
        while event := lib.pn_collector_peek(self.collector):
            kind = lib.pn_event_type(event)
            self.events.append(ffi.string(lib.pn_event_type_name(kind)).decode())
            if kind == lib.PN_DELIVERY:
                self._delivery(lib.pn_event_delivery(event))
            lib.pn_collector_pop(self.collector)

    def _delivery(self, delivery: Any) -> None:
        link = lib.pn_delivery_link(delivery)
        if lib.pn_link_is_sender(link):
            state = lib.pn_delivery_remote_state(delivery)
            settled = bool(lib.pn_delivery_settled(delivery))
            self.outcomes.append((delivery, state, settled))
            if settled:
                lib.pn_delivery_settle(delivery)
        elif lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
            size = lib.pn_delivery_pending(delivery)
            buffer = ffi.new("char[]", max(size, 1))
            lib.pn_link_recv(link, buffer, size)
            lib.pn_link_advance(link)
            self.received.append((delivery, bytes(ffi.buffer(buffer, size))))
        elif lib.pn_delivery_settled(delivery):
            self.outcomes.append((delivery, lib.pn_delivery_remote_state(delivery), True))
            lib.pn_delivery_settle(delivery)

    def close(self) -> None:
        lib.pn_connection_close(self.connection)

    def free(self) -> None:
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.collector)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.transport)
        lib.pn_decref(self.connection)
        lib.pn_collector_free(self.collector)


def pump(client: ProtonClient, engine: Engine) -> None:
    """Carry bytes both ways until neither has anything to say."""
    while True:
        up = client.take_output()
        if up:
            engine.feed(up)
        down = engine.take_output()
        if down:
            client.feed(down)
        if not up and not down:
            return
