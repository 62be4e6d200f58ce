"""Commands: the requests that the core carries out. Values without behaviour.

`Namespace.apply` carries them out. Commands that come with every message hold many messages or tokens.
Each command names its peer, and the answers go to that peer. `handle` and `request` identify what is
answered; the core returns them unchanged. `connection` identifies the connection that a command came
from, because a transaction is valid only on the connection that declared it. `origin` identifies the
receiver that sent a request about a session, because only the holder of a session may use it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from broker.core.contract.settlement_values import ReceiveMode, Settlement
    from config.model.definitions import EntityDefinition, RuleDefinition


class PrecompiledRule(Protocol):
    """A rule that was compiled before its command was applied, because compiling can take long.

    `routing.compiled_rule.CompiledRule` implements it. Commands only carry it.
    """

    @property
    def definition(self) -> RuleDefinition:
        """The rule from which it was compiled."""


class SessionRequest(NamedTuple):
    """The session that a receiver asks for."""

    session_id: str | None
    """None asks for the next available session."""
    timeout_ms: int = 65_000
    """How long to wait for the next available session."""


class RequestOrigin(NamedTuple):
    """The receiver for which a client sends a request about a session. It must hold the session."""

    connection: object = None
    link_name: str | None = None
    """None if the client does not say which of its receivers it is."""


# --- links -----------------------------------------------------------------------------------


class AttachSender(NamedTuple):
    """Attach a sender. Answered by `SenderAttached` or `AttachRefused`."""

    peer: Peer
    path: str
    via: str | None = None
    """Transfer destination: messages sent to `path` are transferred to this entity."""
    connection: object = None


class AttachReceiver(NamedTuple):
    """Attach a receiver. Answered by `ReceiverAttached`, perhaps after a wait for a session, or by
    `AttachRefused`."""

    peer: Peer
    path: str
    mode: ReceiveMode
    session: SessionRequest | None = None
    connection: object = None
    link_name: str | None = None


class Detach(NamedTuple):
    """The links have ended. Messages stay locked after a detach and after a normal close of the
    connection. If the connection was lost, the locks end and each counts as a failed delivery."""

    peers: Sequence[Peer]
    connection_lost: bool = False


class Credit(NamedTuple):
    """Grant credit to a receiver. With `drain`, credit that is not used is returned: answered by
    `Drained`. If `CreditNeeded` follows a delivery, the peer has to send this command again."""

    peer: Peer
    limit: int
    """How many messages the receiver takes in total since it attached."""
    drain: bool = False


class Send(NamedTuple):
    """Send independent messages. Each is answered by `SendAccepted` or `SendRefused`."""

    peer: Peer
    messages: Sequence[Message]
    handles: Sequence[object]
    """One for each message. None for a pre-settled transfer, which gets no answer."""
    transaction_id: bytes | None = None
    connection: object = None
    """Needed here too, because the link may be detached when the command is applied."""


class SendBatch(NamedTuple):
    """Send messages that are stored together or not at all. There is one answer."""

    peer: Peer
    messages: Sequence[Message]
    handle: object
    transaction_id: bytes | None = None
    size_bytes: int = 0
    """Size of the batch as it was sent; the client's limit concerns this size. 0 means the sum of
    the sizes of its messages."""
    connection: object = None
    """See `Send`."""


class Settle(NamedTuple):
    """Settle messages that are locked in the queue of the peer. Tokens are independent. Answered by
    `Settled`, and by `SettleRefused` for lost locks. In a transaction `SettlementHeld` comes first, and
    `Settled` when the transaction commits."""

    peer: Peer
    tokens: Sequence[bytes]
    handles: Sequence[object]
    """One for each token. None if the receiver expects no answer."""
    settlement: Settlement
    transaction_id: bytes | None = None
    connection: object = None
    """See `Send`."""


# --- requests: each is answered by one `Reply` with the same `request` --------------------------


class RenewLocks(NamedTuple):
    """Renew message locks. Reply: list of the new ends of the locks, in order. One lost lock refuses
    the whole request."""

    peer: Peer
    request: object
    path: str
    tokens: Sequence[bytes]


class SettleByToken(NamedTuple):
    """Settle messages that were locked through any link. Reply: None. All or nothing."""

    peer: Peer
    request: object
    path: str
    tokens: Sequence[bytes]
    settlement: Settlement
    session_id: str | None = None
    transaction_id: bytes | None = None
    connection: object = None
    link_name: str | None = None
    """See `RequestOrigin`."""


class Peek(NamedTuple):
    """Read messages from a sequence number on, without a lock. Reply: list of messages."""

    peer: Peer
    request: object
    path: str
    from_sequence_number: int
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which is not used
    session_id: str | None = None


class ReceiveDeferred(NamedTuple):
    """Receive deferred messages by sequence number. Reply: list of (message, lock token or None). All
    or nothing."""

    peer: Peer
    request: object
    path: str
    sequence_numbers: Sequence[int]
    mode: ReceiveMode
    session_id: str | None = None
    origin: RequestOrigin = RequestOrigin()


class Schedule(NamedTuple):
    """Send messages that become active at their own scheduled time. Reply: list of sequence numbers.
    All or nothing."""

    peer: Peer
    request: object
    path: str
    messages: Sequence[Message]
    transaction_id: bytes | None = None
    connection: object = None


class CancelScheduled(NamedTuple):
    """Delete scheduled messages. Reply: None. All or nothing."""

    peer: Peer
    request: object
    path: str
    sequence_numbers: Sequence[int]
    transaction_id: bytes | None = None
    connection: object = None


class RenewSessionLock(NamedTuple):
    """Renew the lock of a session. Reply: the new end of the lock."""

    peer: Peer
    request: object
    path: str
    session_id: str
    origin: RequestOrigin = RequestOrigin()


class SetSessionState(NamedTuple):
    """Set the state of a session; None clears it. Reply: None."""

    peer: Peer
    request: object
    path: str
    session_id: str
    state: bytes | None
    origin: RequestOrigin = RequestOrigin()


class GetSessionState(NamedTuple):
    """Get the state of a session. Reply: bytes, or None if the session has no state."""

    peer: Peer
    request: object
    path: str
    session_id: str
    origin: RequestOrigin = RequestOrigin()


class ListSessions(NamedTuple):
    """List the ids of sessions that have messages or a state. Reply: list of session ids."""

    peer: Peer
    request: object
    path: str
    skip: int
    top: int
    updated_since_ms: int | None = None
    """If given, list only sessions whose state was set after this time."""
    after_session_id: str | None = None


class DeleteMessages(NamedTuple):
    """Delete the oldest unlocked messages that were enqueued before a time. Reply: their number."""

    peer: Peer
    request: object
    path: str
    count: int  # type: ignore[assignment]  # see `Peek`
    before_ms: int
    session_id: str | None = None


class ReplyAfterEarlier(NamedTuple):
    """Do nothing. Reply: None. The reply comes when all earlier commands of the peer are durable and answered,
    except requests that wait for bodies."""

    peer: Peer
    request: object


# --- entities ----------------------------------------------------------------------------------


class CreateEntity(NamedTuple):
    """Create a queue, topic or subscription. Reply: `EntityView`."""

    peer: Peer
    request: object
    path: str
    definition: EntityDefinition
    compiled: Sequence[PrecompiledRule | BrokerError] = ()
    """All rules of a new subscription, or their errors, if they were compiled before."""


class UpdateEntity(NamedTuple):
    """Change an entity. Reply: `EntityView`. Attached links see the change at once.

    The rules of a subscription are not changed: the core ignores `definition.rules` here, and
    `AddRule` and `RemoveRule` change rules.

    The command is applied to the entity as it is in the turn, not as its sender read it before. It
    never writes back what another client changed in between."""

    peer: Peer
    request: object
    path: str
    definition: EntityDefinition
    keeps: frozenset[str] = frozenset()
    """Fields of the definition that the request does not mention. They keep their values."""
    refusals: Mapping[str, BrokerError] = MappingProxyType({})
    """Fields that the request may repeat but not change, each with the error for a change."""


class DeleteEntity(NamedTuple):
    """Delete an entity and detach its links. Reply: None."""

    peer: Peer
    request: object
    path: str


class GetEntity(NamedTuple):
    """Get an entity. Reply: `EntityView`."""

    peer: Peer
    request: object
    path: str


class ListEntities(NamedTuple):
    """List entities of a kind. Reply: list of `EntityView`, ordered by name."""

    peer: Peer
    request: object
    kind: str
    topic: str | None = None
    """If given, list the subscriptions of this topic."""
    skip: int = 0
    top: int = 100


class AddRule(NamedTuple):
    """Add a rule to a subscription. Reply: the stored `RuleDefinition`."""

    peer: Peer
    request: object
    path: str
    rule: RuleDefinition
    replace: bool = False
    """Replace the rule of this name, which must exist. Otherwise it must not exist."""
    compiled: Sequence[PrecompiledRule | BrokerError] = ()
    """The rule, or its error, if it was compiled before."""


class RemoveRule(NamedTuple):
    """Remove a rule from a subscription. Reply: None."""

    peer: Peer
    request: object
    path: str
    name: str


class GetRule(NamedTuple):
    """Get a rule. Reply: `RuleDefinition`."""

    peer: Peer
    request: object
    path: str
    name: str


class ListRules(NamedTuple):
    """List the rules of a subscription. Reply: list of `RuleDefinition`, ordered by name."""

    peer: Peer
    request: object
    path: str
    skip: int = 0
    top: int = 100


# --- the control API ---------------------------------------------------------------------------


class ControlRequest(NamedTuple):
    """Carry out an operation of `control_operations.py`, which names the value of the reply."""

    peer: Peer
    request: object
    operation: object

    @property
    def path(self) -> str | None:
        """The entity or sub-queue whose messages it concerns, or None."""
        return getattr(self.operation, "path", None)


# --- transactions ------------------------------------------------------------------------------


class Declare(NamedTuple):
    """Declare a transaction. Reply: the transaction id."""

    peer: Peer
    request: object
    transaction_id: bytes | None = None
    """An id that the client already has. None: the core creates one."""
    connection: object = None


class Discharge(NamedTuple):
    """Commit a transaction, or roll it back if `fail`. Reply: None."""

    peer: Peer
    request: object
    transaction_id: bytes
    fail: bool
    connection: object = None


class SetRollbackOnly(NamedTuple):
    """A send or settlement of this transaction did not become a command. The transaction can only be
    rolled back, because a commit would leave that operation out. No reply. Ignored if this connection
    has no such transaction."""

    transaction_id: bytes
    connection: object
    error: BrokerError


# --- from the server itself --------------------------------------------------------------------


class Tick(NamedTuple):
    """Time has passed. Carry out everything that is due, and a part of the remaining work."""


class PayloadsLoaded(NamedTuple):
    """The bodies and annotations that `PayloadsNeeded` requested, by payload id."""

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
    | ReplyAfterEarlier
    | CreateEntity
    | UpdateEntity
    | DeleteEntity
    | GetEntity
    | ListEntities
    | AddRule
    | RemoveRule
    | GetRule
    | ListRules
    | ControlRequest
    | Declare
    | Discharge
    | SetRollbackOnly
    | Tick
    | PayloadsLoaded
)
