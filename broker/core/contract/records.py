"""Records: what the store has to write, in order. Values without behaviour.

The store writes the records of a commit in one transaction. Rows are tuples, because every message has one
and it goes into SQL unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class MessageRow(NamedTuple):
    """A message without its payload. All rows are loaded at start."""

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


class PayloadRow(NamedTuple):
    """The bytes of a message. Copies on several subscriptions share one payload."""

    id: int
    body: bytes
    annotations: bytes


class MessagesStored(NamedTuple):
    """New messages, and the payloads that are not stored yet."""

    rows: Sequence[MessageRow]
    payloads: Sequence[PayloadRow]


class MessagesUpdated(NamedTuple):
    """Messages whose row has changed. Payloads never change."""

    rows: Sequence[MessageRow]


class MessagesDeleted(NamedTuple):
    """Deleted messages, and the payloads that no message refers to any more."""

    ids: Sequence[int]
    payload_ids: Sequence[int]


class SessionStateSet(NamedTuple):
    """The state of a session. None if it was cleared."""

    entity_id: int
    session_id: str
    state: bytes | None
    updated_time_ms: int


class MessageIdsSeen(NamedTuple):
    """Message ids inside an entity's duplicate detection window: (message id, until ms)."""

    entity_id: int
    seen: Sequence[tuple[str, int]]


class MessageIdsForgotten(NamedTuple):
    """Ids that count until this time or an earlier time have left the window."""

    entity_id: int
    until_ms: int


class MessageIdsDeleted(NamedTuple):
    """Ids that a deleted entity has seen."""

    entity_id: int
    message_ids: Sequence[str]


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
    """The number of the rule in its subscription. Rules are ordered by it."""
    definition: str


class RulesStored(NamedTuple):
    """Rules that were created or replaced."""

    rows: Sequence[RuleRow]


class RulesDeleted(NamedTuple):
    """Deleted rules of a subscription."""

    entity_id: int
    numbers: Sequence[int]


class EntityDeleted(NamedTuple):
    """An entity was deleted, with its session states and rules. `MessagesDeleted` deletes its messages and
    `MessageIdsDeleted` the ids that it has seen, before or after this record, perhaps in many parts. If the broker stops
    in between, the store has messages and ids of no entity."""

    entity_id: int


class SequenceNumbersSkipped(NamedTuple):
    """Sequence numbers that a queue does not assign again, although the store has no message with them: entity
    id, sub-queue and the highest such number. A copy of an entity continues with the numbers of its original, and a topic reserves the numbers that
    its messages have in the subscriptions."""

    rows: Sequence[tuple[int, int, int]]


class NamespaceStored(NamedTuple):
    """A namespace that no config file declares was created or changed. `definition` is JSON."""

    name: str
    definition: str


class NamespaceDeleted(NamedTuple):
    """Such a namespace was deleted. `EntityDeleted` deletes its entities."""

    name: str


Record = (
    MessagesStored
    | MessagesUpdated
    | MessagesDeleted
    | SessionStateSet
    | MessageIdsSeen
    | MessageIdsForgotten
    | MessageIdsDeleted
    | EntityStored
    | EntityDeleted
    | RulesStored
    | RulesDeleted
    | SequenceNumbersSkipped
    | NamespaceStored
    | NamespaceDeleted
)
