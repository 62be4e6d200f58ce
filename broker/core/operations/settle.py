"""Settle commands: settle locked messages for attached receivers and by token, and answer.

`queues/settlement.py` does what a settlement asks for. In a transaction, settlements are checked and then
held until the transaction commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.effects import Settled, SettlementHeld, SettleRefused, TransactionRefused
from broker.core.contract.errors import (
    BrokerError,
    MessageLockLost,
    PartitionMismatch,
    TransactionUnknown,
)
from broker.core.contract.settlement_values import COMPLETE
from broker.core.operations.transactional_settlement import TransactionalSettlement
from broker.core.queues.settlement import (
    check_settlement,
    return_locked,
    settle_locked,
    settle_unlocked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.commands import Settle, SettleByToken
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.link_operations import LinkOperations
    from broker.core.operations.transactions import Transactions
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver


class SettleHandler:
    """Carries out `Settle` and the transactional part of `SettleByToken`."""

    __slots__ = ("_directory", "_links", "_transactions")

    def __init__(
        self, links: LinkOperations, directory: Directory, transactions: Transactions
    ) -> None:
        self._links = links
        self._directory = directory
        self._transactions = transactions

    def settle(self, command: Settle, now_ms: int, turn: Turn) -> None:
        """Settle the messages that are still locked, and refuse the others. Tokens are independent."""
        tokens, handles = command.tokens, command.handles
        receiver = self._links.receiver(command.peer)
        if receiver is None:
            self._refuse(command, handles, MessageLockLost(), turn)
            return
        queue = receiver.queue
        if command.settlement is COMPLETE and self._complete_all(queue, command, now_ms, turn):
            return
        live = queue.live_tokens(tokens)
        if len(live) < len(tokens) or len(set(live)) < len(live):
            live, handles, lost = _separate(set(live), tokens, handles)
            self._refuse(command, lost, MessageLockLost(), turn)
            if not live:
                return
        try:
            check_settlement(queue, command.settlement)
            if command.transaction_id is None:
                settle_locked(queue, live, command.settlement, now_ms, turn)
                answer: Settled | SettlementHeld = Settled(
                    command.peer, _answered(handles), command.settlement
                )
            else:
                self._hold_deliveries(receiver, command, live, handles)
                answer = SettlementHeld(
                    command.peer, _answered(handles), command.settlement, command.transaction_id
                )
        except BrokerError as error:
            self._refuse(command, handles, error, turn)
            if isinstance(error, PartitionMismatch):
                return_mismatched(queue, live, now_ms, turn)
            return
        if answer.handles:
            turn.effects.append(answer)

    @staticmethod
    def _complete_all(queue: Queue, command: Settle, now_ms: int, turn: Turn) -> bool:
        """Complete messages if nothing stands in the way, as in nearly every command. Returns False and
        changes nothing otherwise."""
        if command.transaction_id is not None or queue.overdue_ms or queue.is_closed:
            return False
        messages = queue.locks.end_all(command.tokens)
        if messages is None:
            return False
        settle_unlocked(queue, messages, COMPLETE, now_ms, turn)
        if answered := _answered(command.handles):
            turn.effects.append(Settled(command.peer, answered, COMPLETE))
        return True

    def _hold_deliveries(
        self,
        receiver: Receiver,
        command: Settle,
        tokens: Sequence[bytes],
        handles: Sequence[object],
    ) -> None:
        """Hold the settlement of deliveries until the commit. A repeated settlement is the same
        settlement: SDKs settle on their side after they have the provisional answer."""
        assert command.transaction_id is not None
        transaction = self._transactions.find(command.transaction_id, receiver.connection)
        new: dict[bytes, object] = {}
        for token, handle in zip(tokens, handles, strict=True):
            held = transaction.settlements.get(token)
            if held is None:
                new[token] = handle
            elif not held.is_repeated_by(command.peer, command.settlement):
                raise MessageLockLost
            elif handle is None:
                held.stop_answering(token)
        if new:
            settlement = TransactionalSettlement(
                transaction.id,
                self._directory.entity_of(receiver.queue),
                receiver.queue,
                list(new),
                command.settlement,
                command.peer,
                list(new.values()),
            )
            self._hold(transaction.id, receiver.connection, settlement)

    def hold_by_token(self, command: SettleByToken, queue: Queue, tokens: Sequence[bytes]) -> None:
        """Hold a settlement by token until the commit. Raises if it cannot be held."""
        assert command.transaction_id is not None
        transaction = self._transactions.find(command.transaction_id, command.connection)
        if any(token in transaction.settlements for token in tokens):
            raise MessageLockLost
        settlement = TransactionalSettlement(
            transaction.id, self._directory.entity_of(queue), queue, tokens, command.settlement
        )
        self._hold(transaction.id, command.connection, settlement)

    def _hold(
        self, transaction_id: bytes, connection: object, settlement: TransactionalSettlement
    ) -> None:
        self._transactions.hold(transaction_id, connection, settlement)
        self._transactions.find(transaction_id, connection).hold_settlement(settlement)

    def _refuse(
        self, command: Settle, handles: Sequence[object], error: BrokerError, turn: Turn
    ) -> None:
        turn.count(self._links.counts(command.peer), Outcome.SETTLE_REFUSED, len(handles))
        answered = _answered(handles)
        error = error.as_value()
        if answered:
            turn.effects.append(SettleRefused(command.peer, answered, error))
        if command.transaction_id is None:
            return
        if len(answered) < len(handles) and isinstance(error, TransactionUnknown):
            turn.effects.append(TransactionRefused(command.peer, error))
        connection = self._links.connection(command.peer) or command.connection
        self._transactions.set_rollback_only(command.transaction_id, connection, error)


def return_mismatched(queue: Queue, tokens: Iterable[bytes], now_ms: int, turn: Turn) -> None:
    """Return messages to the queue whose settlement was refused because of their partition. The service
    does so, as a test of the .NET SDK notes (`TransactionThrowsWhenOperationsOfDifferentPartitions...`)."""
    return_locked(queue, queue.locks.messages(tokens), now_ms, turn, failed=True)


def _separate(
    locked: set[bytes], tokens: Sequence[bytes], handles: Sequence[object]
) -> tuple[list[bytes], list[object], list[object]]:
    """Returns the locked tokens without repetitions, their handles, and the handles of the others."""
    live: dict[bytes, object] = {}
    lost: list[object] = []
    for token, handle in zip(tokens, handles, strict=True):
        if token in locked and token not in live:
            live[token] = handle
        else:
            lost.append(handle)
    return list(live), list(live.values()), lost


def _answered(handles: Sequence[object]) -> list[object]:
    """Returns the handles of deliveries that expect an answer."""
    if len(handles) == 1:
        return [] if handles[0] is None else list(handles)
    return [handle for handle in handles if handle is not None]
