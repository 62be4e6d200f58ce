"""What all queues of a namespace share: deadlines, ids, bodies, lock tokens, limits.

The namespace creates it and passes it to every queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.core.contract.storage_room import StorageRoom
from broker.core.queues.backlog import Backlog
from broker.core.queues.deadlines import Deadlines
from broker.core.queues.message_index import BLOCK_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.counting import Counts
    from broker.core.contract.message import Message, MessageReader
    from broker.core.contract.observations import Observations
    from broker.core.messages.identifiers import MessageIds
    from broker.core.messages.payloads import Payloads
    from broker.core.queues.dispatcher import Dispatcher
    from broker.core.queues.history_recorder import HistoryRecorder
    from broker.core.queues.session import Session
    from broker.core.queues.sessions import Sessions
    from config.model.limits import Limits


@dataclass(slots=True)
class NamespaceContext:
    """Injected dependencies and shared state of one namespace."""

    reader: MessageReader
    new_lock_tokens: Callable[[int], list[bytes]]
    """Returns so many new tokens of 16 bytes."""
    limits: Limits
    ids: MessageIds
    payloads: Payloads
    observations: Observations
    namespace: str = ""
    block_bits: int = BLOCK_BITS
    """See `MessageIndex`."""
    counts: Counts = field(default_factory=dict)
    """Counts that belong to no entity, such as an attach to a missing entity."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    backlog: Backlog = field(default_factory=Backlog)
    touched: dict[Dispatcher | Session | Sessions, None] = field(default_factory=dict)
    """Where credit, messages or receivers have changed. They are dispatched at the end of the turn.
    """
    arrived: list[Message] = field(default_factory=list)
    """Messages that arrived over the memory budget. Their bodies leave memory, unless this turn
    delivers them."""
    session_state_bytes: int = 0
    """The size of all session states, which are in memory."""
    session_lock_changes: int = 0
    """How often a session got a holder or lost it."""
    room: StorageRoom = field(default_factory=StorageRoom)
    """How much can be stored. Namespaces that share a store share it."""
    history: HistoryRecorder | None = None
    """Records transitions of messages. None while nobody wants them."""
