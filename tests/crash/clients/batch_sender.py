"""A connection that sends batches as hand-written frames, because Proton cannot set the message format.

Has one socket, one session and one link. The workload decides which messages are in a batch. After
the connection has ended, open batches get no outcome.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.codec import Described
from tests.support import amqp_frames
from tests.support.frame_client import FrameSplitter
from tests.support.message_sections import DATA, section
from tests.support.proton.answers import ACCEPTED
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from tests.support.amqp_frames import Frame

READ_BYTES = 1 << 16
FLOW_DELIVERY_COUNT, FLOW_CREDIT = 5, 6
DISPOSITION_FIRST, DISPOSITION_LAST, DISPOSITION_STATE = 1, 2, 4
ENDS = frozenset(("detach", "end", "close"))


class BatchSender:
    """`await put(...)` sends; `serve` must run beside it, and raises when the connection ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._splitter = FrameSplitter()
        self._writer = writer
        self._sent = 0
        self._limit = 0
        self._may_send = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._awaited: dict[int, Callable[[bool], None]] = {}

    @classmethod
    async def open(cls, host: str, port: int, address: str) -> Self:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(
            amqp_frames.HEADER
            + amqp_frames.open_frame(f"{address} batches")
            + amqp_frames.begin_frame()
            + amqp_frames.attach_sender(address=address)
        )
        return cls(reader, writer)

    async def put(self, messages: Sequence[bytes], then: Callable[[bool], None]) -> None:
        """Sends messages as one batch. `then` is called with whether it was accepted."""
        while self._sent >= self._limit:
            self._may_send.clear()
            await self._may_send.wait()
        payload = b"".join(section(DATA, message) for message in messages)
        delivery_id = self._sent
        self._awaited[self._sent] = then
        self._is_idle.clear()
        self._sent += 1
        for part in amqp_frames.transfers(
            delivery_id, payload, message_format=amqp_frames.BATCH_FORMAT
        ):
            self._writer.write(part)
            await self._writer.drain()

    async def wait_for_outcomes(self) -> None:
        """Return when no batch waits for its outcome."""
        await self._is_idle.wait()

    @property
    def waiting(self) -> int:
        """How many batches have no outcome yet."""
        return len(self._awaited)

    async def serve(self) -> None:
        """Hand on outcomes until the connection ends. Raises `PeerFailed`."""
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in self._splitter.feed(data):
                    self._handle(amqp_frames.frames(frame)[0])
        except OSError as failure:
            raise PeerFailed("the connection ended") from failure
        raise PeerFailed("the connection ended")

    def close(self) -> None:
        self._writer.transport.abort()

    def _handle(self, frame: Frame) -> None:
        if frame.name == "flow" and frame[FLOW_CREDIT] is not None:
            self._limit = (frame[FLOW_DELIVERY_COUNT] or 0) + frame[FLOW_CREDIT]
            self._may_send.set()
        elif frame.name == "disposition":
            last = frame[DISPOSITION_LAST]
            first = frame[DISPOSITION_FIRST]
            state = frame[DISPOSITION_STATE]
            is_accepted = isinstance(state, Described) and state.descriptor == ACCEPTED
            for delivery_id in range(first, (first if last is None else last) + 1):
                self._awaited.pop(delivery_id)(is_accepted)
            if not self._awaited:
                self._is_idle.set()
        elif frame.name in ENDS:
            raise PeerFailed(f"{frame.name}: {frame.fields}")
