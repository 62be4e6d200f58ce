"""An entity of the namespace: its definition, its queues and its links.

It checks what is allowed (status, sizes, sessions). Its queues keep the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.effects import EntityView
from broker.core.contract.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
)
from broker.core.contract.records import EntityStored, MessagesUpdated
from broker.core.contract.transitions import TransitionKind
from broker.core.entities.stored_definitions import definition_to_json
from broker.core.messages.message_rows import rows_of
from broker.core.queues.arrival import activate, enqueue, store
from broker.core.queues.deadlines import Due
from broker.core.queues.duplicate_window import DuplicateWindow
from broker.core.queues.queue import DEAD_LETTERS, MAIN, TRANSFER_DEAD_LETTERS, Queue
from broker.core.queues.quota_usage import QuotaUsage
from config.model.definitions import (
    ENTITY_KINDS,
    UNLIMITED_MS,
    EntityStatus,
    SubscriptionDefinition,
    TopicDefinition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.receiver import Receiver
    from config.model.definitions import EntityDefinition

_KIBIBYTE = 1024
_MEBIBYTE = 1024 * 1024
_NO_SENDING = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
_NO_RECEIVING = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})


def cannot_send_to(path: str) -> NotAllowed:
    """Returns the error for a send to a subscription or a sub-queue."""
    return NotAllowed(f"Messages cannot be sent to '{path}': they only come out there.")


class Entity:
    """A queue. `Subscription` and `Topic` are derived from it."""

    __slots__ = (
        "_idle_at_ms",
        "_is_send_disabled",
        "_kept_since_ms",
        "accessed_time_ms",
        "azure_message_max_bytes",
        "context",
        "created_time_ms",
        "dead_letters",
        "definition",
        "duplicates",
        "id",
        "is_deleted",
        "is_plain",
        "main",
        "max_message_bytes",
        "max_size_bytes",
        "owner",
        "path",
        "senders",
        "transfer_dead_letters",
        "updated_time_ms",
        "usage",
    )

    def __init__(
        self,
        context: NamespaceContext,
        entity_id: int,
        path: str,
        definition: EntityDefinition,
        now_ms: int,
        usage: QuotaUsage | None = None,
    ) -> None:
        self.context = context
        self.id = entity_id
        self.path = path
        self.usage = usage or QuotaUsage()
        self.created_time_ms = self.updated_time_ms = now_ms
        self.accessed_time_ms = 0
        """When a client used it last. 0 if no client has."""
        self._kept_since_ms = now_ms
        """When its idle time began again last without an access: see `restart_idle_time`."""
        self.owner: Entity | None = None
        """The topic of a subscription. What is done with a subscription is done with its topic."""
        self.main, self.dead_letters, self.transfer_dead_letters = (
            Queue(context, entity_id, path + suffix, sub_queue, self.usage)
            for suffix, sub_queue in (
                ("", MAIN),
                ("/$DeadLetterQueue", DEAD_LETTERS),
                ("/$Transfer/$DeadLetterQueue", TRANSFER_DEAD_LETTERS),
            )
        )
        self.main.dead_letters = self.dead_letters
        self.senders: dict[Peer, None] = {}
        self.duplicates: DuplicateWindow | None = None
        self.is_deleted = False
        self._idle_at_ms = 0
        self.redefine(definition, now_ms)

    @property
    def kind(self) -> str:
        """`queue`, `topic` or `subscription`."""
        return ENTITY_KINDS[type(self.definition)]

    @property
    def queues(self) -> tuple[Queue, Queue, Queue]:
        """Returns its main queue and its sub-queues, in the order of their numbers in the store."""
        return self.main, self.dead_letters, self.transfer_dead_letters

    @property
    def receivers(self) -> list[Receiver]:
        """The receivers of all its queues."""
        return [receiver for queue in self.queues for receiver in queue.receivers]

    @property
    def receiver_count(self) -> int:
        """How many receivers its queues have."""
        return sum(len(queue.receivers) for queue in self.queues)

    @property
    def copies_per_message(self) -> int:
        """Returns how many copies a message that is sent here may become."""
        return 1

    @property
    def dependents(self) -> Sequence[Entity]:
        """The entities that are deleted with it."""
        return ()

    @property
    def is_partitioned(self) -> bool:
        """Whether it is partitioned. Message ids are unique only within a partition."""
        definition = self.definition
        return not isinstance(definition, SubscriptionDefinition) and definition.enable_partitioning

    @property
    def needs_only_session_ids(self) -> bool:
        """Whether `Admission` needs nothing else from a message than its size and its session id."""
        return self.duplicates is None

    @property
    def needs_session_ids(self) -> bool:
        """Whether the session id of a message must be read."""
        return self.main.delivery.requires_sessions

    def redefine(self, definition: EntityDefinition, now_ms: int) -> None:
        """Change the definition. The change applies at once, also to attached links."""
        self.definition = definition
        self._is_send_disabled = definition.status in _NO_SENDING
        self.updated_time_ms = now_ms
        limits = self.context.limits
        self.max_message_bytes = (
            limits.message_default_kilobytes * _KIBIBYTE + limits.message_default_allowance_bytes
        )
        azure = self.context.observations.azure
        self.azure_message_max_bytes = (
            azure.message_default_kilobytes * _KIBIBYTE + azure.message_default_allowance_bytes
        )
        """What Azure allows in this entity. Larger messages are observed for a report."""
        self.max_size_bytes = 0
        self.is_plain = True
        """Whether only the size of a message has to be checked."""
        self.main.default_time_to_live_ms = definition.default_time_to_live_ms
        if not isinstance(definition, SubscriptionDefinition):
            self.max_size_bytes = _MEBIBYTE * (
                definition.max_size_megabytes or limits.entity_size_default_megabytes
            )
            if definition.enable_partitioning:
                self.max_size_bytes *= limits.partition_count
            if definition.max_message_size_kilobytes is not None:
                self.max_message_bytes = definition.max_message_size_kilobytes * _KIBIBYTE
                self.azure_message_max_bytes = min(self.max_message_bytes, azure.message_max_bytes)
            self._detect_duplicates(
                definition.duplicate_window_ms if definition.requires_duplicate_detection else 0
            )
        for queue in self.queues:
            queue.keeps_locked_bodies = self.is_partitioned
        if not isinstance(definition, TopicDefinition):
            for queue in self.queues:
                queue.lock_duration_ms = definition.lock_duration_ms
            self.main.max_delivery_count = definition.max_delivery_count
            self.main.dead_letters_expired = definition.dead_lettering_on_expiration
            if definition.requires_session:
                self.is_plain = False
            self.main.require_sessions(required=definition.requires_session)
        self.schedule_idle_check(now_ms)

    def _detect_duplicates(self, window_ms: int) -> None:
        if not window_ms:
            if self.duplicates is not None:
                self.duplicates.close()
            self.duplicates = None
            return
        self.is_plain = False
        if self.duplicates is None:
            self.duplicates = DuplicateWindow(self.context, self.id, window_ms)
        self.duplicates.window_ms = window_ms

    # --- messages ---------------------------------------------------------------------------

    def begin_screening(self) -> None:
        """Forget what `screen` found out about messages that were not accepted afterwards."""

    def screen(self, message: Message) -> None:
        """Find out where a message goes. Raises `UndecodableMessage` if it cannot be read."""

    def accept(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Store new messages."""
        store(self.main, messages, now_ms, turn)
        if self.context.history is not None:
            self.context.history.accepted(self.main, messages, turn)

    def republish(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Take messages that are stored already and are in no queue now."""
        self.restart_idle_time(now_ms)
        enqueue(self.main, messages, now_ms)
        turn.records.append(MessagesUpdated(rows_of(messages)))

    def activate(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Activate scheduled messages of its queue, in the order of their numbers."""
        self.restart_idle_time(now_ms)
        numbers = [message.sequence_number for message in messages]
        activate(self.main, messages, now_ms, turn)
        if self.context.history is not None:
            kind = TransitionKind.ACTIVATED
            self.context.history.moved(kind, self.main, numbers, self.main, messages, turn)

    def attach_sender(self, peer: Peer) -> None:
        """A sender is attached."""
        self.senders[peer] = None

    def detach_sender(self, peer: Peer) -> None:
        """A sender is detached, if it was attached."""
        self.senders.pop(peer, None)

    def restore_times(self, created_time_ms: int, updated_time_ms: int) -> None:
        """Set the times from the store."""
        self.created_time_ms = created_time_ms
        self.updated_time_ms = updated_time_ms

    def mark_deleted(self) -> None:
        """The entity no longer exists. References to it may remain."""
        self.is_deleted = True

    def record_access(self, now_ms: int) -> None:
        """A client uses the entity."""
        self.accessed_time_ms = now_ms
        if self.owner is not None:
            self.owner.restart_idle_time(now_ms)

    # --- what is allowed --------------------------------------------------------------------

    def check_sending(self) -> None:
        """Raises if clients may not send here now."""
        if self.is_deleted:
            raise EntityNotFound(self.path)
        if self.context.room.refusal is not None:
            raise self.context.room.refusal
        if self._is_send_disabled:
            raise EntityDisabled(self.path)

    def check_is_sendable(self) -> None:
        """Raises `NotAllowed` if clients can never send to an entity of this kind."""

    def check_is_receivable(self) -> None:
        """Raises `NotAllowed` if clients can never receive from an entity of this kind."""

    def check_receiving(self) -> None:
        """Raises if clients may not receive here now."""
        if self.definition.status in _NO_RECEIVING:
            raise EntityDisabled(self.path)

    def has_room_for(self, size_bytes: int, largest: int) -> bool:
        """Returns whether there is room for messages that have this size together, and of which one is the largest."""
        if largest > self.max_message_bytes:
            return False
        return not self.max_size_bytes or (
            self.usage.size_bytes + size_bytes <= self.max_size_bytes
        )

    def size_error(self, size: int, already_bytes: int) -> BrokerError | None:
        """Returns the error for a message that is too large or exceeds the quota after so many
        bytes of other messages, or None."""
        if size > self.max_message_bytes:
            return MessageSizeExceeded(
                f"The received message (size:{size}) exceeds the limit "
                f"({self.max_message_bytes} bytes) currently allowed on the link."
            )
        size_bytes = self.usage.size_bytes + already_bytes
        if 0 < self.max_size_bytes < size_bytes + size:
            return QuotaExceeded(
                "The maximum entity size has been reached or exceeded for "
                f"{self.kind.capitalize()}: '{self.path}'. "
                f"Size of entity in bytes:{size_bytes}, "
                f"Max entity size in bytes:{self.max_size_bytes}."
            )
        return None

    # --- idleness ---------------------------------------------------------------------------

    @property
    def idle_limit_ms(self) -> int:
        """Returns how long it may be idle before it is deleted."""
        return UNLIMITED_MS if self._forwards else self.definition.auto_delete_on_idle_ms

    @property
    def _forwards(self) -> bool:
        """Whether it forwards its messages. To the service that is the same as a receiver."""
        definition = self.definition
        return not isinstance(definition, TopicDefinition) and definition.forward_to is not None

    @property
    def is_in_use(self) -> bool:
        """Whether it cannot be idle now: it has links or scheduled messages, it forwards, or one of its subscriptions
        is in use."""
        return bool(
            self.senders
            or self.receiver_count
            or self.main.scheduled_count
            or self._forwards
            or any(dependent.is_in_use for dependent in self.dependents)
        )

    def restart_idle_time(self, now_ms: int) -> None:
        """It is changed, or messages arrive that no client sends: its idle time begins again, and that of its topic.
        The service counts the same as use (documentation of AutoDeleteOnIdle). The deadline stays: the check sets a
        later one."""
        self._kept_since_ms = max(self._kept_since_ms, now_ms)
        if self.owner is not None:
            self.owner.restart_idle_time(now_ms)

    def schedule_idle_check(self, now_ms: int) -> None:
        """Set the deadline at which it may have been idle for too long."""
        deadlines = self.context.deadlines
        deadlines.discard(Due.IDLE_ENTITY, self._idle_at_ms, (self,))
        limit_ms = self.idle_limit_ms
        if limit_ms < UNLIMITED_MS and not self.is_deleted:
            since_ms = now_ms if self.is_in_use else self.idle_since_ms
            self._idle_at_ms = max(since_ms + limit_ms, now_ms + 1)
            deadlines.add(Due.IDLE_ENTITY, self._idle_at_ms, (self,))

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether it has been idle for too long."""
        return not self.is_in_use and self.idle_since_ms + self.idle_limit_ms <= now_ms

    @property
    def idle_since_ms(self) -> int:
        """Returns when it was used or changed last, or when it was created or restored."""
        return max(self.accessed_time_ms, self._kept_since_ms)

    # --- view and record ------------------------------------------------------------------

    def view(self) -> EntityView:
        """Returns the definition and the counts, for administration."""
        main = self.main
        return EntityView(
            self.path,
            self.definition,
            self.created_time_ms,
            self.updated_time_ms,
            self.accessed_time_ms,
            active_count=main.count - main.deferred_count - main.scheduled_count,
            dead_letter_count=self.dead_letters.count,
            scheduled_count=main.scheduled_count,
            transfer_dead_letter_count=self.transfer_dead_letters.count,
            deferred_count=main.deferred_count,
            locked_count=main.live_lock_count,
            size_bytes=sum(queue.size_bytes for queue in self.queues) + main.delivery.state_bytes,
        )

    def record(self, namespace: str) -> EntityStored:
        """Returns the record for the store."""
        return EntityStored(
            self.id,
            namespace,
            self.kind,
            self.path,
            definition_to_json(self.definition),
            self.created_time_ms,
            self.updated_time_ms,
        )
