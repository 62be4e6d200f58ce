"""The message: what a queue holds, from arrival to settlement.

Owns the fields and their meaning; `queue.py` owns what happens to them.
The body is opaque bytes here; only the edge that injected a `MessageReader` can look inside.
"""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.message_changes import MessageChanges

PropertyValue = object
"""str, int, float, bool, bytes, UUID, datetime or None, as decoded by the edge."""


class MessageState(IntEnum):
    """As the SDKs show it. *Locked* is a lock on top of a state, not a state."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class QueueAddress(Protocol):
    """The queue of a message, as far as the store has to know it. `queues.queue.Queue` implements it."""

    entity_id: int
    sub_queue: int
    """0 the entity itself, 1 its dead-letter queue, 2 its transfer dead-letter queue."""


class Message:
    """One message in one queue. Built by the edge, completed by the queue that takes it.

    Mutable and slotted: a broker holds millions of these, and every one passes here twice.
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
        # --- as it arrived -------------------------------------------------------------------
        self.body: bytes | None = body
        """The bare message (properties section onward) as sent; None while it is only on disk."""
        self.annotations = annotations
        """The sender's own annotations, still encoded; empty for most messages. A map of message
        annotations, and after it one of delivery annotations if there are any."""
        self.header = header
        """Header fields that are only passed on, packed by the edge; never read here."""
        self.time_to_live_ms = time_to_live_ms
        self.scheduled_enqueue_time_ms = scheduled_enqueue_time_ms
        """When to become active; 0 for at once. Kept after activation: SDKs show it."""
        self.size = len(body) + len(annotations)
        """What limits count: the bytes the sender sent, which the edge sets where it knows them.
        Nothing that the broker adds, such as a message id, counts."""
        # --- given by the queue --------------------------------------------------------------
        self.id = 0
        """Key in the store, unique in the whole broker; moves with the message between queues."""
        self.payload_id = 0
        """Key of the stored body; equals `id` unless copies on several subscriptions share it."""
        self.queue: QueueAddress | None = None
        """The queue that it is in, or None. `queues.queue.queue_of` returns it as a `Queue`."""
        self.sequence_number = 0
        self.enqueue_sequence_number = 0
        """The number given where it was first accepted; differs after forward or fan-out."""
        self.enqueued_time_ms = 0
        self.expires_at_ms = 0
        """0 for never."""
        self.delivery_count = 0
        """Earlier unsuccessful deliveries: 0 when it is handed out for the first time."""
        self.state = MessageState.ACTIVE
        self.session_id: str | None = None
        self.changes: MessageChanges | None = None
        """What settlements and rule actions changed about it; None for most messages."""
        # --- while locked --------------------------------------------------------------------
        self.lock_token: bytes | None = None
        """16 bytes in RFC 4122 order; None while unlocked."""
        self.locked_until_ms = 0

    @property
    def waits(self) -> bool:
        """Whether it is there to be delivered: active, and nobody's."""
        return self.queue is not None and self.lock_token is None and self.state == 0

    def copy(self) -> Message:
        """The same message as another object: unlocked, and in no queue yet."""
        twin = Message.__new__(Message)
        twin.body = self.body
        twin.annotations = self.annotations
        twin.header = self.header
        twin.time_to_live_ms = self.time_to_live_ms
        twin.scheduled_enqueue_time_ms = self.scheduled_enqueue_time_ms
        twin.size = self.size
        twin.id = self.id
        twin.payload_id = self.payload_id
        twin.queue = None
        twin.sequence_number = self.sequence_number
        twin.enqueue_sequence_number = self.enqueue_sequence_number
        twin.enqueued_time_ms = self.enqueued_time_ms
        twin.expires_at_ms = self.expires_at_ms
        twin.delivery_count = self.delivery_count
        twin.state = self.state
        twin.session_id = self.session_id
        twin.changes = self.changes
        twin.lock_token = None
        twin.locked_until_ms = 0
        return twin

    def copy_with(self, content: tuple[int, MessageChanges | None, bytes | None, bytes]) -> Message:
        """A copy with what `content_of` said about it earlier."""
        twin = self.copy()
        twin.delivery_count, twin.changes, twin.body, twin.annotations = content
        return twin


content_of = attrgetter("delivery_count", "changes", "body", "annotations")
"""What can change about a message while it is in a queue, but for its state and its lock: settlements
change the first two, and leaving memory for the store the others. See `Message.copy_with`."""


class MessageReader(Protocol):
    """Reads out of an encoded body what the core sometimes needs. Pure; injected by the edge.

    A body that cannot be read raises `errors.UndecodableMessage`.
    """

    def session_id(self, body: bytes) -> str | None:
        """`group-id`, or None."""

    def message_id(self, body: bytes) -> str | None:
        """The message id as text, whatever its AMQP type, or None."""

    def partition_key(self, annotations: bytes) -> str | None:
        """`x-opt-partition-key`, or None."""

    def via_partition_key(self, annotations: bytes) -> str | None:
        """`x-opt-via-partition-key`, or None."""

    def system_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """What SQL filters call `sys.*`, by the names of the .NET message class, lower-cased."""

    def application_properties(self, message: Message) -> Mapping[str, PropertyValue]:
        """The sender's own properties, changes applied."""

    def encode_property(self, value: PropertyValue) -> bytes:
        """A value a rule action sets, in the form message changes holds it."""
