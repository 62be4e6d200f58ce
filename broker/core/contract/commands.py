"""What may be asked of the core. Facts without behaviour, plural wherever traffic is.

`Namespace.apply` is the one place that acts on them. A `Peer` is whoever asked: the core only
carries it, and addresses the effects of the command to it. `handle` and `request` are the peer's
own marks, given back untouched in the answer.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from broker.core.routing.compiled_rule import CompiledRule
    from config.model.definitions import EntityDefinition, RuleDefinition


class Peer(Protocol):
    """Where effects go: an AMQP link, a management request's link, an HTTP request.

    A peer with a `connection` gets its effects in one order with the others of that connection."""

    def receive(self, effect: Effect) -> None:
        """Called once what the effect promises is durable, in order."""


class ReceiveMode(Enum):
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class SettlementKind(Enum):
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"
    """Give back unharmed: unlocked, and no failed delivery counted."""


class Settlement(NamedTuple):
    """What to do with a locked message."""

    kind: SettlementKind
    properties: Mapping[str, bytes | None] | None = None
    """Application properties to modify, values encoded."""
    reason: str | None = None
    description: str | None = None


COMPLETE = Settlement(SettlementKind.COMPLETE)
ABANDON = Settlement(SettlementKind.ABANDON)
DEFER = Settlement(SettlementKind.DEFER)
DEAD_LETTER = Settlement(SettlementKind.DEAD_LETTER)
RELEASE = Settlement(SettlementKind.RELEASE)


class SessionRequest(NamedTuple):
    """Which session a receiver wants."""

    session_id: str | None
    """None: the next available one."""
    timeout_ms: int = 65_000
    """How long to wait for the next available one."""


# --- links -----------------------------------------------------------------------------------


class AttachSender(NamedTuple):
    """Answered by `SenderAttached` or `Refused`."""

    peer: Peer
    path: str
    via: str | None = None
    """Transfer destination: messages sent to `path` go on to this entity."""
    connection: object = None
    """Where it comes from: a transaction is good on the connection that declared it."""


class AttachReceiver(NamedTuple):
    """Answered by `ReceiverAttached`, perhaps after waiting for a session, or `Refused`."""

    peer: Peer
    path: str
    mode: ReceiveMode
    session: SessionRequest | None = None
    connection: object = None
    """Where it comes from: a transaction is good on the connection that declared it."""


class Detach(NamedTuple):
    """Links are gone. Detached, or closed with their connection, they leave their message locks
    standing; lost with a connection that broke they give them up, each a failed delivery."""

    peers: Sequence[Peer]
    connection_lost: bool = False


class Credit(NamedTuple):
    """How many messages the receiver takes in all, counted from attach; answered by `Drained`
    when `drain` asks to use up or give back what is left, or by `DrainGoesOn` to be asked again."""

    peer: Peer
    limit: int
    drain: bool = False


class Send(NamedTuple):
    """Independent messages, each with its own answer: `Accepted` or `SendRefused`."""

    peer: Peer
    messages: Sequence[Message]
    handles: Sequence[object]
    """One a message; None for a pre-settled transfer that gets no answer."""
    transaction_id: bytes | None = None
    connection: object = None
    """Where it comes from, for when the link is gone by now."""


class SendBatch(NamedTuple):
    """Messages that are stored together or not at all, with one answer."""

    peer: Peer
    messages: Sequence[Message]
    handle: object
    transaction_id: bytes | None = None
    size_bytes: int = 0
    """As it was sent, which is what a client's limit is about; 0 for the sum of its messages."""
    connection: object = None
    """Where it comes from, for when the link is gone by now."""


class Settle(NamedTuple):
    """Settle locks taken through the peer's queue; tokens are independent. Answered by `Settled`
    and, for those whose lock is lost, `SettleRefused`. In a transaction `SettlementHeld` comes
    first, and `Settled` when it commits."""

    peer: Peer
    tokens: Sequence[bytes]
    handles: Sequence[object]
    """One a token; None where the receiver wants no answer."""
    settlement: Settlement
    transaction_id: bytes | None = None
    connection: object = None
    """Where it comes from, for when the link is gone by now."""


# --- requests: each answered by one `Reply` carrying the same request mark ---------------------


class RenewLocks(NamedTuple):
    """Reply: list of new locked-until times, in order. One lost lock refuses all."""

    peer: Peer
    request: object
    path: str
    tokens: Sequence[bytes]


class SettleByToken(NamedTuple):
    """Settle whichever link a lock was given to. Reply: None. All or nothing."""

    peer: Peer
    request: object
    path: str
    tokens: Sequence[bytes]
    settlement: Settlement
    session_id: str | None = None
    transaction_id: bytes | None = None
    connection: object = None


class Peek(NamedTuple):
    """Reply: list of messages from a sequence number on; nothing is locked or changed."""

    peer: Peer
    request: object
    path: str
    from_sequence_number: int
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls
    session_id: str | None = None


class ReceiveDeferred(NamedTuple):
    """Reply: list of (message, lock token or None). All or nothing."""

    peer: Peer
    request: object
    path: str
    sequence_numbers: Sequence[int]
    mode: ReceiveMode
    session_id: str | None = None


class Schedule(NamedTuple):
    """Reply: list of sequence numbers. Messages carry their own time. All or nothing."""

    peer: Peer
    request: object
    path: str
    messages: Sequence[Message]
    transaction_id: bytes | None = None
    connection: object = None


