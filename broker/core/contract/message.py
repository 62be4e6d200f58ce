"""The message in a queue.

The protocols create messages, and `queues` changes them. The body is bytes here; only an injected
`MessageReader` reads it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.message_changes import MessageChanges

PropertyValue = object
"""str, int, float, bool, bytes, UUID, datetime or None, as the protocol decoded it."""


class MessageState(IntEnum):
    """The states that the SDKs show. A lock is not a state: a message in any state can be locked."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class QueueAddress(Protocol):
    """The queue of a message, as far as the store has to know it. `queues.queue.Queue` implements it."""

    entity_id: int
    sub_queue: int
    """0 the entity itself, 1 its dead-letter queue, 2 its transfer dead-letter queue."""


class Message:
    """One message in one queue.

    Mutable and with slots, because a broker may hold millions of messages.
    """

    __slots__ = (
        "annotations",
        "body",
        "changes",
        "delivery_count",
        "enqueue_sequence_number",
        "enqueued_time_ms",
        "expires_at_ms",
        "header",
        "id",
        "lock_group",
        "lock_token",
        "locked_until_ms",
        "payload_id",
        "queue",
        "scheduled_enqueue_time_ms",
        "sequence_number",
        "session_id",
        "size",
        "state",
        "time_to_live_ms",
    )

    def __init__(
        self,
        body: bytes,
        *,
        annotations: bytes = b"",
        header: int = 0,
        time_to_live_ms: int | None = None,
        scheduled_enqueue_time_ms: int = 0,
    ) -> None:
        # --- set by the protocol -------------------------------------------------------------
        self.body: bytes | None = body
        """The bare message, from the properties section on, as it was sent. None while only the store
        has it."""
        self.annotations = annotations
        """The annotations of the sender, encoded; empty for most messages. A map of message
        annotations, followed by a map of delivery annotations if there are any."""
        self.header = header
        """Header fields that are only passed on, packed by the protocol. The core does not read them."""
        self.time_to_live_ms = time_to_live_ms
        self.scheduled_enqueue_time_ms = scheduled_enqueue_time_ms
        """When it becomes active; 0 for at once. Kept after activation, because SDKs show it."""
        self.size = len(body) + len(annotations)
        """The bytes that limits count: those that the sender sent. The protocol sets it if it knows
        better. Additions of the broker, such as a message id, do not count."""
        # --- set by the queue ----------------------------------------------------------------
        self.id = 0
        """Key in the store, unique in the broker. It stays the same when the message changes queues."""
        self.payload_id = 0
        """Key of the stored body. Equals `id`, unless copies on several subscriptions share the body."""
        self.queue: QueueAddress | None = None
        """The queue that it is in, or None. `queues.queue.queue_of` returns it as a `Queue`."""
        self.sequence_number = 0
        self.enqueue_sequence_number = 0
        """The number in the entity that accepted it first. Differs from `sequence_number` after a
        forward and on subscriptions."""
        self.enqueued_time_ms = 0
        self.expires_at_ms = 0
        """0 for never."""
        self.delivery_count = 0
        """Number of failed deliveries; 0 in the first delivery."""
        self.state = MessageState.ACTIVE
        self.session_id: str | None = None
        self.changes: MessageChanges | None = None
        """What settlements and rule actions have changed. None for most messages."""
        # --- while locked --------------------------------------------------------------------
        self.lock_token: bytes | None = None
        """16 bytes in RFC 4122 order. None while it is not locked."""
        self.lock_group: object = None
        """The messages that were locked with it: a `queues.locks.LockGroup`. None while it is not locked."""
        self.locked_until_ms = 0

    @property
    def waits(self) -> bool:
        """Whether it is in a queue, active and not locked."""
        return self.queue is not None and self.lock_token is None and self.state == 0

    def copy(self) -> Message:
        """Returns a copy that is not locked and in no queue."""
        copy = Message.__new__(Message)
        copy.body = self.body
        copy.annotations = self.annotations
        copy.header = self.header
        copy.time_to_live_ms = self.time_to_live_ms
        copy.scheduled_enqueue_time_ms = self.scheduled_enqueue_time_ms
        copy.size = self.size
        copy.id = self.id
        copy.payload_id = self.payload_id
        copy.queue = None
        copy.sequence_number = self.sequence_number
        copy.enqueue_sequence_number = self.enqueue_sequence_number
        copy.enqueued_time_ms = self.enqueued_time_ms
        copy.expires_at_ms = self.expires_at_ms
        copy.delivery_count = self.delivery_count
        copy.state = self.state
        copy.session_id = self.session_id
        copy.changes = self.changes
        copy.lock_token = copy.lock_group = None
        copy.locked_until_ms = 0
        return copy

    def copy_with(self, content: tuple[int, MessageChanges | None, bytes | None, bytes]) -> Message:
        """Returns a copy with the values that it had in `Contents`."""
        copy = self.copy()
        copy.delivery_count, copy.changes, copy.body, copy.annotations = content
        return copy


class Contents(NamedTuple):
    """The fields of messages that can change in a queue, besides state and lock: one column for each. Settlements
    change the first two. The others change when the body leaves memory. See `Message.copy_with`."""

    delivery_counts: list[int]
    changes: list[MessageChanges | None]
    bodies: list[bytes | None]
    annotations: list[bytes]


def contents_of(messages: Sequence[Message]) -> Contents:
    """Returns the contents of messages."""
    if len(messages) == 1:
        only = messages[0]
        return Contents([only.delivery_count], [only.changes], [only.body], [only.annotations])
    return Contents(
        [message.delivery_count for message in messages],
        [message.changes for message in messages],
        [message.body for message in messages],
        [message.annotations for message in messages],
    )


class MessageReader(Protocol):
    """Reads fields from encoded messages. Pure. The application injects it.

    Raises `errors.UndecodableMessage` if a body cannot be read.
    """

    def session_id(self, body: bytes) -> str | None:
        """Returns `group-id`, or None."""

    def session_ids(self, bodies: list[bytes | None]) -> list[str | None]:
        """Returns the session ids that can be read quickly. None means that `session_id` has to read it."""

    def message_id(self, body: bytes) -> str | None:
        """Returns the message id as text for every AMQP type, or None."""

    def heads(self, bodies: list[bytes | None]) -> list[bytes | None]:
        """Returns the first sections of bodies, from which ids and properties can be read."""

    def trace_parent(self, head: bytes) -> str | None:
        """Returns the `traceparent` in the application properties, or None if there is no valid one."""

    def partition_key(self, annotations: bytes) -> str | None:
        """Returns `x-opt-partition-key`, or None."""

    def via_partition_key(self, annotations: bytes) -> str | None:
        """Returns `x-opt-via-partition-key`, or None."""

    def system_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """Returns the `sys.*` properties of SQL filters, by the lower-case names of the .NET message."""

    def application_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """Returns the application properties, with the changes applied."""

    def encode_property(self, value: PropertyValue) -> bytes:
        """Returns a value that a rule action sets, encoded as `MessageChanges` holds it."""
