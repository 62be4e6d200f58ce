"""An entity of the namespace: its definition, its queues, who is linked to it.

Owns what may be done here at all (status, sizes, sessions); what then happens is the queue's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.definitions import KINDS, definition_to_json
from broker.core.effects import EntityView
from broker.core.errors import BrokerError, EntityDisabled, MessageSizeExceeded, QuotaExceeded
from broker.core.queue import DEAD_LETTERS, MAIN, TRANSFER_DEAD_LETTERS, Queue
from broker.core.records import EntityStored
from config.entities import (
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)

if TYPE_CHECKING:
    from broker.core.commands import Peer
    from broker.core.environment import Environment
    from broker.core.message import Message
    from broker.core.outlet import Receiver
    from config.entities import EntityDefinition

_KIBIBYTE = 1024
_MEBIBYTE = 1024 * 1024
_NO_SENDING = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
_NO_RECEIVING = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})


class Entity:
    """A queue, topic or subscription."""

    __slots__ = (
        "accessed_time_ms",
        "created_time_ms",
        "dead_letters",
        "definition",
        "environment",
        "id",
        "main",
        "max_message_bytes",
        "max_size_bytes",
        "path",
        "receivers",
        "senders",
        "transfer_dead_letters",
        "updated_time_ms",
    )

    def __init__(
        self,
        environment: Environment,
        entity_id: int,
        path: str,
        definition: EntityDefinition,
        now_ms: int,
    ) -> None:
        self.environment = environment
        self.id = entity_id
        self.path = path
        self.created_time_ms = now_ms
        self.updated_time_ms = now_ms
        self.accessed_time_ms = now_ms
        self.main = Queue(environment, entity_id, path, MAIN)
        self.dead_letters = Queue(environment, entity_id, f"{path}/$DeadLetterQueue", DEAD_LETTERS)
        self.transfer_dead_letters = Queue(
            environment, entity_id, f"{path}/$Transfer/$DeadLetterQueue", TRANSFER_DEAD_LETTERS
        )
        self.main.dead_letters = self.dead_letters
        self.senders: dict[Peer, None] = {}
        self.receivers: dict[Receiver, None] = {}
        self.redefine(definition, now_ms)

    @property
    def kind(self) -> str:
        """`queue`, `topic` or `subscription`."""
        return KINDS[type(self.definition)]

    @property
    def queues(self) -> tuple[Queue, Queue, Queue]:
        """Its own queue and its sub-queues, in the order of their numbers in the store."""
        return self.main, self.dead_letters, self.transfer_dead_letters

    @property
    def size_bytes(self) -> int:
        """All it holds."""
        return sum(queue.size_bytes for queue in self.queues)

    def redefine(self, definition: EntityDefinition, now_ms: int) -> None:
        """Take on a definition; what hangs on it in the queues changes at once."""
        self.definition = definition
        self.updated_time_ms = now_ms
        limits = self.environment.limits
        self.max_message_bytes = limits.message_max_bytes
        self.max_size_bytes = 0
        self.main.default_time_to_live_ms = definition.default_time_to_live_ms
        if isinstance(definition, QueueDefinition | TopicDefinition):
            self.max_size_bytes = definition.max_size_megabytes * _MEBIBYTE
            if definition.max_message_size_kilobytes is not None:
                self.max_message_bytes = definition.max_message_size_kilobytes * _KIBIBYTE
        if isinstance(definition, QueueDefinition | SubscriptionDefinition):
            for queue in self.queues:
                queue.lock_duration_ms = definition.lock_duration_ms
            self.main.max_delivery_count = definition.max_delivery_count
            self.main.dead_letters_expired = definition.dead_lettering_on_expiration

    # --- what is allowed --------------------------------------------------------------------

    def refuses_sending(self) -> BrokerError | None:
        """Why nobody may send here now."""
        return EntityDisabled(self.path) if self.definition.status in _NO_SENDING else None

    def refuses_receiving(self) -> BrokerError | None:
        """Why nobody may receive here now."""
        return EntityDisabled(self.path) if self.definition.status in _NO_RECEIVING else None

    def refuses_size(self, message: Message, already_bytes: int) -> BrokerError | None:
        """Why this message, after so many bytes before it, does not fit."""
        if message.size > self.max_message_bytes:
            return MessageSizeExceeded(
                f"The received message (size:{message.size}) exceeds the limit "
                f"({self.max_message_bytes} bytes) allowed on the link."
            )
        size_bytes = self.size_bytes
        if 0 < self.max_size_bytes < size_bytes + already_bytes + message.size:
            return QuotaExceeded(
                "The maximum entity size has been reached or exceeded for "
                f"{self.kind.capitalize()}: '{self.path}'. "
                f"Size of entity in bytes:{size_bytes}, "
                f"Max entity size in bytes:{self.max_size_bytes}."
            )
        return None

    # --- how it is shown and remembered -----------------------------------------------------

    def view(self) -> EntityView:
        """As administration shows it."""
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
            locked_count=len(main.locks),
            size_bytes=self.size_bytes,
        )

    def record(self, namespace: str) -> EntityStored:
        """As the store remembers it."""
        return EntityStored(
            self.id,
            namespace,
            self.kind,
            self.path,
            definition_to_json(self.definition),
            self.created_time_ms,
            self.updated_time_ms,
        )
