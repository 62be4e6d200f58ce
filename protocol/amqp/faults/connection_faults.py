"""The fault rules as one connection sees them, and the faults that concern the whole connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from protocol.faults.fault_kinds import Operation
from protocol.faults.fault_rule import OperationOfClient, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from protocol.amqp.authorization import ConnectionAuthorization
    from protocol.faults.fault_registry import FaultRegistry, NamespaceFaults
    from protocol.faults.fault_rule import FaultAction, FaultRule


log = structlog.get_logger("peeklock.amqp")


class ConnectionFaults:
    """Finds the rules for the operations of one client."""

    __slots__ = (
        "_authorization",
        "container_id",
        "drop",
        "expire_tokens",
        "is_ended",
        "registry",
    )

    def __init__(
        self,
        registry: FaultRegistry,
        authorization: ConnectionAuthorization,
        drop: Callable[[], None],
        expire_tokens: Callable[[], None],
    ) -> None:
        self.registry = registry
        self._authorization = authorization
        self.container_id = ""
        """Known from the client's open on."""
        self.drop = drop
        """Closes the socket after what was written before, without an AMQP close."""
        self.expire_tokens = expire_tokens
        """Drops the client's tokens and detaches its links."""
        self.is_ended = False
        """The connection is closed or lost. What was delayed is not done."""

    def connection_lost(self) -> None:
        """Breaks reference cycles, so that the memory of the connection is freed at once."""
        self.drop = self.expire_tokens = _nothing

    @property
    def of_namespace(self) -> NamespaceFaults | None:
        """The rules of the client's namespace, or None if it has never had one."""
        return self.registry.of(self._authorization.expected_namespace)

    def rules(
        self, operations: Collection[Operation], path: str = "", management_operation: str = ""
    ) -> list[FaultRule]:
        """Returns the rules that an operation fits, apart from the message."""
        faults = self.of_namespace
        if faults is None or not faults.rules:
            return []
        return faults.about(
            OperationOfClient(
                operations,
                path,
                self.container_id,
                self._authorization.key_names,
                management_operation,
            )
        )

    def decide(self, operation: Operation, path: str = "") -> FaultAction | None:
        """Counts an operation that has no message, and returns what is to happen to it."""
        return decide(self.rules((operation,), path), lambda _: True)

    def decide_connect(self) -> FaultAction | None:
        """Counts a connection whose first bytes arrive. Its namespace is not known, so the default one is asked."""
        faults = self.registry.of(self._authorization.default_namespace)
        if faults is None:
            return None
        return decide(faults.about(OperationOfClient((Operation.CONNECT,))), lambda _: True)

    def decide_token(self, token: str, audience: str) -> FaultAction | None:
        """Counts a put-token. A token that is not valid is not counted: it is refused anyway."""
        found = self._authorization.namespace_and_key_of(token, audience)
        if found is None:
            return None
        namespace, key_name = found
        faults = self.registry.of(namespace)
        if faults is None:
            return None
        names = () if key_name is None else (key_name,)
        one = OperationOfClient((Operation.PUT_TOKEN,), "", self.container_id, names)
        return decide(faults.about(one), lambda _: True)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls after a delay, unless the connection has ended."""

        def run() -> None:
            if self.is_ended:
                return
            try:
                call()
            except Exception:
                # A bug of the broker. The client would wait for its answer for ever.
                log.exception("connection.broken")
                self.drop()

        self.registry.call_later(seconds, run)


def _nothing() -> None:
    pass
