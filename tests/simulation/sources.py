"""A run's randomness and time, in place of those of the operating system.

Most of the broker takes them as arguments. What reads them itself gets those of the seed here,
during a run.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING
from unittest import mock

from broker.app.network import amqp_transport, shared_reading
from broker.app.runtime.clock import Clock
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.simulation.virtual_loop import VirtualLoop

EPOCH_MS = 1_700_000_000_000
STEPS_S = (0.000_2, 0.000_2, 0.01)
"""What a look at a stopwatch costs: turns end after a number of commands and reads after many slices, or
each after the first."""


class VirtualClock(Clock):
    """The broker's clock, by the loop's time."""

    __slots__ = ("_looks", "_loop", "_step_s")

    def __init__(self, loop: VirtualLoop, step_s: float) -> None:
        super().__init__()
        self._loop = loop
        self._step_s = step_s
        self._looks = count()

    def stopwatch_s(self) -> float:
        return next(self._looks) * self._step_s

    def real_ms(self) -> int:  # type: ignore[override]
        return EPOCH_MS + int(self._loop.time() * 1000)


@contextmanager
def seeded(chance: Random, clock: VirtualClock) -> Iterator[None]:
    """The same ids and times for the same seed."""

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(bytes=chance.randbytes(16), version=4)

    repeated_events.configure(lambda: clock.real_ms() / 1000, new_uuid)
    replaced: list[tuple[object, str, object]] = [
        (uuid, "uuid4", new_uuid),  # of the clients' library
        (amqp_transport, "perf_counter", clock.stopwatch_s),
        (shared_reading, "perf_counter", clock.stopwatch_s),
        (shared_reading, "thread_time", lambda: 0.0),  # the virtual stopwatch is no processor time
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.callback(repeated_events.configure)
        yield
