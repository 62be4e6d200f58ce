"""What fault rules do to requests: to a `$management` node, and put-token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.core.contract.commands import ControlRequest
from broker.core.contract.control_operations import ExpireLocks
from protocol.faults.conditions import ExpiredToken
from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_rule import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.faults.fault_rule import FaultAction, FaultRule

_ALSO = {
    "renew-lock": Operation.RENEW,
    "renew-session-lock": Operation.RENEW,
    "update-disposition": Operation.SETTLE,
}
"""What a management request is, besides a management request."""


class FaultyRequest(Protocol):
    """A request that waits for its answer."""

    instead_of_answer: Callable[[], None] | None

    @property
    def is_ended(self) -> bool:
        """Whether the link of the request has ended."""

    def drop(self) -> None:
        """Forgets the request. It gets no answer."""

    def end_link(self, error: BrokerError) -> None:
        """Detaches the link of the request."""


class Requester(Protocol):
    """The peer of the commands of a management node."""

    path: str

    def receive(self, effect: Effect) -> None: ...


def carry_out(
    action: FaultAction,
    request: FaultyRequest,
    faults: ConnectionFaults,
    handle: Callable[[], None],
    refuse: Callable[[BrokerError], None],
) -> None:
    """Does what a rule says to a request. `handle` executes it, and `refuse` answers it with an error."""
    match action.kind:
        case FaultKind.REFUSE | FaultKind.SERVER_BUSY:
            refuse(action.error())
        case FaultKind.EXPIRE_TOKEN:
            refuse(ExpiredToken())
            faults.expire_tokens()
        case FaultKind.DELAY:
            faults.later(action.seconds, lambda: None if request.is_ended else handle())
        case FaultKind.DETACH:
            request.drop()
            request.end_link(action.error())
        case FaultKind.NO_ANSWER | FaultKind.DROP_CONNECTION:
            then = faults.drop if action.kind is FaultKind.DROP_CONNECTION else _nothing
            if action.is_after:
                request.instead_of_answer = then
                handle()
            else:
                request.drop()
                then()
        case _:
            handle()


def decide_management(
    faults: ConnectionFaults,
    node: Requester,
    operation: str,
    tokens: Sequence[bytes],
    session_id: str | None,
) -> FaultAction | None:
    """Counts a management request, whose operation is given without prefix. Returns what is to happen to it."""
    operations = [Operation.MANAGEMENT]
    if operation in _ALSO:
        operations.append(_ALSO[operation])

    def fits(rule: FaultRule) -> bool:
        if rule.action.kind is FaultKind.LOSE_LOCK and not tokens:
            return False
        if rule.action.kind is FaultKind.CLOSE_SESSION and session_id is None:
            return False
        return rule.matches is None or rule.fits_delivery(tokens)

    return decide(faults.rules(operations, node.path, operation), fits)


def end_locks(
    action: FaultAction,
    submit: Callable[[Command], None],
    node: Requester,
    tokens: Sequence[bytes],
    session_id: str | None,
) -> None:
    """Ends the locks of a request before it is executed, if a rule says so."""
    if action.kind is FaultKind.LOSE_LOCK:
        submit(ControlRequest(node, None, ExpireLocks(node.path, None, None, tokens)))
    elif action.kind is FaultKind.CLOSE_SESSION:
        submit(ControlRequest(node, None, ExpireLocks(node.path, None, session_id)))


def _nothing() -> None:
    pass
