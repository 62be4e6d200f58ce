"""The size of an entity, against which its quota is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.queues.dispatcher import Dispatcher


class QuotaUsage:
    """How many bytes an entity holds. A topic and its subscriptions share one."""

    __slots__ = ("_waiting", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._waiting: dict[Dispatcher, None] = {}
        """Those that have messages for the entity, which had no room for them."""

    def add(self, size_bytes: int) -> None:
        """Count bytes that were stored, or removed if negative."""
        self.size_bytes += size_bytes
        if size_bytes < 0 and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for dispatcher in waiting:
                dispatcher.touch()

    def wait(self, dispatcher: Dispatcher) -> None:
        """Dispatch this one again when there is more room."""
        self._waiting[dispatcher] = None
