"""What must be told, and to whom. Facts without behaviour, plural wherever traffic is.

Effects leave in order, and never before the records they rest on are durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.commands import Peer, Settlement
    from broker.core.errors import BrokerError
    from broker.core.message import Message
    from config.entities import EntityDefinition


@dataclass(frozen=True, slots=True)
class SenderAttached:
    """The peer may send."""

    to: Peer
    max_message_size_bytes: int


@dataclass(frozen=True, slots=True)
class ReceiverAttached:
    """The peer may receive; with its session, if it asked for one."""

    to: Peer
    session_id: str | None = None
    session_locked_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The attach is refused."""

    to: Peer
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Detached:
    """The broker ends a link: entity deleted or disabled, session lock lost."""

    to: Peer
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Accepted:
    """These sends are stored."""

    to: Peer
    handles: Sequence[object]


@dataclass(frozen=True, slots=True)
class SendRefused:
    """This send is not stored and never will be."""

    to: Peer
    handle: object
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Deliver:
    """Messages for a receiver, in order. Tokens are those given now: a later lock of the same
    message has another. Each token is None in receive-and-delete."""

    to: Peer
    messages: Sequence[Message]
    tokens: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Drained:
    """What was available has been delivered; the rest of the credit is given back."""

    to: Peer


@dataclass(frozen=True, slots=True)
class Settled:
    """These settlements took effect."""

    to: Peer
    handles: Sequence[object]
    settlement: Settlement


@dataclass(frozen=True, slots=True)
class SettleRefused:
    """These settlements changed nothing."""

    to: Peer
    handles: Sequence[object]
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request: a value, or why not."""

    to: Peer
    request: object
    value: object = None
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class PayloadsNeeded:
    """Bodies to read back from the store before these messages can be delivered or shown. The
    server answers with `PayloadsLoaded`; this effect goes to no peer."""

    payload_ids: Sequence[int]


Effect = (
    SenderAttached
    | ReceiverAttached
    | Refused
    | Detached
    | Accepted
    | SendRefused
    | Deliver
    | Drained
    | Settled
    | SettleRefused
    | Reply
    | PayloadsNeeded
)


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity as administration shows it."""

    path: str
    definition: EntityDefinition
    created_time_ms: int
    updated_time_ms: int
    accessed_time_ms: int
    active_count: int = 0
    dead_letter_count: int = 0
    scheduled_count: int = 0
    transfer_count: int = 0
    transfer_dead_letter_count: int = 0
    deferred_count: int = 0
    locked_count: int = 0
    size_bytes: int = 0
    subscription_count: int = 0
