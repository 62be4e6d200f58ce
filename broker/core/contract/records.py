"""What must be remembered: the facts a turn hands to storage, in the order they happened.

Storage writes them in one transaction and decides nothing. Rows are tuples, because one is made
for every message and goes into SQL as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class MessageRow(NamedTuple):
    """Everything about a message except its payload; the index loaded at start."""

    id: int
    entity_id: int
    sub_queue: int
    """0 the entity itself, 1 its dead-letter queue, 2 its transfer dead-letter queue."""
    sequence_number: int
    enqueue_sequence_number: int
    enqueued_time_ms: int
    time_to_live_ms: int | None
    expires_at_ms: int
    scheduled_enqueue_time_ms: int
    delivery_count: int
    state: int
    header: int
    size: int
    payload_id: int
    session_id: str | None
    changes: bytes | None


class SentRow(NamedTuple):
    """A message to which nothing has happened since it was sent: whatever else a `MessageRow` says
    has the value it had then. Read at start, when there may be millions; never written."""

    id: int
    entity_id: int
    sub_queue: int
    sequence_number: int
    enqueued_time_ms: int
    header: int
    size: int


class PayloadRow(NamedTuple):
    """The bytes of a message: stored once, however many copies refer to them."""

    id: int
    body: bytes
    annotations: bytes


class MessagesStored(NamedTuple):
    """New messages. `payloads` lacks those whose payload an earlier record stored."""

    rows: Sequence[MessageRow]
    payloads: Sequence[PayloadRow]


class MessagesUpdated(NamedTuple):
    """Messages whose row changed (count, state, queue, changes, number); payloads never do."""

    rows: Sequence[MessageRow]


class MessagesDeleted(NamedTuple):
    """Messages that are gone, and the payloads nothing refers to any more."""

    ids: Sequence[int]
    payload_ids: Sequence[int]


class SessionStateSet(NamedTuple):
    """The state of a session; None when cleared."""

    entity_id: int
    session_id: str
    state: bytes | None
    updated_time_ms: int


class MessageIdsSeen(NamedTuple):
    """Message ids inside an entity's duplicate detection window: (message id, until ms)."""

    entity_id: int
    seen: Sequence[tuple[str, int]]


class MessageIdsForgotten(NamedTuple):
    """Everything seen until this time or earlier has left the window."""

    entity_id: int
    until_ms: int


class EntityStored(NamedTuple):
    """A queue, topic or subscription was created or changed. `definition` is JSON."""

    entity_id: int
    namespace: str
    kind: str
    """`queue`, `topic` or `subscription`."""
    path: str
    definition: str
    created_time_ms: int
    updated_time_ms: int


class RuleRow(NamedTuple):
    """A rule of a subscription. `definition` is JSON."""

    entity_id: int
    """The subscription."""
    number: int
    """Of this rule among those of its subscription; rules have their order by it."""
    definition: str


class RulesStored(NamedTuple):
    """Rules that were created or replaced."""

    rows: Sequence[RuleRow]


class RulesDeleted(NamedTuple):
    """Rules of a subscription that are gone."""

    entity_id: int
    numbers: Sequence[int]


class EntityDeleted(NamedTuple):
    """An entity is gone, with its session states, seen message ids and rules. Its messages are gone,
    too, but `MessagesDeleted` says so, before or after this, perhaps in many parts. A store that gives
    back messages of no entity was stopped between them."""

    entity_id: int


Record = (
    MessagesStored
    | MessagesUpdated
    | MessagesDeleted
    | SessionStateSet
    | MessageIdsSeen
    | MessageIdsForgotten
    | EntityStored
    | EntityDeleted
    | RulesStored
    | RulesDeleted
)
