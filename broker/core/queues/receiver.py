"""A receiver of a queue: its credit, the messages of the current dispatch, and its locks.

`dispatcher.py` and `sessions.py` decide which messages it gets. It never gets more than its credit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.core.contract.effects import Drained
from broker.core.contract.settlement_values import ReceiveMode

if TYPE_CHECKING:
    from broker.core.contract.commands import RequestOrigin
    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.locks import LockGroup
    from broker.core.queues.queue import Queue

BURST_MAX_MESSAGES = 1_000
BURST_MAX_BYTES = 1024 * 1024
"""The most that one receiver gets in one dispatch. Its link grants credit again after that was written
to the socket."""


class ReceiverSource(Protocol):
    """What a receiver is attached to: the dispatcher of a queue, or a session. While it waits for a
    session, it is attached to all sessions of the queue."""

    def grant(self, receiver: Receiver) -> None:
        """The credit of the receiver has changed."""

    def detach(self, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        """Deliver nothing to the receiver any more."""


class Receiver:
    """A receiver link: its credit and the messages that it has locked."""

    __slots__ = (
        "__weakref__",
        "burst",
        "burst_bytes",
        "connection",
        "delivered",
        "draining",
        "limit",
        "link_name",
        "lock_groups",
        "locks",
        "lost_locks",
        "paused",
        "peer",
        "queue",
        "source",
        "waits_for_session",
    )

    def __init__(
        self,
        peer: Peer,
        queue: Queue,
        mode: ReceiveMode,
        connection: object = None,
        link_name: str | None = None,
    ) -> None:
        self.peer = peer
        self.connection = connection
        self.link_name = link_name
        self.queue = queue
        self.locks = mode is ReceiveMode.PEEK_LOCK
        self.source: ReceiverSource | None = None
        """None before it is attached and after it is detached."""
        self.waits_for_session = False
        self.limit = 0
        """How many messages it takes in total since it attached."""
        self.delivered = 0
        self.draining = False
        self.paused = False
        """It got a full burst, and its link has not granted credit since."""
        self.lock_groups: dict[LockGroup, None] = {}
        """The messages that it has locked. `Locks` changes it."""
        self.lost_locks = False
        """All its locks are lost, but some messages may not be back in their places yet."""
        self.burst: list[Message] = []
        self.burst_bytes = 0
        """The messages that this dispatch has assigned to it so far, and their size."""

    @property
    def locked(self) -> list[Message]:
        """Returns the messages that it has locked."""
        return [message for group in self.lock_groups for message in group]

    @property
    def room(self) -> int:
        """Returns how many more messages it takes in this dispatch."""
        if self.paused or self.burst_bytes >= BURST_MAX_BYTES:
            return 0
        return min(self.limit - self.delivered, BURST_MAX_MESSAGES - len(self.burst))

    @property
    def drains_later(self) -> bool:
        """Whether it drains and there may be more than one burst: its link has to grant credit again."""
        return self.draining and self.paused and self.limit > self.delivered

    def is_origin(self, origin: RequestOrigin) -> bool:
        """Whether a request came from this receiver. If the request names no link, the connection decides."""
        return self.connection is origin.connection and (
            origin.link_name is None or origin.link_name == self.link_name
        )

    def grant(self, limit: int, *, drain: bool) -> None:
        """Set its credit."""
        self.limit = limit
        self.draining = drain
        self.paused = False

    def load(self, messages: list[Message], size_bytes: int) -> None:
        """Assign messages of this size that are delivered at the end of this dispatch."""
        self.delivered += len(messages)
        self.burst = self.burst + messages if self.burst else messages
        self.burst_bytes += size_bytes

    def unload(self) -> list[Message]:
        """Returns the assigned messages, which are delivered now."""
        messages = self.burst
        self.paused = len(messages) >= BURST_MAX_MESSAGES or self.burst_bytes >= BURST_MAX_BYTES
        self.burst = []
        self.burst_bytes = 0
        return messages

    def finish_draining(self, turn: Turn) -> None:
        """Nothing is left to deliver: return the remaining credit."""
        self.draining = False
        self.limit = self.delivered
        turn.effects.append(Drained(self.peer))
