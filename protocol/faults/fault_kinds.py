"""The operations that can fail, the kinds of faults, and which kinds each operation can have.

What a kind does to an operation is in the protocol of that operation. The table here is the only list of what is possible.
"""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """What a client does."""

    CONNECT = "connect"
    """It sends its first bytes. Its namespace is not known yet, so only rules of the default namespace act."""
    OPEN = "open"
    """It opens an AMQP connection in a namespace."""
    ATTACH = "attach"
    """It attaches a sender or a receiver to an entity."""
    SEND = "send"
    """It sends a message, or a batch of messages."""
    DELIVER = "deliver"
    """It gets a message on a receiver's link."""
    SETTLE = "settle"
    """It settles a message, on the link or by its lock token."""
    RENEW = "renew"
    """It renews the lock of a message or of a session."""
    MANAGEMENT = "management"
    """It sends any request to the `$management` node of an entity; renewals are among them."""
    PUT_TOKEN = "put_token"  # noqa: S105 -- the name of an operation
    """It puts a token."""
    ADMINISTRATION = "administration"
    """It sends a request to the administration API over HTTP."""


class FaultKind(StrEnum):
    """What happens to an operation."""

    REFUSE = "refuse"
    SERVER_BUSY = "server_busy"
    DELAY = "delay"
    NO_ANSWER = "no_answer"
    DETACH = "detach"
    DROP_CONNECTION = "drop_connection"
    LOSE_LOCK = "lose_lock"
    DELIVER_TWICE = "deliver_twice"
    EXPIRE_TOKEN = "expire_token"  # noqa: S105 -- the name of a fault
    CLOSE_SESSION = "close_session"


_K = FaultKind
_ANY = (_K.REFUSE, _K.SERVER_BUSY, _K.DELAY, _K.NO_ANSWER, _K.DROP_CONNECTION)

KINDS: dict[Operation, tuple[FaultKind, ...]] = {
    # Before the open frame, AMQP has no way to tell an error.
    Operation.CONNECT: (_K.DELAY, _K.NO_ANSWER, _K.DROP_CONNECTION),
    Operation.OPEN: _ANY,
    # A refused attach is a detach with an error already.
    Operation.ATTACH: (*_ANY, _K.EXPIRE_TOKEN),
    Operation.SEND: (*_ANY, _K.DETACH, _K.EXPIRE_TOKEN),
    # A delivery is not a request, so it cannot be refused.
    Operation.DELIVER: (
        _K.DELAY,
        _K.NO_ANSWER,
        _K.DETACH,
        _K.DROP_CONNECTION,
        _K.LOSE_LOCK,
        _K.DELIVER_TWICE,
        _K.EXPIRE_TOKEN,
        _K.CLOSE_SESSION,
    ),
    Operation.SETTLE: (*_ANY, _K.DETACH, _K.LOSE_LOCK, _K.EXPIRE_TOKEN, _K.CLOSE_SESSION),
    Operation.RENEW: (*_ANY, _K.DETACH, _K.LOSE_LOCK, _K.EXPIRE_TOKEN, _K.CLOSE_SESSION),
    Operation.MANAGEMENT: (*_ANY, _K.DETACH, _K.LOSE_LOCK, _K.EXPIRE_TOKEN, _K.CLOSE_SESSION),
    Operation.PUT_TOKEN: (*_ANY, _K.DETACH, _K.EXPIRE_TOKEN),
    Operation.ADMINISTRATION: (*_ANY, _K.EXPIRE_TOKEN),
}
"""The kinds that each operation can have."""

AFTER: dict[FaultKind, frozenset[Operation]] = {
    FaultKind.DROP_CONNECTION: frozenset(Operation) - {Operation.CONNECT, Operation.OPEN},
    FaultKind.NO_ANSWER: frozenset(Operation)
    - {Operation.CONNECT, Operation.OPEN, Operation.ATTACH, Operation.DELIVER},
}
"""The operations whose effect can be durable before the fault happens: where `when` can be `after`."""

FIELDS: dict[str, frozenset[Operation]] = {
    "entity": frozenset(Operation) - {Operation.CONNECT, Operation.OPEN, Operation.PUT_TOKEN},
    "sub_queue": frozenset(
        {
            Operation.ATTACH,
            Operation.DELIVER,
            Operation.SETTLE,
            Operation.RENEW,
            Operation.MANAGEMENT,
        }
    ),
    "management_operation": frozenset({Operation.MANAGEMENT}),
    "client": frozenset(Operation) - {Operation.CONNECT},
    "client.container_id": frozenset(Operation) - {Operation.CONNECT, Operation.ADMINISTRATION},
    "filter": frozenset({Operation.SEND, Operation.DELIVER, Operation.SETTLE}),
}
"""The fields of a rule that say which operations it is about, and the operations for which each is known."""

MANAGEMENT_PREFIX = "com.microsoft:"
MANAGEMENT_OPERATIONS = frozenset(
    {
        "add-rule",
        "batch-delete-messages",
        "cancel-scheduled-message",
        "enumerate-rules",
        "get-message-sessions",
        "get-session-state",
        "peek-message",
        "receive-by-sequence-number",
        "remove-rule",
        "renew-lock",
        "renew-session-lock",
        "schedule-message",
        "set-session-state",
        "update-disposition",
    }
)
"""The operations of `$management`, without prefix. A test compares them with those that the node has."""
