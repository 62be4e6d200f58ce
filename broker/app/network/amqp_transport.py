"""Connects a socket to a sans-IO AMQP connection. All AMQP IO is here.

Bytes are given to the connection in slices, and other clients are served between slices
(`shared_reading.py`). Output is written once per turn. Reading pauses when a client has sent its share of
a turn, while too many bytes are not committed yet, and while the client leaves too much output unread.
Deliveries pause while the socket is full.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import structlog

from broker.app.network.client_addresses import address_text
from broker.app.runtime.clock import timer_delay_s
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.app.network.shared_reading import SharedReading
    from broker.core.contract.errors import BrokerError
    from protocol.amqp.connection import Connection

log = structlog.get_logger("peeklock.transport")

READ_PER_TURN_BYTES = 256 * 1024
"""After so many bytes of one client, other clients are served and memory is freed."""

SLICE_S = 0.001
"""How long one slice should take to process; between half and twice of it is accepted. The slice size in
bytes adapts to that: an attach of a hundred bytes takes longer than a message of a hundred kilobytes."""
SLICE_MIN_BYTES = 512
SLICE_FIRST_BYTES = 4 * 1024
SLICE_MAX_BYTES = 128 * 1024

LINKS_FEW = 100
"""A connection with more links than this takes milliseconds to end, and waits for its turn to do so."""

LINGER_S = 2.0
"""How long a client that violated the protocol may take to read the error and to stop sending."""

UNREAD_MAX_BYTES = 16 * 1024 * 1024
"""If a client leaves more output unread than this, nothing more is read from it. The value is far above
what a client that reads at all leaves unread: if both sides waited for the other to read, neither would
continue."""


class ByteStream(Protocol):
    """The part of `asyncio.Transport` that is used: of a socket or a WebSocket."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...


class WireTap(Protocol):
    """Looks at the bytes of a connection, for the control API (`frame_views.py`)."""

    def received(self, data: bytes) -> None: ...
    def sent(self, data: bytes) -> None: ...
    def closed(self) -> None: ...


class TransportOwner(Protocol):
    """What a transport needs from the owner of all transports."""

    def touch(self, transport: AmqpTransport) -> None:
        """Flushes this transport at the end of the next turn."""

    def note_bytes_read(self, transport: AmqpTransport, size_bytes: int) -> bool:
        """Counts bytes that were read. Returns True if the transport must pause reading."""

    def note_unread_bytes(self, transport: AmqpTransport, size_bytes: int) -> None:
        """Records how many written bytes the client has not read."""

    def transport_closed(self, transport: AmqpTransport) -> None:
        """Removes the transport."""


