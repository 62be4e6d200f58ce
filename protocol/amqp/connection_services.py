"""What a connection needs of the broker that it runs in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from config.model.limits import RELAXED
from protocol.amqp.browsing_slots import BrowsingSlots, unshared_slots
from protocol.amqp.held_memory import MemoryBudgets
from protocol.faults.fault_registry import FaultRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from config.model.limits import Limits
    from protocol.identity import Identity
    from protocol.sources import ProtocolSources


@dataclass(frozen=True, slots=True)
class ConnectionServices:
    """The broker as one connection sees it."""

    enter: Callable[[str], Callable[[Command], None]]
    """Returns the function that submits commands to a namespace."""
    touch: Callable[[], None]
    """Reports that the connection has output to write."""
    wake_at: Callable[[int], None]
    """Asks for a call of `Connection.check_authorization` when the broker's clock reaches this time."""
    identity: Identity
    has_entity: Callable[[str, str], bool]
    """(namespace, path): whether a link to this path could find an entity at it or below it."""
    now_ms: Callable[[], int]
    """The time by which tokens expire."""
    limits: Limits
    container_id: str
    idle_timeout_ms: int
    sources: ProtocolSources
    peer_name: str = ""
    connection_id: str = ""
    """Names the connection in the control API."""
    memory: MemoryBudgets = field(default_factory=lambda: MemoryBudgets(RELAXED))
    """How much memory this connection, and all connections together, may make the broker hold."""
    browsing_slots: BrowsingSlots = field(default_factory=unshared_slots)
    faults: FaultRegistry = field(default_factory=FaultRegistry)
    drop: Callable[[], None] = lambda: None
    """Closes the socket after the output so far, without an AMQP close."""
