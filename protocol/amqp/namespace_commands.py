"""The way of a connection's commands into a namespace of the core.

A connection enters a namespace with its first command, because the host name or a token may select the namespace
until then. The Java SDK declares a transaction before it puts a token: such a declare is kept, and submitted before the
first command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.commands import Declare, Detach, SetRollbackOnly

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from config.model.limits import Limits
    from protocol.amqp.authorization import ConnectionAuthorization


class NamespaceCommands:
    """Submits the commands of one connection."""

    def __init__(
        self,
        enter: Callable[[str], Callable[[Command], None]],
        authorization: ConnectionAuthorization,
        limits: Limits,
    ) -> None:
        self._enter = enter
        self._authorization = authorization
        self._limits = limits
        self._run: Callable[[Command], None] | None = None
        """Submits to the namespace. None until there is a command for it."""
        self._declares: list[Declare] = []
        """Declares that were answered and are submitted before the first command."""

    @property
    def has_entered(self) -> bool:
        """Whether the core may know links of this connection."""
        return self._run is not None

    def submit(self, command: Command) -> None:
        """Submits a command, after the declares that were kept."""
        if self._run is None:
            if isinstance(command, Detach):
                # The core does not know these peers: their declares are still here.
                self._declares = [one for one in self._declares if one.peer not in command.peers]
                return
            if isinstance(command, SetRollbackOnly):
                # The transaction was only answered. From now on it is unknown.
                failed = command.transaction_id
                self._declares = [one for one in self._declares if one.transaction_id != failed]
                return
            self._run = self._enter(self._authorization.fix_namespace())
            for earlier in self._declares:
                self._run(earlier)
            self._declares.clear()
        self._run(command)

    def submit_later(self, declare: Declare) -> bool:
        """Keeps a declare until the first command if the client has no token yet that is required, or no
        namespace is selected. Returns False if the declare was not kept and is to be submitted now."""
        has_token = self._authorization.has_any
        if self._run is not None or (has_token and self._authorization.namespace is not None):
            return False
        limits = self._limits
        most = (
            limits.transactions_per_connection_max
            if has_token
            else limits.transactions_without_token_max
        )
        if len(self._declares) >= most:
            return False
        self._declares.append(declare)
        return True

    def discard(self) -> None:
        """Drops all further commands, because the core does not know this connection any more."""
        self._run = _discard


def _discard(command: Command) -> None:
    del command
