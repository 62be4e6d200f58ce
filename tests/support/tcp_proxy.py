"""A TCP proxy whose network fails: connections are reset, or stay open and carry nothing, or are slow.

It runs in a thread of its own. What was sent into a connection that carries nothing arrives when the network is back,
as with TCP itself.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

READ_BYTES = 65_536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER without a wait: the peer gets a reset."""


class TcpProxy:
    """`with TcpProxy(host, port) as proxy:` forwards connections from `proxy.port`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._delay_s = 0.0
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._carries = asyncio.Event()
        self._carries.set()
        self._in_loop(self._start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in_loop(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- what happens to the network --------------------------------------------------------------

    def cut(self) -> None:
        """Resets all connections, and new ones."""
        self._in_loop(self._cut)

    def hang(self) -> None:
        """Carries nothing any more. Nobody is told: connections stay open, and new ones are accepted."""
        self._loop.call_soon_threadsafe(self._carries.clear)

    def delay(self, seconds: float) -> None:
        """Carries everything so much later, in both directions."""
        self._delay_s = seconds

    def heal(self) -> None:
        """Ends all of these. What was sent meanwhile arrives."""
        self._is_cut, self._delay_s = False, 0.0
        self._loop.call_soon_threadsafe(self._carries.set)

    # ---- in the loop of the thread ----------------------------------------------------------------

    def _in_loop(self, method: Callable[[], Any]) -> None:
        async def call() -> None:
            result = method()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            _reset(writer)

    async def _accept(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [client_writer]
        self._writers.add(client_writer)
        try:
            if self._is_cut:
                _reset(client_writer)
                return
            await self._carries.wait()
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            writers.append(server_writer)
            self._writers.add(server_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(client_reader, server_writer))
                both.create_task(self._forward(server_reader, client_writer))
        except* (OSError, asyncio.CancelledError):
            pass  # a side has ended, or all of it ends
        finally:
            for writer in writers:
                self._writers.discard(writer)
                writer.close()
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one direction. Reading and writing are apart, so that a delay does not limit the rate."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(reader, late))
            both.create_task(self._write(late, writer))

    async def _read(
        self, reader: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        while True:
            data = await reader.read(READ_BYTES)
            late.put_nowait((self._loop.time() + self._delay_s, data))
            if not data:
                return

    async def _write(
        self, late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due_s, data = await late.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            await self._carries.wait()
            if not data:
                with suppress(OSError):
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
