"""An asyncio event loop without real time, threads or sockets.

The time does not move while something can run, and then jumps to the next timer. Work for a thread
runs on the loop, after a delay that the simulation chooses. A process that is killed loses its
tasks, timers and callbacks: each is found by the context in which it was created.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

PROCESS: ContextVar[int] = ContextVar("simulated process", default=0)
"""Which simulated process runs: 0 is the clients and the network, each start of the broker has a
number of its own."""

PASS_S = 0.000_01
"""What one pass of the loop takes: whoever polls makes time go on."""

STANDSTILL_PASSES = 500_000
"""A run that takes more passes of the loop goes round in circles."""


class Standstill(Exception):
    """Nothing can happen any more, or the same thing happens for ever."""


class Socket:
    """What the loop needs to know of a client's socket."""

    reader: Callable[[], None] | None = None
    writer: Callable[[], None] | None = None

    def wants_reader(self) -> None:
        """A reader was added: call it now if there is something to read."""

    def wants_writer(self) -> None:
        """A writer was added: call it when there is room."""


class VirtualLoop(asyncio.base_events.BaseEventLoop):
    """Timers, callbacks, executors and the readiness of simulated sockets."""

    def __init__(self, thread_delays_s: Callable[[], tuple[float, float]]) -> None:
        super().__init__()
        self._now_s = 0.0
        self._passes = 0
        self._clock_resolution = 1e-9
        self._selector = self
        self._thread_delays_s = thread_delays_s
        """How long until what a thread was given has been done, and until that is known."""
        self._given_to_threads: dict[Any, list[tuple[float, asyncio.Future[Any]]]] = {}
        self.sockets: dict[int, Socket] = {}
        self.complaints: list[str] = []
        """Exceptions that nobody handled."""
        self.set_exception_handler(self._note_exception)

    # ---- time -----------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def select(self, timeout: float | None) -> list[object]:
        """Called once a pass, where other loops wait for their sockets."""
        self._passes += 1
        if timeout is None:
            raise Standstill("everybody waits, and for nothing")
        if self._passes > STANDSTILL_PASSES:
            raise Standstill("something is repeated for ever")
        if timeout > 0:
            self._now_s = max(self._now_s, self._scheduled[0]._when)  # type: ignore[attr-defined]
        else:
            self._now_s += PASS_S
        return []

    def _process_events(self, events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # ---- threads --------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it later, after everything that this executor was given before and that was not cancelled since."""
        done = self.create_future()
        until_run_s, until_known_s = self._thread_delays_s()
        given = [
            (end_s, one)
            for end_s, one in self._given_to_threads.get(executor, ())
            if end_s > self._now_s and not one.cancelled()
        ]
        run_at_s = max([self._now_s, *(end_s for end_s, _ in given)]) + until_run_s
        self._given_to_threads[executor] = [*given, (run_at_s + until_known_s, done)]

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 -- handed on, as by a thread
                self.call_later(until_known_s, _resolve, done, None, error)
            else:
                self.call_later(until_known_s, _resolve, done, result, None)

        self.call_at(run_at_s, run)
        return done

    @property
    def threads_busy_s(self) -> float:
        """How long until the threads have done everything that they were given."""
        ends_s = [end_s for given in self._given_to_threads.values() for end_s, _ in given]
        return max(ends_s, default=0.0) - self._now_s

    # ---- sockets --------------------------------------------------------------------------------

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        socket = self.sockets[fd.fileno()]
        socket.reader = lambda: callback(*args)
        socket.wants_reader()

    def remove_reader(self, fd: Any) -> bool:
        socket = self.sockets[fd.fileno()]
        had, socket.reader = socket.reader is not None, None
        return had

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        socket = self.sockets[fd.fileno()]
        socket.writer = lambda: callback(*args)
        socket.wants_writer()

    def remove_writer(self, fd: Any) -> bool:
        socket = self.sockets[fd.fileno()]
        had, socket.writer = socket.writer is not None, None
        return had

    # ---- processes ------------------------------------------------------------------------------

    def kill(self, process: int) -> None:
        """Nothing that this process was about to do happens any more."""
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            context: Context = handle._context
            if context.get(PROCESS) == process:
                handle.cancel()

    def _note_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not context["message"].startswith("Task was destroyed"):  # that of a killed process
            error = context.get("exception")
            self.complaints.append(f"{context['message']}: {error!r}")


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
