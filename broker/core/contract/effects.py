"""Effects: what is sent to clients. Values without behaviour.

Effects leave only after what they depend on is durable. Most wait for the records of their turn, and leave in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Contents, Message
    from broker.core.contract.settlement_values import Settlement
    from config.model.definitions import EntityDefinition


_LOCK_TOKEN = attrgetter("lock_token")


class Peer(Protocol):
    """The receiver of effects: an AMQP link, the link of a management request, or an HTTP request.

    The core does not look inside. A command names its peer, and the effects of the command go there. A
    peer with a `connection` gets its effects in one order with the other peers of that connection, except
    deliveries: they need not wait for what the other peers wait for.
    """

    def receive(self, effect: Effect) -> None:
        """Take an effect. Called in order, and only after what the effect depends on is durable.

        A peer with a `connection` may get it earlier, while that is being written. So it builds its frames and writes
        none: the broker writes the output of a connection when it may leave.
        """


class SenderAttached(NamedTuple):
    """The peer may send."""

    to: Peer
    max_message_size_bytes: int


class ReceiverAttached(NamedTuple):
    """The peer may receive. Has the session, if the peer asked for one."""

    to: Peer
    session_id: str | None = None
    session_locked_until_ms: int = 0


class AttachRefused(NamedTuple):
    """The attach is refused."""

    to: Peer
    error: BrokerError


class Detached(NamedTuple):
    """The broker detaches a link: its entity was deleted or disabled, or its session lock is lost."""

    to: Peer
    error: BrokerError


class SendAccepted(NamedTuple):
    """The messages are stored."""

    to: Peer
    handles: Sequence[object]


class SendRefused(NamedTuple):
    """The message, or batch, is not stored."""

    to: Peer
    handle: object
    error: BrokerError


class Deliver(NamedTuple):
    """Messages for a receiver, in order. A commit may hold this effect back for longer than the locks
    last, and the receiver must see the messages as they were locked: read them with
    `messages_as_delivered`."""

    to: Peer
    messages: Sequence[Message]
    tokens: Sequence[bytes | None]
    """The lock tokens of this delivery; a later lock of the message has another token. All are None in
    receive-and-delete."""
    locked_until_ms: int = 0
    """The end of all locks; 0 in receive-and-delete."""
    contents: Contents | None = None
    """What each message contained. None if the messages are copies or have left the queue, as in
    receive-and-delete."""


def messages_as_delivered(effect: Deliver) -> Sequence[Message]:
    """Returns the messages of a delivery as they were when they were locked.

    A message does not change while the same lock holds, so most messages are returned as they are. If the
    lock has ended, a copy with the earlier content is returned.
    """
    messages, tokens = effect.messages, effect.tokens
    if effect.contents is None or list(map(_LOCK_TOKEN, messages)) == tokens:
        return messages
    contents = zip(*effect.contents, strict=True)
    return [
        message if message.lock_token == token else message.copy_with(content)
        for message, token, content in zip(messages, tokens, contents, strict=True)
    ]


class Drained(NamedTuple):
    """All available messages have been delivered. The remaining credit is returned."""

    to: Peer


class CreditNeeded(NamedTuple):
    """A receiver got a full burst and has more credit. Its link sends `Credit` again after the burst
    is written."""

    to: Peer


class Settled(NamedTuple):
    """The messages are settled. With `transaction_id`, the transaction has committed."""

    to: Peer
    handles: Sequence[object]
    settlement: Settlement
    transaction_id: bytes | None = None


class SettlementHeld(NamedTuple):
    """The settlements are held until their transaction commits, and the messages stay locked. After a
    commit `Settled` follows. After a rollback nothing follows."""

    to: Peer
    handles: Sequence[object]
    settlement: Settlement
    transaction_id: bytes


class SettleRefused(NamedTuple):
    """The messages are not settled."""

    to: Peer
    handles: Sequence[object]
    error: BrokerError


class TransactionRefused(NamedTuple):
    """A pre-settled send or settlement cannot be part of its transaction. It gets no other answer."""

    to: Peer
    error: BrokerError


class Reply(NamedTuple):
    """The answer to a request: a value, or the error."""

    to: Peer
    request: object
    value: object = None
    error: BrokerError | None = None


class PayloadsNeeded(NamedTuple):
    """Bodies that must be read from the store before their messages can be delivered or shown. The
    server answers with `PayloadsLoaded`. This effect goes to no peer."""

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
    | CreditNeeded
    | Settled
    | SettlementHeld
    | SettleRefused
    | TransactionRefused
    | Reply
    | PayloadsNeeded
)


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity with its counts, for administration."""

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
    """Only for a topic: the rules of its subscriptions without a correlation filter."""
    correlation_filter_count: int = 0
