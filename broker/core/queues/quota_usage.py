"""The size of an entity, against which its quota is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.queues.dispatcher import Dispatcher


class QuotaUsage:
    """How many bytes an entity holds. A topic and its subscriptions share one."""

    __slots__ = ("_held_up", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._held_up: dict[Dispatcher, None] = {}
        """Dispatchers of queues whose messages could not be forwarded, because the entity had no room."""

    def add(self, size_bytes: int) -> None:
        """Count bytes that were stored, or removed if negative."""
        self.size_bytes += size_bytes
        if size_bytes < 0 and self._held_up:
            held_up, self._held_up = self._held_up, {}
            for dispatcher in held_up:
                dispatcher.touch()

    def dispatch_when_smaller(self, dispatcher: Dispatcher) -> None:
        """Dispatch the messages of this queue again when the entity has become smaller."""
        self._held_up[dispatcher] = None
