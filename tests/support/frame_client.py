"""A client that sends hand-written AMQP frames, over a socket or to a broker in memory.

It sends the bytes that the caller gives and splits its input into frames. A frame is decoded only
when the caller reads it, so that a test with many frames measures the broker and not the client.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from tests.support.amqp_frames import (
    HEADER,
    PERFORMATIVES,
    Frame,
    begin_frame,
    frames,
    open_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

HOST = "127.0.0.1"
TIMEOUT_S = 10.0
READ_BYTES = 1 << 20
SMALL_ULONG = 0x53
"""The constructor of the descriptors of all performatives that a broker sends."""
_NAMES = {code: name for name, code in PERFORMATIVES.items()}


class ConnectionEnded(Exception):
    """The broker ended the connection, or did not answer in time."""


class ByteStream(Protocol):
    """The methods of a socket that the client uses. A broker in memory has its own stream."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


def connect(
    port: int, *, timeout_s: float = TIMEOUT_S, receive_buffer_bytes: int | None = None
) -> socket.socket:
    """Returns a socket that is connected to a broker on this machine."""
    connected = socket.socket()
    if receive_buffer_bytes is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.settimeout(timeout_s)
    connected.connect((HOST, port))
    return connected


class FrameSplitter:
    """Splits a byte stream into frames. Protocol headers are kept separately, and empty frames are
    dropped."""

    def __init__(self) -> None:
        self.headers: list[bytes] = []
        self._unread = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the frames that are complete now."""
        unread = self._unread
        unread += data
        found, position = [], 0
        while len(unread) - position >= 8:
            if unread[position : position + 4] == b"AMQP":
                self.headers.append(bytes(unread[position : position + 8]))
                position += 8
                continue
            size = int.from_bytes(unread[position : position + 4])
            if len(unread) - position < size:
                break
            if size > 8:
                found.append(bytes(unread[position : position + size]))
            position += size
        del unread[:position]
        return found


def name_of(frame: bytes) -> str:
    """Returns the name of an encoded frame's performative."""
    body_at = 4 * frame[4]
    assert SMALL_ULONG == frame[body_at + 1], frame
    return _NAMES[frame[body_at + 2]]


def channel_of(frame: bytes) -> int:
    """Returns the channel of an encoded frame."""
    return int.from_bytes(frame[6:8])


class FrameClient:
    """A connection. Frames that arrive are kept in order until the caller reads them."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._splitter = FrameSplitter()
        self._arrived: list[bytes] = []

    @classmethod
    def opened(cls, port: int, *, incoming_window: int = 1 << 20, **options: object) -> Self:
        """Returns a client of the broker on this port, past open and begin."""
        client = cls(connect(port, **options))  # type: ignore[arg-type]
        begin = begin_frame(incoming_window=incoming_window)
        client.write(HEADER, open_frame(hostname=HOST), begin)
        client.skip_to("begin")
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection without a close frame. A thread that reads from it is woken."""
        if isinstance(self.stream, socket.socket):
            with suppress(OSError):  # the broker may have ended it already
                self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()

    # ---- bytes --------------------------------------------------------------------------------

    def write(self, *data: bytes) -> None:
        """Writes without reading the answer. Raises `ConnectionEnded`."""
        try:
            self.stream.sendall(b"".join(data))
        except OSError as error:
            raise ConnectionEnded from error

    def receive(self) -> list[bytes]:
        """Reads once and returns the frames that are complete now. Raises `ConnectionEnded`."""
        try:
            data = self.stream.recv(READ_BYTES)
        except OSError as error:
            raise ConnectionEnded from error
        if not data:
            raise ConnectionEnded
        return self._splitter.feed(data)

    def expect_header(self, header: bytes) -> None:
        """Waits for a protocol header, which must be this one."""
        while not self._splitter.headers:
            self._arrived += self.receive()
        assert header == self._splitter.headers.pop(0)

    # ---- frames -------------------------------------------------------------------------------

    def expect(
        self, name: str, channel: int = 0, where: Callable[[Frame], bool] = lambda _: True
    ) -> Frame:
        """Returns the next frame of this name on this channel; others are kept for later."""
        while True:
            for index, data in enumerate(self._arrived):
                arrived = name_of(data)
                if arrived == name and channel_of(data) == channel:
                    (frame,) = frames(data)
                    if where(frame):
                        del self._arrived[index]
                        return frame
                assert arrived != "close" or name == "close", f"the broker closed: {frames(data)}"
            self._arrived += self.receive()

    def has_arrived(self, name: str, channel: int = 0) -> bool:
        """Returns whether such a frame has arrived and was not read by the caller."""
        return any(name_of(data) == name and channel_of(data) == channel for data in self._arrived)

    def skip_to(self, name: str) -> Frame:
        """Returns the next frame of this name; those before it are dropped."""
        while True:
            while self._arrived:
                data = self._arrived.pop(0)
                if name_of(data) == name:
                    (frame,) = frames(data)
                    return frame
            self._arrived += self.receive()

    def count(self, name: str, enough: int, deadline_s: float) -> int:
        """Drops frames until enough of this name have arrived, the time is over, or the connection
        has ended. Returns how many arrived."""
        seen = 0
        with suppress(ConnectionEnded):
            while seen < enough and time.monotonic() < deadline_s:
                seen += sum(name_of(data) == name for data in self._arrived)
                self._arrived = self.receive() if seen < enough else []
        return seen

    def wait_until_settled(self, delivery_id: int, deadline_s: float) -> None:
        """Drops frames until the broker has settled the delivery with this id, or one after it."""
        with suppress(ConnectionEnded):
            while time.monotonic() < deadline_s:
                disposition = self.skip_to("disposition")
                if max(disposition[1], disposition[2] or 0) >= delivery_id:
                    return
