"""A settlement that is held until its transaction commits.

Until the discharge the messages stay locked and their deliveries unsettled, with a provisional
answer (AMQP 1.0, section 4.4.2). A commit settles both. After a rollback both are as before, so
that the receiver can settle again. Only messages that the receiver had settled on its side return
to the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.effects import Settled
from broker.core.contract.errors import MessageLockLost
from broker.core.operations.partition_keys import partition_keys
from broker.core.queues.settlement import return_locked, settle_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.settlement_values import Settlement
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.queues.queue import Queue


class TransactionalSettlement:
    """Locks of one queue that are settled when their transaction commits. Implements
    `TransactionOperation`."""

    __slots__ = (
        "_entity",
        "_forgotten",
        "_handles",
        "_peer",
        "_queue",
        "_transaction_id",
        "settlement",
        "size_bytes",
        "tokens",
    )

    def __init__(
        self,
        transaction_id: bytes,
        entity: Entity,
        queue: Queue,
        tokens: Sequence[bytes],
        settlement: Settlement,
        peer: Peer | None = None,
        handles: Sequence[object] = (),
    ) -> None:
        self._transaction_id = transaction_id
        self._entity = entity
        self._queue = queue
        self.tokens = tokens
        self.settlement = settlement
        self._peer = peer
        """The link whose deliveries are settled. None for a settlement by token."""
        self._handles: dict[bytes, object] = dict(zip(tokens, handles, strict=False))
        self._forgotten = [token for token, handle in self._handles.items() if handle is None]
        """Tokens of deliveries that the receiver has settled on its side and cannot settle again.
        """
        self.size_bytes = 0

    @property
    def operations(self) -> int:
        """The number of messages to settle."""
        return len(self.tokens)

    @property
    def partition_keys(self) -> Iterable[tuple[int, str]]:
        """See `TransactionOperation`."""
        return partition_keys(self._entity, self._queue.locks.messages(self.tokens))

    def is_repeated_by(self, peer: Peer, settlement: Settlement) -> bool:
        """Whether the same link asks for the same settlement again."""
        return self._peer is peer and self.settlement == settlement

    def stop_answering(self, token: bytes) -> None:
        """The receiver settled a delivery after the provisional answer, so it needs no further answer.
        Its disposition was unsettled, so the lock outlives a rollback and can be settled by token."""
        self._handles.pop(token, None)

    def check(self) -> None:
        """Raises if a lock is lost."""
        if len(self._queue.live_tokens(self.tokens)) < len(self.tokens):
            raise MessageLockLost

    def run(self, now_ms: int, turn: Turn) -> None:
        """Settle."""
        settle_locked(self._queue, self.tokens, self.settlement, now_ms, turn)
        if self._peer is None:
            return
        answered = [handle for handle in self._handles.values() if handle is not None]
        if answered:
            turn.effects.append(
                Settled(self._peer, answered, self.settlement, self._transaction_id)
            )

    def undo(self, now_ms: int, turn: Turn) -> None:
        """After a rollback, return the messages that no receiver can settle any more to the queue.
        Each counts as a failed delivery."""
        locks = self._queue.locks
        lost = locks.messages(token for token in self._forgotten if token in locks)
        if lost:
            return_locked(self._queue, lost, now_ms, turn, failed=True)
