"""What fault rules do to the beginning of a connection: to its first bytes, its open and its attaches.

`connection_faults.py` finds the rules. Each connection has one of these from its start, because it must be known
whether the open came before the first rule was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from protocol.addresses import NodeKind, parse
from protocol.faults.conditions import ExpiredToken
from protocol.faults.fault_kinds import FaultKind, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.errors import BrokerError
    from protocol.addresses import Address
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.interface import EngineLink
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.faults.fault_rule import FaultAction

HELD_INPUT_MAX_BYTES = 1024 * 1024
"""How much a client may send while a fault lets it wait for the answer to its open."""


class FaultyConnection(Protocol):
    """The connection of a client."""

    def receive_data(self, data: bytes) -> bool: ...
    def close(self, error: BrokerError) -> None: ...
    def attach(self, link: EngineLink, attach: Attach) -> None: ...
    def refuse_attach(self, link: EngineLink, attach: Attach, error: BrokerError) -> None: ...


class OpeningFaults:
    """The faults of one connection that concern no attached link."""

    __slots__ = (
        "_connection",
        "_engine",
        "_faults",
        "_held",
        "_is_new",
        "_is_open_counted",
        "_submit",
        "_touch",
    )

    def __init__(
        self,
        faults: ConnectionFaults,
        connection: FaultyConnection,
        engine: object,
        submit: Callable[[Command], None],
        touch: Callable[[], None],
    ) -> None:
        self._faults = faults
        self._connection = connection
        self._engine = engine
        self._submit = submit
        self._touch = touch
        self._is_new = True
        """No bytes have arrived."""
        self._is_open_counted = False
        """Fault rules have been asked about the open, or nobody had made one."""
        self._held: list[bytes] | None = None
        """Bytes of a client that a fault lets wait. Its output waits, too. None: nothing waits."""

    def connection_lost(self) -> None:
        """Breaks reference cycles, so that the memory of the connection is freed at once."""
        del self._connection

    # --- the first bytes and the open ----------------------------------------------------------

    def holds_input(self, data: bytes) -> bool:
        """Keeps bytes of a client that a fault lets wait. Returns False if nothing waits."""
        if self._is_new:
            self._is_new = False
            if self._faults.registry.is_used:
                self._act(self._faults.decide_connect())
        if self._held is None:
            return False
        self._held.append(data)
        if sum(map(len, self._held)) > HELD_INPUT_MAX_BYTES:
            self._faults.drop()
        return True

    @property
    def holds_output(self) -> bool:
        """Whether the client has to wait for output."""
        return self._held is not None

    def count_open(self, *, is_known: bool) -> None:
        """Lets fault rules act on the open, once, as soon as the namespace of the client is known: by its host name,
        by its token, or by its first link."""
        if self._is_open_counted or not is_known:
            return
        self._is_open_counted = True
        if self._faults.registry.is_used:
            self._act(self._faults.decide(Operation.OPEN))

    def _act(self, action: FaultAction | None) -> None:
        """Does to the connection what a fault rule says."""
        if action is None:
            return
        if action.kind in (FaultKind.REFUSE, FaultKind.SERVER_BUSY):
            self._connection.close(action.error())
            return
        self._held = []
        if action.kind is FaultKind.DELAY:
            self._faults.later(action.seconds, self._continue)
        elif action.kind is FaultKind.DROP_CONNECTION:
            self._faults.drop()

    def _continue(self) -> None:
        """Continues after a delay."""
        data = b"".join(self._held or ())
        self._held = None
        if data:
            self._connection.receive_data(data)
        self._touch()

    # --- attaches --------------------------------------------------------------------------------

    def takes_attach(self, link: EngineLink, attach: Attach) -> bool:
        """Does to an attach what fault rules say. Returns False if no rule concerns it."""
        if self._is_open_counted and not self._faults.registry.is_used:
            return False
        node = _node_of(attach)
        if node is None or node.kind is NodeKind.CBS:
            return False
        self.count_open(is_known=True)
        if node.kind is not NodeKind.ENTITY:
            return False
        action = self._faults.decide(Operation.ATTACH, node.path)
        if action is None:
            return False
        self._act_on_attach(action, link, attach)
        self._touch()
        return True

    def _act_on_attach(self, action: FaultAction, link: EngineLink, attach: Attach) -> None:
        connection = self._connection
        match action.kind:
            case FaultKind.REFUSE | FaultKind.SERVER_BUSY:
                connection.refuse_attach(link, attach, action.error())
            case FaultKind.EXPIRE_TOKEN:
                connection.refuse_attach(link, attach, ExpiredToken())
                self._faults.expire_tokens()
            case FaultKind.DELAY:
                self._faults.later(action.seconds, lambda: connection.attach(link, attach))
            case FaultKind.DROP_CONNECTION if action.is_after:
                from protocol.amqp.faults.after_answers import FaultPeer, after_answers

                connection.attach(link, attach)
                after_answers(self._submit, FaultPeer(self._engine), self._faults.drop)
            case FaultKind.DROP_CONNECTION:
                self._faults.drop()


def _node_of(attach: Attach) -> Address | None:
    """Returns the node that a link names, or None for the coordinator and for a link without address."""
    text = attach.node_address
    return parse(text) if text and not attach.target_is_coordinator else None
