"""What the control API asks of a namespace, and what it gets. Values without behaviour.

`commands.ControlRequest` contains one operation. This module is imported with the first request of the
control API, so that a start without one does not load it. An operation on many messages processes a limited
number of them and says where to continue: whoever asks sends the next operation in a later turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.effects import EntityView, Peer
    from broker.core.contract.message import Message
    from config.model.definitions import EntityDefinition


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


class Totals(NamedTuple):
    """The counts of an entity, of a topic with its subscriptions, or of all entities."""

    main: QueueCounts
    """Without sub-queues."""
    locked: int
    """Locked messages, including those in sub-queues."""
    session_locks: int


class ReadTotals(NamedTuple):
    """Count the messages of several queues at one moment. Reply: `TotalsRead`."""

    queues: Sequence[str]
    """Paths of queues and sub-queues."""
    entities: Sequence[str | None]
    """Paths of entities. None: all entities."""


class TotalsRead(NamedTuple):
    """The counts of queues and the totals of entities, in the order of the request."""

    queues: Sequence[QueueCounts]
    entities: Sequence[Totals]


class ListPaths(NamedTuple):
    """Reply: list of the paths of all entities."""


class EntityActivity(NamedTuple):
    """What the overview shows of an entity. Totals only rise, so that two of them give a rate."""

    path: str
    kind: str
    main: QueueCounts
    dead_letters: int
    transfer_dead_letters: int
    arrived_total: int
    """Messages that have arrived: sent, copied from a topic or forwarded."""
    delivered_total: int
    refused_total: int
    """Sends, settlements and attaches that were refused."""
    oldest_enqueued_ms: int
    """When the oldest message was enqueued that is not scheduled; 0 if there is none."""
    expiring_locks: int
    """Message locks that end soon and were not renewed yet."""
    receivers: int
    senders: int
    size_bytes: int
    held_sessions: int | None
    """Sessions that a receiver holds. None if the entity does not require sessions."""


class ReadActivity(NamedTuple):
    """Reply: list of `EntityActivity`. Entities that do not exist are left out."""

    paths: Sequence[str]


# --- messages ----------------------------------------------------------------------------------


class LockView(NamedTuple):
    """The lock of a message or of a session."""

    token: bytes | None
    """None for a session."""
    until_ms: int
    holder: Peer


class MessageView(NamedTuple):
    """A message as it was when it was read."""

    message: Message
    """A copy. Its body is None if only the store has it."""
    state: str
    """`active`, `locked`, `deferred` or `scheduled`."""
    lock: LockView | None


class MessagesRead(NamedTuple):
    """Some messages of a queue, in the order of their numbers."""

    messages: Sequence[MessageView]
    next_after: int | None
    """The `after` with which to continue. None if there are no more."""
    last_sequence_number: int
    """The highest number that the queue has assigned. Later messages have higher numbers."""


class ReadMessages(NamedTuple):
    """Read messages without locking them. Reply: `MessagesRead`."""

    path: str
    after: int
    """Read messages whose sequence number is higher."""
    examine: int
    """How many messages to look at, at most."""
    limit: int
    """How many messages to return, at most."""
    state: str | None = None
    """Return only messages in this state."""
    session_id: str | None = None


class FindMessages(NamedTuple):
    """Read messages by their sequence numbers. Reply: `MessagesRead`. Refused with `MessageNotFound` if one does
    not exist."""

    path: str
    sequence_numbers: Sequence[int]


class SessionView(NamedTuple):
    """A session of a queue."""

    session_id: str
    message_count: int
    locked_count: int
    state: bytes | None
    state_updated_ms: int
    lock: LockView | None


class SessionsRead(NamedTuple):
    """Some sessions of a queue, ordered by id."""

    sessions: Sequence[SessionView]
    waiting_receivers: int
    """Receivers that wait for the next available session."""


class ReadSessions(NamedTuple):
    """Reply: `SessionsRead`. Refused with `NotAllowed` if the entity has no sessions."""

    path: str
    after: str | None
    """Only sessions whose ids come later. None: from the first, whose id may be empty."""
    limit: int


# --- changes -----------------------------------------------------------------------------------


class SendMessages(NamedTuple):
    """Send messages to a queue or topic, all or none. Reply: list of the sequence numbers in the queue; empty for a
    topic, and for messages that duplicate detection has dropped."""

    path: str
    messages: Sequence[Message]


class PurgePart(NamedTuple):
    """Delete the first messages of a queue or sub-queue, whatever their state. Reply: `PurgedPart`."""

    path: str
    up_to: int | None
    """Delete only messages with this number or a lower one. None: all that the queue has now."""


class PurgedPart(NamedTuple):
    """What a part of a purge has done."""

    count: int  # type: ignore[assignment]  # hides `tuple.count`, which is not used
    up_to: int
    is_done: bool


class DeleteByNumber(NamedTuple):
    """Delete messages, whatever their state. Reply: their number."""

    path: str
    sequence_numbers: Sequence[int]


class DeadLetterByNumber(NamedTuple):
    """Dead-letter messages, whatever their state. Reply: their number."""

    path: str
    sequence_numbers: Sequence[int]
    reason: str | None
    description: str | None


class ReleaseByNumber(NamedTuple):
    """Make messages ready to be received: end locks without a failed delivery, return deferred messages, activate
    scheduled messages. Reply: the number of messages that were not ready before."""

    path: str
    sequence_numbers: Sequence[int]


class ExpireLocks(NamedTuple):
    """End locks as if their time had come: each counts as a failed delivery. Reply: the number of locks."""

    path: str
    sequence_numbers: Sequence[int] | None
    """None: the locks of all messages."""
    session_id: str | None = None
    """End the lock of this session, and of its messages."""
    lock_tokens: Sequence[bytes] | None = None
    """End the locks with these tokens. Those that have ended are skipped."""


class Resubmit(NamedTuple):
    """Move dead letters to another queue or topic, or back to their entity. They count as never delivered and lose
    the reason. Locked ones stay. Reply: the number of moved messages."""

    path: str
    sequence_numbers: Sequence[int]
    destination: str | None
    """None: the entity whose dead letters they are."""


class ListQueuesWithMessages(NamedTuple):
    """Reply: the paths of all queues and sub-queues that have messages."""


class ResetEntities(NamedTuple):
    """Make the entities of the namespace as declared, with attached links where possible: delete others, end session
    locks, delete session states and the ids of duplicate detection. Reply: paths of queues and sub-queues that have
    messages, which the caller purges."""

    definitions: Mapping[str, EntityDefinition]
