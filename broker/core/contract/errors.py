"""The errors that clients can get. Each class has one AMQP condition.

An operation raises an error before it has changed anything, and the error goes to the client as a value in
an effect. The protocols add the tracking id, the timestamp and the encoding.
"""

from __future__ import annotations

from typing import ClassVar, Self


class BrokerError(Exception):
    """The request of a client is refused."""

    condition: ClassVar[str] = "amqp:internal-error"
    status: ClassVar[int] = 500
    """The status code of answers from `$management` and the administration API."""

    def as_value(self) -> Self:
        """Returns the error without its traceback. The frames of a traceback refer to the turn, and the
        turn refers to the error: such a cycle would keep messages in memory until garbage collection."""
        self.__traceback__ = None
        self.__context__ = None
        return self


class AnswerFailed(BrokerError):
    """The broker has a bug, and could not give an answer. SDKs try again after this condition."""


class EntityNotFound(BrokerError):
    """The Java and JavaScript SDKs recognise a missing entity by this sentence."""

    condition = "amqp:not-found"
    status = 404

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"The messaging entity '{path}' could not be found.")


class EntityAlreadyExists(BrokerError):
    condition = "com.microsoft:entity-already-exists"
    status = 409


class NamespaceAlreadyExists(EntityAlreadyExists):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is a namespace '{name}' already.")


class SnapshotAlreadyExists(EntityAlreadyExists):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"The namespace '{namespace}' has a snapshot '{name}' already.")


class NamespaceNotFound(BrokerError):
    """The namespace of a client does not exist any more."""

    condition = "amqp:not-found"
    status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no namespace '{name}': it was deleted or never created.")


class SnapshotNotFound(BrokerError):
    condition = "amqp:not-found"
    status = 404

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"The namespace '{namespace}' has no snapshot '{name}'.")


class NamespaceRestored(BrokerError):
    """The state of the namespace was replaced by that of a snapshot. Clients attach again; SDKs do so by themselves
    after this condition."""

    condition = "amqp:link:detach-forced"
    status = 503

    def __init__(self, name: str) -> None:
        super().__init__(f"The namespace '{name}' was restored from a snapshot; try again at once.")


class EntityDisabled(BrokerError):
    condition = "com.microsoft:entity-disabled"
    status = 400

    def __init__(self, path: str) -> None:
        super().__init__(f"Messaging entity '{path}' is currently disabled.")


class MessageSizeExceeded(BrokerError):
    condition = "amqp:link:message-size-exceeded"
    status = 403


class QuotaExceeded(BrokerError):
    condition = "amqp:resource-limit-exceeded"
    status = 403


class NotAllowed(BrokerError):
    condition = "amqp:not-allowed"
    status = 400


class InvalidField(BrokerError):
    condition = "amqp:invalid-field"
    status = 400


class ArgumentError(BrokerError):
    condition = "com.microsoft:argument-error"
    status = 400


class ArgumentOutOfRange(BrokerError):
    condition = "com.microsoft:argument-out-of-range"
    status = 400


class NotImplementedHere(BrokerError):
    condition = "amqp:not-implemented"
    status = 501


class UndecodableMessage(BrokerError):
    condition = "amqp:decode-error"
    status = 400


class Unauthorized(BrokerError):
    condition = "amqp:unauthorized-access"
    status = 401


class ServerBusy(BrokerError):
    condition = "com.microsoft:server-busy"
    status = 503


class OperationTimeout(BrokerError):
    condition = "com.microsoft:timeout"
    status = 408


class IncompleteTransaction(BrokerError):
    """An operation of the transaction was not accepted, or its link was detached before."""

    condition = "amqp:illegal-state"
    status = 410

    def __init__(self) -> None:
        super().__init__(
            "A message or settlement that belongs to it could not be taken: the link it came on, "
            "or the lock it was about, had ended, or it was too large."
        )


class MessageLockLost(BrokerError):
    condition = "com.microsoft:message-lock-lost"
    status = 410

    def __init__(self) -> None:
        super().__init__(
            "The lock supplied is invalid. Either the lock expired, "
            "or the message has already been removed from the queue."
        )


class MessageNotFound(BrokerError):
    condition = "com.microsoft:message-not-found"
    status = 404


class SessionLockLost(BrokerError):
    condition = "com.microsoft:session-lock-lost"
    status = 410

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The session lock has expired on the MessageSession '{session_id}'. "
            "Accept a new MessageSession."
        )


class SessionCannotBeLocked(BrokerError):
    condition = "com.microsoft:session-cannot-be-locked"
    status = 410

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The requested session '{session_id}' cannot be accepted. "
            "It may be locked by another receiver."
        )


class PartitionMismatch(NotAllowed):
    """The .NET SDK turns its condition into InvalidOperationException, as documented."""

    def __init__(self) -> None:
        super().__init__(
            "All operations of a transaction on a partitioned entity must have the same partition "
            "key, and this one has another than those before it."
        )


class TransactionUnknown(BrokerError):
    condition = "amqp:transaction:unknown-id"
    status = 400

    def __init__(self) -> None:
        super().__init__(
            "The transaction is not known on this connection: it has ended or timed out, or "
            "another connection declared it."
        )


class TransactionRolledBack(BrokerError):
    condition = "amqp:transaction:rollback"
    status = 400
