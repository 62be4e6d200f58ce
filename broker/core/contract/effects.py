"""What must be told, and to whom. Facts without behaviour, plural wherever traffic is.

Effects leave in order, and never before the records they rest on are durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from broker.core.contract.message_changes import MessageChanges
    from broker.core.contract.settlement_values import Settlement
    from config.model.definitions import EntityDefinition


_LOCK_TOKEN = attrgetter("lock_token")

Content = tuple[int, "MessageChanges | None", bytes | None, bytes]
"""What can change about a message in a queue: see `content_of`."""


class Peer(Protocol):
    """The receiver of effects: an AMQP link, the link of a management request, or an HTTP request.

    The core does not look inside. A command names its peer, and the effects of the command go there. A
    peer with a `connection` gets its effects in one order with the other peers of that connection.
    """

    def receive(self, effect: Effect) -> None:
        """Take an effect. Called in order, and only after the records of the turn are durable."""


class SenderAttached(NamedTuple):
    """The peer may send."""

    to: Peer
    max_message_size_bytes: int


class ReceiverAttached(NamedTuple):
    """The peer may receive; with its session, if it asked for one."""

    to: Peer
    session_id: str | None = None
    session_locked_until_ms: int = 0


class AttachRefused(NamedTuple):
    """The attach is refused."""

    to: Peer
    error: BrokerError


class Detached(NamedTuple):
    """The broker ends a link: entity deleted or disabled, session lock lost."""

    to: Peer
    error: BrokerError


class SendAccepted(NamedTuple):
    """These sends are stored."""

    to: Peer
    handles: Sequence[object]


class SendRefused(NamedTuple):
    """This send is not stored and never will be."""

    to: Peer
    handle: object
    error: BrokerError


class Deliver(NamedTuple):
    """Messages for a receiver, in order, as they are when they are locked. A commit may hold this
    effect back for longer than the locks last; what the receiver sees is what was true here. Take
    the messages from `messages_as_delivered`."""

    to: Peer
    messages: Sequence[Message]
    tokens: Sequence[bytes | None]
    """Those given now: a later lock of the same message has another. Each is None in
    receive-and-delete."""
    locked_until_ms: int = 0
    """The same for all of them; 0 in receive-and-delete."""
    contents: Sequence[Content] = ()
    """One a message; empty where the messages are copies already, or are nobody's any more, as in
    receive-and-delete."""


def messages_as_delivered(effect: Deliver) -> Sequence[Message]:
    """The messages of a delivery as they were when they were locked.

    Nothing about a message changes while the same lock holds, so most are simply those of the
    effect. Where the lock has ended meanwhile, a copy shows what the message was like.
    """
    messages, tokens = effect.messages, effect.tokens
    if not effect.contents or list(map(_LOCK_TOKEN, messages)) == tokens:
        return messages
    return [
        message if message.lock_token == token else message.copy_with(content)
        for message, token, content in zip(messages, tokens, effect.contents, strict=True)
    ]


class Drained(NamedTuple):
    """What was available has been delivered; the rest of the credit is given back."""

    to: Peer


class DrainPending(NamedTuple):
    """A draining receiver got as much as leaves at once: it asks again, once that is written."""

    to: Peer


class Settled(NamedTuple):
    """These settlements took effect, on their own or with a transaction."""

    to: Peer
    handles: Sequence[object]
    settlement: Settlement
    transaction_id: bytes | None = None


class SettlementHeld(NamedTuple):
    """These settlements wait for their transaction, and the messages stay locked. If it commits,
    `Settled` follows; if it is rolled back, nothing does, and all is as before."""

    to: Peer
    handles: Sequence[object]
    settlement: Settlement
    transaction_id: bytes


class SettleRefused(NamedTuple):
    """These settlements changed nothing."""

    to: Peer
    handles: Sequence[object]
    error: BrokerError


class TransactionRefused(NamedTuple):
    """What the peer did under a transaction cannot be part of it, and the peer wanted no answer."""

    to: Peer
    error: BrokerError


class Reply(NamedTuple):
    """The answer to a request: a value, or why not."""

    to: Peer
    request: object
    value: object = None
    error: BrokerError | None = None


class PayloadsNeeded(NamedTuple):
    """Bodies to read back from the store before these messages can be delivered or shown. The
    server answers with `PayloadsLoaded`; this effect goes to no peer."""

    payload_ids: Sequence[int]


Effect = (
    SenderAttached
    | ReceiverAttached
    | AttachRefused
    | Detached
    | SendAccepted
    | SendRefused
    | Deliver
    | Drained
    | DrainPending
    | Settled
    | SettlementHeld
    | SettleRefused
    | TransactionRefused
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
    transfer_dead_letter_count: int = 0
    deferred_count: int = 0
    locked_count: int = 0
    size_bytes: int = 0
    subscription_count: int = 0
    sql_filter_count: int = 0
    """Of a topic: rules of its subscriptions whose filter is not a correlation filter."""
    correlation_filter_count: int = 0
