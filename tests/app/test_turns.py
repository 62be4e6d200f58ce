"""The turn loop: when deadlines are acted on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.app.clock import Clock
from broker.app.turns import TurnLoop
from broker.core.commands import Tick

if TYPE_CHECKING:
    from broker.core.commands import Command
    from broker.core.turn import Turn


class DueNamespace:
    """Always has something due; counts how often it is told to act."""

    def __init__(self, enough: int) -> None:
        self.ticks = 0
        self.had_enough = asyncio.Event()
        self._enough = enough

    def apply(self, command: Command, now_ms: int, turn: Turn) -> None:
        assert isinstance(command, Tick)
        turn.effects.append(Nothing())  # type: ignore[arg-type]
        self.ticks += 1
        if self.ticks == self._enough:
            self.had_enough.set()

    def dispatch(self, now_ms: int, turn: Turn) -> None: ...

    def next_deadline_ms(self) -> int:
        return 1


class Nothing:
    """An effect that nobody sees."""


class BusyCommitter:
    """Is never idle: while one commit runs, the next is gathered. Each turn is durable at last."""

    idle = False

    def __init__(self) -> None:
        self.submitted = 0
        self.released = 0

    def submit(self, turn: Turn) -> None:
        self.submitted += 1

    def has_released(self, turn_count: int) -> bool:
        return self.released >= turn_count


def _loop(namespace: DueNamespace, committer: BusyCommitter) -> TurnLoop:
    def fail(error: Exception) -> None:
        raise error

    turns = TurnLoop({"one": namespace}, Clock(), lambda _: None, fail)  # type: ignore[dict-item]
    turns.attach(committer)  # type: ignore[arg-type]
    turns.tick()
    return turns


async def test_deadlines_are_acted_on_while_the_store_is_never_idle():
    """A namespace that keeps the store busy does not stop time for the others."""
    namespace = DueNamespace(enough=5)
    committer = BusyCommitter()
    turns = _loop(namespace, committer)
    async with asyncio.timeout(10):
        while not namespace.had_enough.is_set():
            committer.released = committer.submitted
            await asyncio.sleep(0)
    turns.stop()


async def test_the_next_deadlines_wait_for_the_ones_before_to_be_durable():
    """Otherwise a million messages that are due at once would pile up in front of a slow store."""
    namespace = DueNamespace(enough=2)
    committer = BusyCommitter()
    turns = _loop(namespace, committer)
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    ticks_before = namespace.ticks
    for _ in range(20):
        await asyncio.sleep(0.002)  # as often as the loop looks again
    assert ticks_before == namespace.ticks
    committer.released = committer.submitted
    namespace.had_enough.clear()
    namespace._enough = ticks_before + 1
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    turns.stop()


async def test_a_turn_that_cannot_be_handed_over_is_told():
    """Memory has what the store will never have: nobody may go on as if it had not happened."""

    class FullCommitter(BusyCommitter):
        def submit(self, turn: Turn) -> None:
            raise MemoryError

    failures: list[Exception] = []
    namespace = DueNamespace(enough=1)
    turns = TurnLoop({"one": namespace}, Clock(), lambda _: None, failures.append)  # type: ignore[dict-item]
    turns.attach(FullCommitter())  # type: ignore[arg-type]
    turns.tick()
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    assert [MemoryError] == [type(failure) for failure in failures]
