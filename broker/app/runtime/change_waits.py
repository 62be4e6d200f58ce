"""Wakes those who wait for a change of a queue, after each turn that may have changed it.

A turn costs nothing more while nobody waits. A wait is woken before the turn is durable: what it then asks of the
core is answered after the turn, so it never sees what is not stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.app.runtime.turn_loop import TurnLoop
    from broker.core.contract.turn import Turn
    from broker.core.namespace import Namespace
    from broker.core.operations.queue_watch import QueueWatch


class ChangeWaits:
    """All waits of a broker."""

    def __init__(self, namespaces: Mapping[str, Namespace], turns: TurnLoop) -> None:
        self._namespaces = namespaces
        self._turns = turns
        self._waits: dict[ChangeWait, None] = {}

    def wait(self, namespace: str, paths: Sequence[str | None]) -> ChangeWait:
        """Returns a wait for changes of queues. It begins with its `with` block."""
        return ChangeWait(self, namespace, paths)

    def begin(self, wait: ChangeWait) -> None:
        """Wakes this wait from now on."""
        self._waits[wait] = None
        self._turns.after_turn = self._turn_ran

    def end(self, wait: ChangeWait) -> None:
        """Forgets a wait."""
        self._waits.pop(wait, None)
        if not self._waits:
            self._turns.after_turn = None

    def namespace(self, name: str) -> Namespace | None:
        """Returns the present namespace of a name. It is another one after a restart from the store."""
        return self._namespaces.get(name)

    def _turn_ran(self, turn: Turn) -> None:
        for wait in self._waits:
            wait.turn_ran(turn)


class ChangeWait:
    """One wait for changes of some queues: `with wait:`, then `clear`, look, and `changed` in a loop."""

    def __init__(self, waits: ChangeWaits, namespace: str, paths: Sequence[str | None]) -> None:
        self._waits = waits
        self._name = namespace
        self._paths = paths
        self._namespace: Namespace | None = None
        self._watches: list[QueueWatch] = []
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._watch()
        self._waits.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._waits.end(self)

    @property
    def is_changed(self) -> bool:
        """Whether there was a change since the last `clear`."""
        return self._event.is_set()

    def clear(self) -> None:
        """Forgets the changes so far."""
        self._event.clear()

    async def changed(self) -> None:
        """Waits for a change since the last `clear`."""
        await self._event.wait()

    def turn_ran(self, turn: Turn) -> None:
        """Wakes the wait if a turn may have changed one of its queues."""
        if self._waits.namespace(self._name) is not self._namespace:
            self._watch()
            self._event.set()
            return
        for watch in self._watches:  # each has to see each turn
            if watch.has_changed(turn):
                self._event.set()

    def _watch(self) -> None:
        self._namespace = self._waits.namespace(self._name)
        if self._namespace is None:
            self._watches = []
        else:
            self._watches = [self._namespace.watch(path) for path in self._paths]
