"""The error conditions with which a fault can refuse: all that Service Bus uses, each with its status and sentence.

SDKs choose their exception by the condition; some of them also look for words in the sentence.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.core.contract.errors import BrokerError, ServerBusy, Unauthorized


class Condition(NamedTuple):
    """A condition as it is reported."""

    status: int
    """In answers of `$management`, `$cbs` and the administration API."""
    sentence: str


SERVER_BUSY = ServerBusy.condition
DETACH_FORCED = "amqp:link:detach-forced"

CONDITIONS: dict[str, Condition] = {
    "amqp:connection:forced": Condition(503, "The connection was closed by the service."),
    "amqp:connection:framing-error": Condition(400, "A frame could not be read."),
    "amqp:connection:redirect": Condition(503, "The connection is to be made elsewhere."),
    "amqp:decode-error": Condition(400, "The message could not be decoded."),
    "amqp:frame-size-too-small": Condition(400, "The frame size is too small."),
    "amqp:illegal-state": Condition(410, "The operation is not allowed in this state."),
    "amqp:internal-error": Condition(
        500, "The service was unable to process the request; please retry the operation."
    ),
    "amqp:invalid-field": Condition(400, "A field has an invalid value."),
    DETACH_FORCED: Condition(
        503, "The link is force detached by the broker. Detach origin: Publisher."
    ),
    "amqp:link:message-size-exceeded": Condition(
        403, "The received message exceeds the limit currently allowed on the link."
    ),
    "amqp:link:redirect": Condition(503, "The link is to be attached elsewhere."),
    "amqp:link:stolen": Condition(409, "The link was attached again elsewhere."),
    "amqp:link:transfer-limit-exceeded": Condition(403, "More was sent than there was credit for."),
    "amqp:not-allowed": Condition(400, "The operation is not allowed."),
    # Java and JavaScript recognise a missing entity by this sentence.
    "amqp:not-found": Condition(404, "The messaging entity 'fault' could not be found."),
    "amqp:not-implemented": Condition(501, "The operation is not implemented."),
    "amqp:precondition-failed": Condition(412, "A precondition is not met."),
    "amqp:resource-deleted": Condition(404, "The entity was deleted."),
    "amqp:resource-limit-exceeded": Condition(403, "The maximum entity size has been reached."),
    "amqp:resource-locked": Condition(409, "The entity is locked by another operation."),
    "amqp:session:errant-link": Condition(400, "A transfer arrived on a link that has ended."),
    "amqp:session:handle-in-use": Condition(400, "The handle is in use already."),
    "amqp:session:unattached-handle": Condition(400, "No link is attached to the handle."),
    "amqp:session:window-violation": Condition(400, "The session window was exceeded."),
    "amqp:transaction:rollback": Condition(400, "The transaction was rolled back."),
    "amqp:transaction:timeout": Condition(408, "The transaction has timed out."),
    "amqp:transaction:unknown-id": Condition(400, "The transaction is not known."),
    "amqp:unauthorized-access": Condition(401, "Unauthorized access."),
    "com.microsoft:argument-error": Condition(400, "An argument is not valid."),
    "com.microsoft:argument-out-of-range": Condition(400, "An argument is out of range."),
    "com.microsoft:auth-failed": Condition(401, "The authorization has failed."),
    "com.microsoft:container-close": Condition(503, "The container is closing."),
    "com.microsoft:entity-already-exists": Condition(409, "The entity exists already."),
    "com.microsoft:entity-disabled": Condition(400, "The messaging entity is currently disabled."),
    "com.microsoft:message-lock-lost": Condition(
        410,
        "The lock supplied is invalid. Either the lock expired, or the message has already been "
        "removed from the queue.",
    ),
    "com.microsoft:message-not-found": Condition(404, "The message could not be found."),
    "com.microsoft:no-matching-subscription": Condition(500, "No subscription matches."),
    "com.microsoft:operation-cancelled": Condition(503, "The operation was cancelled."),
    "com.microsoft:partition-not-owned": Condition(503, "The partition has moved."),
    "com.microsoft:precondition-failed": Condition(412, "A precondition is not met."),
    "com.microsoft:publisher-revoked": Condition(401, "The publisher was revoked."),
    SERVER_BUSY: Condition(
        503,
        "The request was terminated because the entity is being throttled. Error code : 50009. "
        "Please wait 2 seconds and try again.",
    ),
    "com.microsoft:session-cannot-be-locked": Condition(
        410, "The requested session cannot be accepted. It may be locked by another receiver."
    ),
    "com.microsoft:session-lock-lost": Condition(
        410, "The session lock has expired on the MessageSession. Accept a new MessageSession."
    ),
    "com.microsoft:session-not-found": Condition(404, "The session could not be found."),
    "com.microsoft:store-lock-lost": Condition(410, "The store has lost its lock."),
    "com.microsoft:timeout": Condition(408, "The operation did not complete in time."),
}


class InjectedFault(BrokerError):
    """A refusal by a fault rule. Its condition and status are those that the rule names."""

    def __init__(self, condition: str, sentence: str | None, status: int | None = None) -> None:
        known = CONDITIONS[condition]
        super().__init__(known.sentence if sentence is None else sentence)
        self.condition = condition  # type: ignore[misc]  # that of the class is for other errors
        self.status = known.status if status is None else status  # type: ignore[misc]


class ExpiredToken(Unauthorized):
    """The answer of the service to a client whose token has expired."""

    def __init__(self) -> None:
        super().__init__("ExpiredToken: The token is expired, and no other was put in its place.")