class CancelScheduled(NamedTuple):
    """Reply: None. All or nothing."""

    peer: Peer
    request: object
    path: str
    sequence_numbers: Sequence[int]
    transaction_id: bytes | None = None
    connection: object = None


class RenewSessionLock(NamedTuple):
    """Reply: new locked-until time."""

    peer: Peer
    request: object
    path: str
    session_id: str
    holder: object | None = None
    """The connection that asks, where known: only the session's holder may renew."""


class SetSessionState(NamedTuple):
    """Reply: None. None clears."""

    peer: Peer
    request: object
    path: str
    session_id: str
    state: bytes | None


class GetSessionState(NamedTuple):
    """Reply: bytes, or None where there is no state."""

    peer: Peer
    request: object
    path: str
    session_id: str


class ListSessions(NamedTuple):
    """Reply: list of session ids. `updated_since_ms` None: with messages or state; else those
    whose state was set after that time."""

    peer: Peer
    request: object
    path: str
    skip: int
    top: int
    updated_since_ms: int | None = None
    after_session_id: str | None = None


class DeleteMessages(NamedTuple):
    """Delete the oldest unlocked messages enqueued before a time. Reply: how many."""

    peer: Peer
    request: object
    path: str
    count: int  # type: ignore[assignment]  # see `Peek`
    before_ms: int
    session_id: str | None = None


# --- entities ----------------------------------------------------------------------------------


class CreateEntity(NamedTuple):
    """Reply: `EntityView`."""

    peer: Peer
    request: object
    path: str
    definition: EntityDefinition
    compiled: Sequence[CompiledRule | BrokerError] = ()
    """The rules of a subscription, all of them, if they have been compiled already."""


class UpdateEntity(NamedTuple):
    """Reply: `EntityView`. Takes effect for attached clients at once. A subscription keeps its
    rules whatever the definition says: they change through `AddRule` and `RemoveRule`.

    The command is applied to the entity as it is in the turn, not as its sender once read it: what
    another client changed in between is never written back."""

    peer: Peer
    request: object
    path: str
    definition: EntityDefinition
    keeps: frozenset[str] = frozenset()
    """Fields of the definition that the request says nothing about: they stay as they are."""
    refusals: Mapping[str, BrokerError] = MappingProxyType({})
    """Fields that the sender may repeat but not change, with the refusal that a change gets."""


class DeleteEntity(NamedTuple):
    """Reply: None. Its links are detached."""

    peer: Peer
    request: object
    path: str


class GetEntity(NamedTuple):
    """Reply: `EntityView`, definition and counts."""

    peer: Peer
    request: object
    path: str


class ListEntities(NamedTuple):
    """Reply: list of `EntityView` in name order. `topic` lists a topic's subscriptions."""

    peer: Peer
    request: object
    kind: str
    topic: str | None = None
    skip: int = 0
    top: int = 100


class AddRule(NamedTuple):
    """Reply: the `RuleDefinition` as it is now. With `replace` it takes the place of the rule of its name, which must exist."""

    peer: Peer
    request: object
    path: str
    rule: RuleDefinition
    replace: bool = False
    compiled: Sequence[CompiledRule | BrokerError] = ()
    """The rule, if it has been compiled already, or why it cannot be."""


class RemoveRule(NamedTuple):
    """Reply: None."""

    peer: Peer
    request: object
    path: str
    name: str


class GetRule(NamedTuple):
    """Reply: `RuleDefinition`."""

    peer: Peer
    request: object
    path: str
    name: str


class ListRules(NamedTuple):
    """Reply: list of `RuleDefinition`."""

    peer: Peer
    request: object
    path: str
    skip: int = 0
    top: int = 100


# --- transactions ------------------------------------------------------------------------------


class Declare(NamedTuple):
    """Reply: the transaction id."""

    peer: Peer
    request: object
    transaction_id: bytes | None = None
    """One that the client has been told already; None: one is made."""
    connection: object = None
    """Where it comes from: a transaction is good on the connection that declared it."""


class Discharge(NamedTuple):
    """Reply: None once all of it is applied, or all of it dropped when `fail`."""

    peer: Peer
    request: object
    transaction_id: bytes
    fail: bool
    connection: object = None


class DoomTransaction(NamedTuple):
    """Something was sent or settled under a transaction that could not be taken: it must not be
    committed without that. No reply; nothing happens if this connection has declared no such one."""

    transaction_id: bytes
    connection: object
    error: BrokerError


# --- from the server itself --------------------------------------------------------------------


class Tick(NamedTuple):
    """Time has passed: act on every deadline that is due."""


class PayloadsLoaded(NamedTuple):
    """Bodies that `PayloadsNeeded` asked for, by payload id."""

    payloads: Mapping[int, tuple[bytes, bytes]]


Command = (
    AttachSender
    | AttachReceiver
    | Detach
    | Credit
    | Send
    | SendBatch
    | Settle
    | RenewLocks
    | SettleByToken
    | Peek
    | ReceiveDeferred
    | Schedule
    | CancelScheduled
    | RenewSessionLock
    | SetSessionState
    | GetSessionState
    | ListSessions
    | DeleteMessages
    | CreateEntity
    | UpdateEntity
    | DeleteEntity
    | GetEntity
    | ListEntities
    | AddRule
    | RemoveRule
    | GetRule
    | ListRules
    | Declare
    | Discharge
    | DoomTransaction
    | Tick
    | PayloadsLoaded
)