class AmqpTransport(asyncio.Protocol):
    """One AMQP client on one socket."""

    def __init__(
        self,
        owner: TransportOwner,
        connect: Callable[[AmqpTransport, str], Connection | None],
        handshake_timeout_s: float,
        sharing: SharedReading,
    ) -> None:
        self._owner = owner
        self._sharing = sharing
        self._connect = connect
        self._handshake_timeout_s = handshake_timeout_s
        self._stream: ByteStream | None = None
        self._socket: socket.socket | None = None
        """None for a WebSocket."""
        self._descriptor: int | None = None
        """The descriptor of the socket, which is open while the stream is not closing. None with TLS: that ends after
        its socket."""
        self._handshaking = True
        self._read_bytes = 0
        """Bytes that were read since the last flush."""
        self._needs_flush = False
        """What was read last may have caused output."""
        self._slice_bytes = SLICE_FIRST_BYTES
        self._unprocessed = b""
        """Bytes that were read and not processed yet."""
        self._is_lost = False
        """The socket is closed. Bytes that arrived before may not be processed yet."""
        self._waits_for_commit = False
        self._waits_for_client = False
        self._is_full = False
        """The client reads more slowly than the broker writes."""
        self._timer: asyncio.TimerHandle | None = None
        self._authorization_timer: asyncio.TimerHandle | None = None
        self._prepared = b""
        """Frames that are built and not written."""
        self.connection: Connection | None = None
        self.tap: WireTap | None = None
        """None while nobody looks at the frames of this connection."""

    # --- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio for a new socket."""
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None and transport.get_extra_info("sslcontext") is None:
            self._descriptor = self._socket.fileno()
        address = transport.get_extra_info("peername")
        peer_name = address_text(*address[:2]) if address else ""
        self.begin(transport, peer_name)  # type: ignore[arg-type]

    def begin(self, stream: ByteStream, peer_name: str) -> None:
        """Starts an AMQP connection on a socket or a WebSocket."""
        self._stream = stream
        self.connection = self._connect(self, peer_name)
        if self.connection is None:
            stream.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_timeout_s, self._check_handshake)

    def data_received(self, data: bytes) -> None:
        """Processes bytes from the client."""
        if self.connection is None or self._stream is None:
            return
        if self.tap is not None:
            self.tap.received(data)
        is_waiting = bool(self._unprocessed)
        if is_waiting:
            self._unprocessed += data  # they were on their way when reading was paused
        elif not self._process(data, self._sharing.new_bytes_end_s()):
            return
        if self._unprocessed and not is_waiting:
            self._sharing.add(self)
        self._read_bytes += len(data)
        if self._needs_flush or self._unprocessed or self._read_bytes >= READ_PER_TURN_BYTES:
            self._owner.touch(self)
        else:
            self._acknowledge()  # a flush would do nothing else
        if self._owner.note_bytes_read(self, len(data)):
            self._waits_for_commit = True
        if self._is_full and self._stream.get_write_buffer_size() > UNREAD_MAX_BYTES:
            self._waits_for_client = True
        if not self._may_read:
            self._stream.pause_reading()

    def _process(self, data: bytes, ends_s: float) -> bool:
        """Gives bytes to the connection until this time and keeps the rest. Returns False if that failed."""
        assert self.connection is not None
        taken = 0
        self._needs_flush = False
        began_s = perf_counter()
        try:
            while taken < len(data):
                size = self._slice_bytes
                piece = data[taken : taken + size]  # a slice of everything is no copy
                if self.connection.receive_data(piece):
                    self._needs_flush = True
                taken += len(piece)
                now_s = perf_counter()
                if now_s - began_s > 2 * SLICE_S:
                    self._slice_bytes = max(size // 2, SLICE_MIN_BYTES)
                elif now_s - began_s < SLICE_S and size < SLICE_MAX_BYTES:
                    self._slice_bytes = size * 2
                if now_s >= ends_s:
                    break
                began_s = now_s
        except Exception:
            # A bug of the broker. It ends this connection, and no other.
            log.exception("connection.broken")
            self._unprocessed = b""
            if self._stream is not None:
                self._stream.abort()
            return False
        self._unprocessed = data[taken:]
        if self._handshaking and self.connection.opened:
            self._end_handshake()
        return True

    def process_more(self, ends_s: float) -> bool:
        """Processes more of the bytes that were read, until this time. Returns whether any are left."""
        if self.connection is None:
            self._unprocessed = b""
            return False
        was_taken = not self._unprocessed or self._process(self._unprocessed, ends_s)
        if self._is_lost:
            if not self._unprocessed:
                self._close()
        elif was_taken:
            self._owner.touch(self)
            self._resume_reading()
        return bool(self._unprocessed)

    def pause_writing(self) -> None:
        """Stops deliveries: the client reads more slowly than it gives credit."""
        self._is_full = True
        if self.connection is not None:
            self.connection.pause()

    def resume_writing(self) -> None:
        """Continues deliveries: the client has read what was written."""
        self._is_full = self._waits_for_client = False
        self._owner.note_unread_bytes(self, 0)
        self._resume_reading()
        with self._ends_if_it_fails():
            if self.connection is not None:
                self.connection.resume()
                self._owner.touch(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is closed. Bytes that arrived before are still processed."""
        del exc
        self._is_lost = True
        self._stream = None
        if self.connection is None:
            self._close()
        elif not self._unprocessed:
            if self.connection.link_count > LINKS_FEW:
                self._sharing.add(self)  # many such connections may end at once
            else:
                self._close()

    def _close(self) -> None:
        self._drop_connection()
        self._owner.transport_closed(self)

    # --- called by the server ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Builds the frames of the output so far."""
        connection, stream = self.connection, self._stream
        if connection is not None and stream is not None and not stream.is_closing():
            self._prepared += connection.take_output()

    def flush(self) -> None:
        """Writes the output of the connection, and closes the socket after the last output."""
        self.prepare()
        self.write_prepared()

    def write_prepared(self) -> None:
        """Writes the frames that `prepare` has built, and closes the socket after the last output."""
        connection, stream = self.connection, self._stream
        if connection is None or stream is None or stream.is_closing():
            return
        output, self._prepared = self._prepared, b""
        if output:
            if self.tap is not None:
                self.tap.sent(output)
            self._write(stream, output)
            if self._is_full:
                self._owner.note_unread_bytes(self, stream.get_write_buffer_size())
            else:
                connection.output_written()
        elif self._read_bytes:
            self._acknowledge()
        had_its_share = self._read_bytes >= READ_PER_TURN_BYTES
        self._read_bytes = 0
        if connection.finished:
            self._finish(connection, stream)
        elif had_its_share:
            self._resume_reading()

    def _write(self, stream: ByteStream, output: bytes) -> None:
        """Writes to the socket at once. The stream would write at the end of this pass of the event loop, after all that
        is done meanwhile. It gets what the socket does not take now."""
        if self._descriptor is not None and not stream.get_write_buffer_size():
            try:
                written_bytes = os.write(self._descriptor, output)
            except OSError:  # it takes nothing now, or the stream gets the error, too
                written_bytes = 0
            if written_bytes == len(output):
                return
            output = output[written_bytes:]
        stream.write(output)

    def _acknowledge(self) -> None:
        """Sends the TCP acknowledgement of what was read at once, because there is no output to carry it. Clients with
        Nagle's algorithm, such as those of Node, write nothing more before it arrives, and the kernel would delay it by
        40 ms."""
        if self._stream is None or self._stream.is_closing():
            return
        if self._descriptor is not None:
            compiled.acknowledge(self._descriptor)
        elif self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _finish(self, connection: Connection, stream: ByteStream) -> None:
        """Closes the socket once everything is written. If the client may still send, read for a moment
        first: closing a socket that has unread bytes resets it, and the client would lose the output."""
        if self._socket is None or not connection.client_may_write:
            stream.close()
            return
        self._drop_connection()
        if stream.can_write_eof():
            stream.write_eof()
        stream.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, stream.abort)

    def _drop_connection(self) -> None:
        for timer in (self._timer, self._authorization_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._authorization_timer = None
        if self.connection is not None:
            self.connection.lost()
            self.connection = None

    def resume_after_commit(self) -> None:
        """Resumes reading: what was read is committed."""
        self._waits_for_commit = False
        self._resume_reading()

    def end(self, error: BrokerError) -> None:
        """Closes the connection with an error."""
        with self._ends_if_it_fails():
            if self.connection is not None:
                self.connection.close(error)
                self.flush()

    def fail(self, error: BrokerError) -> None:
        """Closes the connection with an error because of a bug of the broker."""
        with self._ends_if_it_fails():
            if self.connection is not None:
                self.connection.fail(error)
                self._owner.touch(self)

    @contextmanager
    def _ends_if_it_fails(self) -> Iterator[None]:
        """Aborts this connection, and no other, if something fails because of a bug of the broker. The engine may be in
        any state then, so the client only sees a lost connection."""
        try:
            yield
        except Exception:
            log.exception("connection.broken")
            self.abort()

    def detach_from_core(self) -> None:
        """Does not report the end of the links to the core, which has dropped them already."""
        if self.connection is not None:
            self.connection.detach_from_core()

    def abort(self) -> None:
        """Closes the socket at once."""
        if self._stream is not None:
            self._stream.abort()

    def drop(self) -> None:
        """Closes the socket after the output so far, without an AMQP close. Not at once: the connection may be
        processing bytes."""
        asyncio.get_running_loop().call_soon(self._drop)

    def _drop(self) -> None:
        with self._ends_if_it_fails():
            self.flush()
        if self._stream is not None:
            self._stream.close()

    def check_authorization_in(self, delay_ms: int) -> None:
        """Checks the client's permissions after this long. Replaces an earlier call."""
        if self._authorization_timer is not None:
            self._authorization_timer.cancel()
        loop = asyncio.get_running_loop()
        delay_s = timer_delay_s(delay_ms)
        self._authorization_timer = loop.call_later(delay_s, self.check_authorization)

    def check_authorization(self) -> None:
        """Checks the client's permissions, after the clock or the keys have changed."""
        with self._ends_if_it_fails():
            if self.connection is not None:
                self.connection.check_authorization()

    # --- reading -------------------------------------------------------------------------------

    @property
    def unprocessed_input(self) -> bytes:
        """What was read since the end of the last complete frame that was processed."""
        held = b"" if self.connection is None else self.connection.incomplete_input
        return held + self._unprocessed

    @property
    def _may_read(self) -> bool:
        waits = self._waits_for_commit or self._waits_for_client or self._unprocessed
        return not waits and self._read_bytes < READ_PER_TURN_BYTES

    def _resume_reading(self) -> None:
        if self._may_read and self._stream is not None and not self._stream.is_closing():
            self._stream.resume_reading()

    # --- time ----------------------------------------------------------------------------------

    def _check_handshake(self) -> None:
        """Closes the socket of a client that has not opened its connection in time."""
        self._timer = None
        if self._stream is not None:
            self._stream.abort()

    def _end_handshake(self) -> None:
        """From now on the idle timeout applies instead of the handshake timeout."""
        self._handshaking = False
        if self._timer is not None:
            self._timer.cancel()
        self._tick_idle_timeout()

    def _tick_idle_timeout(self) -> None:
        """Lets the engine send empty frames and detect a client that sends nothing."""
        self._timer = None
        if self.connection is None:
            return
        loop = asyncio.get_running_loop()
        now_ms = int(loop.time() * 1000)
        deadline_ms = 0
        with self._ends_if_it_fails():
            deadline_ms = self.connection.tick(now_ms)
            self.flush()
        if deadline_ms and self.connection is not None:
            delay_s = max(0.01, (deadline_ms - now_ms) / 1000)
            self._timer = loop.call_later(delay_s, self._tick_idle_timeout)
