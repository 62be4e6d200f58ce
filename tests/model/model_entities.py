"""The records of the naive model: entities, messages, locks and receivers, as plain records.

What happens to them is in `model_queues.py`. A message is one `ModelMessage` with one entity, so it is in
exactly one place by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from config.model.definitions import EntityStatus, TopicDefinition
from tests.model.run_entities import fields_of

if TYPE_CHECKING:
    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message
    from broker.core.contract.settlement_values import ReceiveMode
    from config.model.definitions import EntityDefinition

MAIN, DEAD, TRANSFER_DEAD = 0, 1, 2
ACTIVE, DEFERRED, SCHEDULED = 0, 1, 2
NO_SENDING = (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED)
NO_RECEIVING = (EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED)


class Refusal(Exception):
    """Refused, with the name of the error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@dataclass(eq=False)
class ModelEntity:
    """An entity."""

    path: str
    definition: EntityDefinition
    last_number: list[int] = field(default_factory=lambda: [0, 0, 0])
    highest_number: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Of all that a message ever had."""
    seen: dict[str, int] = field(default_factory=dict)
    """Duplicate detection: message id, and until when."""
    states: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Session states and when they were set."""
    names: list[str] = field(default_factory=list)
    """Session ids as they were first written."""

    @property
    def is_topic(self) -> bool:
        return isinstance(self.definition, TopicDefinition)

    def has_sessions(self, sub: int) -> bool:
        return sub == MAIN and getattr(self.definition, "requires_session", False)

    def __repr__(self) -> str:
        return self.path


MESSAGE_LOCK_IN_SESSION_UNTIL_MS = 253_402_300_799_999
"""What a message of a session says: the last millisecond of the year 9999."""


@dataclass(eq=False)
class ModelLock:
    token: bytes | None
    """None until the broker has told it."""
    until_ms: int
    """Of a lock under a session: what its receiver was told; the session's own end counts."""
    by: ModelReceiver | None
    in_session: bool = False


@dataclass(eq=False)
class ModelMessage:
    """A message, or one copy of it."""

    mark: str
    session_id: str | None
    message_id: str | None
    label: str | None
    size: int
    live_ms: int | None
    scheduled_for_ms: int
    entity: ModelEntity
    sub: int = MAIN
    number: int = 0
    first_number: int = 0
    state: int = ACTIVE
    count: int = 0
    enqueued_ms: int = 0
    expires_ms: int = 0
    lock: ModelLock | None = None
    reason: str | None = None
    source: str | None = None
    hops: int = 0
    properties: dict[str, bytes | None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.mark} #{self.number} of {self.entity}/{self.sub}>"


@dataclass(eq=False)
class ModelReceiver:
    """A receiver."""

    peer: Peer
    entity: ModelEntity
    sub: int
    mode: ReceiveMode
    attached: bool = True
    limit: int = 0
    delivered: int = 0
    draining: bool = False
    full: bool = False
    """It got a burst, and gets no more before it asks again."""
    waits_until_ms: int = 0
    """Waiting for any session until then; 0 if it does not."""
    session_id: str | None = None
    session_until_ms: int = 0

    @property
    def room(self) -> int:
        return 0 if self.full else max(0, self.limit - self.delivered)

    @property
    def drains_later(self) -> bool:
        """It wants all there is, and is to ask again for what did not leave at once."""
        return self.draining and self.full and self.limit > self.delivered


def same(one: str | None, other: str | None) -> bool:
    """Whether two session ids name one session. All here are ASCII."""
    return (one or "").lower() == (other or "").lower() and (one is None) == (other is None)


def model_message_from(message: Message, entity: ModelEntity) -> ModelMessage:
    """The naive form of a message as it was sent."""
    mark, session_id, message_id, label = fields_of(message.body or b"")
    return ModelMessage(
        mark,
        session_id,
        message_id,
        label,
        message.size,
        message.time_to_live_ms,
        message.scheduled_enqueue_time_ms,
        entity,
    )
