"""Settles locked messages as their receiver asks, and returns messages whose locks end unsettled.

A message stays in its queue, moves to the dead-letter queue, or is deleted.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.errors import NotAllowed
from broker.core.contract.message import MessageState
from broker.core.contract.message_changes import EMPTY
from broker.core.contract.records import MessagesUpdated
from broker.core.contract.settlement_values import SettlementKind
from broker.core.contract.transitions import TransitionKind
from broker.core.messages.message_rows import rows_of
from broker.core.queues.dead_lettering import dead_letter, expire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.settlement_values import Settlement
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver

_ACTIVE = MessageState.ACTIVE
_COMPLETE, _COMPLETED = SettlementKind.COMPLETE, Outcome.COMPLETED
_OUTCOMES = {
    SettlementKind.ABANDON: Outcome.ABANDONED,
    SettlementKind.DEFER: Outcome.DEFERRED,
    SettlementKind.RELEASE: Outcome.RELEASED,
}
"""`dead_lettering.py` counts dead letters."""
_TRANSITIONS = {
    SettlementKind.COMPLETE: TransitionKind.COMPLETED,
    SettlementKind.ABANDON: TransitionKind.ABANDONED,
    SettlementKind.DEFER: TransitionKind.DEFERRED,
    SettlementKind.RELEASE: TransitionKind.RELEASED,
}
"""`dead_lettering.py` records dead letters."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


def check_settlement(queue: Queue, settlement: Settlement) -> None:
    """Raises `NotAllowed` if messages of this queue cannot be settled like this."""
    if settlement.kind is SettlementKind.DEAD_LETTER and queue.dead_letters is None:
        raise NotAllowed("A message in a dead-letter queue cannot be dead-lettered again.")


def settle_locked(
    queue: Queue, tokens: Iterable[bytes], settlement: Settlement, now_ms: int, turn: Turn
) -> None:
    """Settle locked messages. Every token must be in `locks`."""
    settle_unlocked(queue, queue.locks.end(tokens), settlement, now_ms, turn)


def settle_unlocked(
    queue: Queue, messages: Sequence[Message], settlement: Settlement, now_ms: int, turn: Turn
) -> None:
    """Settle messages whose locks have just been ended."""
    kind = settlement.kind
    history = queue.context.history
    if kind is _COMPLETE:
        turn.count(queue.counts, _COMPLETED, len(messages))
        if history is not None:
            history.record(TransitionKind.COMPLETED, queue, messages, turn)
        queue.delete(messages, turn)
        return
    if (outcome := _OUTCOMES.get(kind)) is not None:
        turn.count(queue.counts, outcome, len(messages))
    recorded = len(turn.transitions)
    if settlement.properties:
        for message in messages:
            changes = message.changes or EMPTY
            message.changes = changes.with_properties(settlement.properties)
    if kind is SettlementKind.DEAD_LETTER:
        dead_letter(
            queue,
            messages,
            settlement.reason,
            settlement.description,
            turn,
            DeadLetterCause.APPLICATION,
        )
    elif kind is SettlementKind.RELEASE:
        _make_ready(queue, messages, now_ms, turn)
        queue.offer_for_eviction(messages)
    else:
        kept = _count_failure(queue, messages, turn)
        if kind is SettlementKind.DEFER:
            queue.defer(kept)
        if kept:
            turn.records.append(MessagesUpdated(rows_of(kept)))
            _make_ready(queue, kept, now_ms, turn)
            queue.offer_for_eviction(kept)
    if history is not None and kind is not SettlementKind.DEAD_LETTER:
        history.record(_TRANSITIONS[kind], queue, messages, turn, at=recorded)


