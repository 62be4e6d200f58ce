"""What the control API asks of a namespace, and what it gets. Values without behaviour.

`commands.ControlRequest` contains one operation. This module is imported with the first request of the
control API, so that a start without one does not load it. An operation on many messages processes a limited
number of them and says where to continue: whoever asks sends the next operation in a later turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.core.contract.effects import EntityView


class QueueCounts(NamedTuple):
    """How many messages of a queue or sub-queue are in each state. Each message is in one."""

    active: int = 0
    """Ready to be received."""
    locked: int = 0
    """Locked by a receiver, whether it was active or deferred before."""
    deferred: int = 0
    scheduled: int = 0

    @property
    def total(self) -> int:
        """All messages."""
        return self.active + self.locked + self.deferred + self.scheduled


class EntityState(NamedTuple):
    """An entity and its counts."""

    view: EntityView
    main: QueueCounts
    dead_letter: QueueCounts
    transfer_dead_letter: QueueCounts
    receiver_count: int
    """Receivers of the entity and its sub-queues, and those that wait for a session."""
    sender_count: int
    session_lock_count: int
    """Sessions that a receiver holds."""


class ListEntityStates(NamedTuple):
    """List entities, ordered by path in lower case. Reply: list of `EntityState`."""

    kind: str | None
    """`queue`, `topic` or `subscription`. None: all."""
    after: str
    """List only entities whose path in lower case comes after this."""
    limit: int


class GetEntityState(NamedTuple):
    """Reply: `EntityState`."""

    path: str
