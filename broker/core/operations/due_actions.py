"""Carries out what is due: locks that end, messages that expire or become active, timeouts.

Each action gets its own moment as the time. If the timer fires late, or a test moves the clock far, the
result is the same as if every action had come in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.block_packing import unpack_block
from broker.core.queues.dead_lettering import expire
from broker.core.queues.deadlines import Due
from broker.core.queues.messages_by_queue import by_queue
from broker.core.queues.packed_messages import PackedMessages
from broker.core.queues.settlement import return_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.operations.entity_administration import EntityAdministration
    from broker.core.operations.link_operations import LinkOperations
    from broker.core.operations.scheduled_activation import ScheduledActivation
    from broker.core.operations.transactions import Transaction, Transactions
    from broker.core.queues.duplicate_window import DuplicateWindow
    from broker.core.queues.locks import LockGroup
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue
    from broker.core.queues.session import Session, SessionWait

    DueAction = Callable[[Any, int, Turn], None]


class DueActions:
    """The action for each kind of deadline."""

    __slots__ = (
        "_actions",
        "_activations",
        "_administration",
        "_context",
        "_links",
        "_transactions",
    )

    def __init__(
        self,
        context: NamespaceContext,
        links: LinkOperations,
        transactions: Transactions,
        administration: EntityAdministration,
        activations: ScheduledActivation,
    ) -> None:
        self._context = context
        self._links = links
        self._transactions = transactions
        self._administration = administration
        self._activations = activations
        self._actions: dict[Due, DueAction] = {
            Due.MESSAGE_LOCK: self._end_message_locks,
            Due.SESSION_LOCK: self._end_session_locks,
            Due.SESSION_WAIT: self._end_session_waits,
            Due.SCHEDULED: self._activate,
            Due.TIME_TO_LIVE: self._expire,
            Due.DUPLICATE_WINDOW: self._sweep_windows,
            Due.TRANSACTION: self._time_out_transactions,
            Due.IDLE_ENTITY: self._delete_idle_entities,
        }

    def act(self, now_ms: int, turn: Turn) -> None:
        """Carry out everything that is due."""
        history = self._context.history
        for at_ms, kind, items in self._context.deadlines.take_due(now_ms):
            if history is not None:
                history.actor, history.now_ms = None, at_ms
            self._actions[kind](items, at_ms, turn)

    def _end_message_locks(self, groups: Iterable[LockGroup], now_ms: int, turn: Turn) -> None:
        messages = [message for group in groups for message in group]
        for queue, locked in by_queue(messages).items():
            return_locked(queue, locked, now_ms, turn, failed=True)

    def _end_session_locks(self, sessions: Iterable[Session], now_ms: int, turn: Turn) -> None:
        for session in sorted(sessions, key=lambda session: session.id):
            session.expire(now_ms, turn)

    def _end_session_waits(self, waits: Iterable[SessionWait], now_ms: int, turn: Turn) -> None:
        for wait in waits:
            self._administration.restart_idle_time(wait.receiver.queue, now_ms)
            self._links.forget(wait.receiver)
            wait.sessions.time_out(wait.receiver, turn)

    def _activate(
        self, messages: dict[Message | PackedMessages, None], now_ms: int, turn: Turn
    ) -> None:
        self._activations.add(messages, now_ms, turn)

    def _expire(
        self, messages: Iterable[Message | PackedMessages], now_ms: int, turn: Turn
    ) -> None:
        deadlines, backlog = self._context.deadlines, self._context.backlog
        packed: dict[Queue, list[PackedMessages]] = {}
        single: list[Message] = []
        for one in messages:
            if not isinstance(one, PackedMessages):
                single.append(one)
            elif not one.queue.is_closed:
                packed.setdefault(one.queue, []).append(one)
        if not packed:
            for queue, expired in by_queue(single).items():
                backlog.act(_expire_active, queue, expired, now_ms, turn, merge=True)
            return
        if single:  # they are due again at once, in one order with those that are unpacked now
            deadlines.add(Due.TIME_TO_LIVE, now_ms, single)
        for queue, blocks in packed.items():
            backlog.act(_unpack, queue, blocks, now_ms, turn, weight=blocks[0].count)

    def _sweep_windows(self, windows: Iterable[DuplicateWindow], now_ms: int, turn: Turn) -> None:
        for window in windows:
            window.sweep(now_ms, turn)

    def _time_out_transactions(
        self, transactions: Iterable[Transaction], now_ms: int, turn: Turn
    ) -> None:
        for transaction in transactions:
            self._transactions.roll_back(transaction, now_ms, turn)

    def _delete_idle_entities(self, entities: Iterable[Entity], now_ms: int, turn: Turn) -> None:
        for entity in sorted(entities, key=lambda entity: entity.id):
            if not entity.is_deleted:
                self._administration.delete_if_idle(entity, now_ms, turn)


def _expire_active(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Expire active messages. A locked message does not expire before its lock ends, and a deferred
    message does not expire before a receiver asks for it."""
    expired = [
        message
        for message in messages
        if message.waits and message.queue is queue and 0 < message.expires_at_ms <= now_ms
    ]
    if expired:
        queue.delivery.touch_for(expired)
        expire(queue, expired, turn)


def _unpack(queue: Queue, blocks: Sequence[PackedMessages], now_ms: int, turn: Turn) -> None:
    """Unpack blocks in which messages expire. Each message is due at its own moment from now on."""
    del now_ms, turn
    for packed in blocks:
        if queue.index.is_packed(packed):
            unpack_block(packed)