def return_locked(
    queue: Queue,
    messages: Iterable[Message],
    now_ms: int,
    turn: Turn,
    *,
    failed: bool,
    connection_lost: bool = False,
) -> None:
    """End locks without a settlement: they expired or the connection was lost (`failed`), or their
    session was closed. If there are many messages, the last are returned in later ticks.
    `Queue.live_tokens` does not count their locks any more."""
    locked = sorted(messages, key=_SEQUENCE_NUMBER)
    act = _return_failed if failed else _return_without_failure
    if connection_lost and failed:
        act = _return_lost
    queue.context.backlog.act(act, queue, locked, now_ms, turn)


def release_locks(
    holder: Receiver, now_ms: int, turn: Turn, *, failed: bool, connection_lost: bool = False
) -> None:
    """End all locks of a receiver."""
    if holder.lock_groups:
        holder.lost_locks = True
        return_locked(
            holder.queue,
            holder.locked,
            now_ms,
            turn,
            failed=failed,
            connection_lost=connection_lost,
        )


def _return_lost(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Return messages whose receiver has lost its connection."""
    _return_failed(queue, messages, now_ms, turn, "The connection was lost.")


def _return_failed(
    queue: Queue,
    messages: Sequence[Message],
    now_ms: int,
    turn: Turn,
    description: str | None = None,
) -> None:
    """Return messages whose delivery failed."""
    tokens = _still_locked(queue, messages)
    history = queue.context.history
    recorded = len(turn.transitions)
    holders = {} if history is None else history.locks_ending(messages, tokens)
    back: Sequence[Message] = queue.locks.end(tokens)
    turn.count(queue.counts, Outcome.LOCK_LOST, len(back))
    if queue.counts_failures:
        back = _count_failure(queue, back, turn)
        if back:
            turn.records.append(MessagesUpdated(rows_of(back)))
    _make_ready(queue, back, now_ms, turn)
    queue.offer_for_eviction(back)
    if history is not None:
        expired = TransitionKind.LOCK_EXPIRED
        history.locks_ended(expired, queue, holders, turn, recorded, description)


def _return_without_failure(
    queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn
) -> None:
    """Return messages without a failed delivery."""
    tokens = _still_locked(queue, messages)
    history = queue.context.history
    if history is not None:
        holders = history.locks_ending(messages, tokens)
        recorded = len(turn.transitions)
        history.locks_ended(TransitionKind.RELEASED, queue, holders, turn, recorded, None)
    back = queue.locks.end(tokens)
    turn.count(queue.counts, Outcome.RELEASED, len(back))
    _make_ready(queue, back, now_ms, turn)
    queue.offer_for_eviction(back)


def _still_locked(queue: Queue, messages: Sequence[Message]) -> list[bytes]:
    """Returns the tokens of messages that are still locked."""
    locks = queue.locks
    tokens = [message.lock_token for message in messages]
    return [token for token in tokens if token is not None and token in locks]


def _count_failure(queue: Queue, messages: Sequence[Message], turn: Turn) -> Sequence[Message]:
    """Increment the delivery count of each message. Dead-letter those that reach the maximum, and
    return the others.

    The count does not rise in a dead-letter queue. The service keeps the number with which the
    message was dead-lettered, and there is no maximum.
    """
    if not queue.counts_failures:
        return messages
    limit = queue.max_delivery_count
    used_up = []
    for message in messages:
        message.delivery_count += 1
        if 0 < limit <= message.delivery_count:
            used_up.append(message)
    if not used_up:
        return messages
    description = f"Message could not be consumed after {limit} delivery attempts."
    cause = DeadLetterCause.MAX_DELIVERY_COUNT
    dead_letter(queue, used_up, "MaxDeliveryCountExceeded", description, turn, cause)
    return [message for message in messages if message.queue is queue]


def _make_ready(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Make unlocked messages ready again. Deferred messages stay deferred."""
    ready = [message for message in messages if message.state is _ACTIVE]
    # A locked message does not expire. Its time to live continues, so it may expire after the lock.
    expired = [message for message in ready if 0 < message.expires_at_ms <= now_ms]
    if expired:
        expire(queue, expired, turn)
        ready = [message for message in ready if message.queue is queue]
    queue.delivery.put_back(ready)
