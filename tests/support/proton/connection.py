"""One socket and one Proton engine on cffi calls: the lower layer of the Proton client.

It moves bytes and attaches links. Its caller waits for the socket, reads `collector` and handles
the events. It does not block after a link is attached, and has no SASL layer.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any, Protocol

from cproton_ffi import ffi, lib

MAX_FRAME_BYTES = 65_536
READ_BYTES = 1 << 18
PEEK_BYTES = 1 << 16

_peek_buffer = ffi.new("char[]", PEEK_BYTES)
_peek_view = ffi.buffer(_peek_buffer)
_read_view = bytearray(READ_BYTES)
_read_buffer = ffi.from_buffer(_read_view)


class PeerFailed(Exception):
    """The broker refused something, or the connection ended unexpectedly."""


class ByteSocket(Protocol):
    """The methods of a socket that the client uses. A simulation has its own."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: bytearray, /) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class ProtonConnection:
    """Call `receive` when the socket is readable, `flush` after anything was done to a link."""

    def __init__(
        self,
        host: str,
        port: int,
        container_id: str,
        connect_timeout_s: float = 10.0,
        connected: ByteSocket | None = None,
    ) -> None:
        """Connect to the port, or use a socket that is `connected` and does not block."""
        self.socket = connected or _connected(host, port, connect_timeout_s)
        self.collector = lib.pn_collector()
        self.is_closed = False
        self._unsent = b""
        self._transport = lib.pn_transport()
        lib.pn_transport_set_max_frame(self._transport, MAX_FRAME_BYTES)
        self._connection = lib.pn_connection()
        lib.pn_connection_set_container(self._connection, container_id.encode())
        lib.pn_connection_set_hostname(self._connection, host.encode())
        lib.pn_connection_collect(self._connection, self.collector)
        lib.pn_transport_bind(self._transport, self._connection)
        lib.pn_connection_open(self._connection)
        self.amqp_session = lib.pn_session(self._connection)
        lib.pn_session_open(self.amqp_session)

    # ---- links --------------------------------------------------------------------------------

    def attach_sender(self, address: str, *, name: str, settled: bool = False) -> Any:
        """Attach a sending link. With `settled`, it sends without outcomes."""
        link = lib.pn_sender(self.amqp_session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), name.encode())
        mode = lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED
        lib.pn_link_set_snd_settle_mode(link, mode)
        lib.pn_link_open(link)
        return link

    def attach_receiver(
        self,
        address: str,
        *,
        name: str,
        settled: bool = False,
        second: bool = False,
        session_id: str | None = None,
        next_session: bool = False,
    ) -> Any:
        """Attach a link that receives.

        `settled` is receive-and-delete; `second` is peek-lock whose settlements the broker answers;
        `session_id` accepts that session, `next_session` any that is free and has messages.
        """
        link = lib.pn_receiver(self.amqp_session, name.encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, address.encode())
        if session_id is not None or next_session:
            encoded = _session_filter(session_id)
            lib.pn_data_decode(lib.pn_terminus_filter(source), encoded, len(encoded))
        lib.pn_terminus_set_address(lib.pn_link_target(link), name.encode())
        mode = lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED
        lib.pn_link_set_snd_settle_mode(link, mode)
        mode = lib.PN_RCV_SECOND if second else lib.PN_RCV_FIRST
        lib.pn_link_set_rcv_settle_mode(link, mode)
        lib.pn_link_open(link)
        return link

    def wait_until_attached(self, link: Any, timeout_s: float) -> None:
        """Process only this connection until the broker has answered the attach."""
        deadline_s = time.monotonic() + timeout_s
        self.flush()
        while not lib.pn_link_state(link) & lib.PN_REMOTE_ACTIVE:
            if not self.wait(max(deadline_s - time.monotonic(), 0.0)):
                raise PeerFailed("the broker did not answer the attach")
            self.receive()
            # Only set-up and credit arrive before work starts; credit is asked of the link later.
            while event := lib.pn_collector_peek(self.collector):
                self.check(event)
                lib.pn_collector_pop(self.collector)
            if self.is_closed:
                raise PeerFailed("the connection ended before the attach was answered")
            self.flush()

    # ---- messages -----------------------------------------------------------------------------

    def send(self, link: Any, message: bytes, tag: bytes) -> Any:
        """Pass one encoded message to the engine. Returns its delivery."""
        delivery_tag = ffi.new("pn_delivery_tag_t *")
        kept = ffi.from_buffer(tag)
        delivery_tag.start, delivery_tag.size = kept, len(tag)
        delivery = lib.pn_delivery(link, delivery_tag[0])
        lib.pn_link_send(link, message, len(message))
        lib.pn_link_advance(link)
        return delivery

    def take(self, link: Any, delivery: Any) -> bytes:
        """Returns the encoded message of a delivery that is readable and complete."""
        size = lib.pn_delivery_pending(delivery)
        buffer = bytearray(size)
        lib.pn_link_recv(link, ffi.from_buffer(buffer), size)
        lib.pn_link_advance(link)
        return bytes(buffer)

    # ---- bytes --------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether the socket is full: wait until it is writable, then flush."""
        return bool(self._unsent)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the socket is readable, or writable if there is unsent output. Returns False
        if the time is over."""
        sockets = select.poll()
        sockets.register(self, select.POLLIN | select.POLLOUT * self.has_unsent)
        return bool(sockets.poll(timeout_s * 1e3))

    def receive(self) -> bool:
        """Pass the input of the socket to the engine; the events are in the collector. Returns
        whether there was any input."""
        try:
            count = self.socket.recv_into(_read_view)
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            lib.pn_transport_close_tail(self._transport)
            self.is_closed = True
            return False
        offset = 0
        while offset < count:
            taken = lib.pn_transport_push(self._transport, _read_buffer + offset, count - offset)
            if taken < 0:
                self.is_closed = True
                break
            offset += taken
        return True

    def flush(self) -> bool:
        """Write the output of the engine, as much as the socket accepts. Returns whether there was
        any output."""
        transport = self._transport
        pieces = [self._unsent] if self._unsent else []
        while True:
            count = lib.pn_transport_peek(transport, _peek_buffer, PEEK_BYTES)
            if count <= 0:
                break
            pieces.append(_peek_view[0:count])
            lib.pn_transport_pop(transport, count)
        if not pieces:
            return False
        output = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            sent = self.socket.send(output)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.is_closed = True
            return True
        self._unsent = output[sent:]
        return True

    def tick(self, now_ms: int) -> None:
        """Let the engine send its heartbeat."""
        lib.pn_transport_tick(self._transport, now_ms)

    # ---- rare events --------------------------------------------------------------------------

    def check(self, event: Any) -> None:
        """Raises if an event that the caller does not handle reports an error."""
        kind = lib.pn_event_type(event)
        if kind == lib.PN_TRANSPORT_ERROR:
            raise PeerFailed(_text("transport", lib.pn_transport_condition(self._transport)))
        if kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            link = lib.pn_event_link(event)
            if lib.pn_link_state(link) & lib.PN_LOCAL_CLOSED:
                lib.pn_link_free(link)
                return  # the answer to our own
            raise PeerFailed(_text("link closed", lib.pn_link_remote_condition(link)))
        if kind == lib.PN_SESSION_REMOTE_CLOSE:
            condition = lib.pn_session_remote_condition(lib.pn_event_session(event))
            raise PeerFailed(_text("session closed", condition))
        if kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            condition = lib.pn_connection_remote_condition(self._connection)
            raise PeerFailed(_text("connection closed", condition))

    def close(self) -> None:
        """Send close. The close of the broker then shows that it has read everything before."""
        lib.pn_connection_close(self._connection)

    def free(self) -> None:
        """Free the socket and the engine. The links and deliveries of this connection must not be
        used after that."""
        self.is_closed = True
        self.socket.close()
        while lib.pn_collector_pop(self.collector):
            pass
        lib.pn_transport_unbind(self._transport)
        lib.pn_collector_release(self.collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._transport)
        lib.pn_decref(self._connection)
        lib.pn_collector_free(self.collector)


def _connected(host: str, port: int, timeout_s: float) -> socket.socket:
    connected = socket.create_connection((host, port), timeout=timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    return connected


def _session_filter(session_id: str | None) -> bytes:
    """Returns the filter map of the source, with a plain string or null, as most SDKs send it."""
    key = b"com.microsoft:session-filter"
    value = b"\x40"
    if session_id is not None:
        value = b"\xa1" + bytes([len(session_id.encode())]) + session_id.encode()
    entry = b"\xa3" + bytes([len(key)]) + key + value
    return b"\xc1" + bytes([len(entry) + 1, 2]) + entry


def _text(what: str, condition: Any) -> str:
    parts = [what]
    for field in (lib.pn_condition_get_name, lib.pn_condition_get_description):
        value = field(condition)
        if value:
            parts.append(ffi.string(value).decode(errors="replace"))
    return ": ".join(parts)
