"""What becomes of locked messages: settled as their receiver asks, or given back unsettled.

Owns what each settlement does and which deliveries have failed; taking messages in and out is the
queue's. A message stays where it is, leaves for the dead letters or is deleted, in one step.
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
_OUTCOMES = {
    SettlementKind.COMPLETE: Outcome.COMPLETED,
    SettlementKind.ABANDON: Outcome.ABANDONED,
    SettlementKind.DEFER: Outcome.DEFERRED,
    SettlementKind.RELEASE: Outcome.RELEASED,
}
"""Dead letters are counted where they are made."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


def check_settlement(queue: Queue, settlement: Settlement) -> None:
    """Raises if no message of this queue can be settled like that."""
    if settlement.kind is SettlementKind.DEAD_LETTER and queue.dead_letters is None:
        raise NotAllowed("A message in a dead-letter queue cannot be dead-lettered again.")


def settle_locked(
    queue: Queue, tokens: Iterable[bytes], settlement: Settlement, now_ms: int, turn: Turn
) -> None:
    """Do to locked messages what their receiver asks. Every token must be one of `locks`."""
    messages = queue.locks.end(tokens)
    kind = settlement.kind
    if (outcome := _OUTCOMES.get(kind)) is not None:
        turn.count(queue.counts, outcome, len(messages))
    if kind is SettlementKind.COMPLETE:
        queue.delete(messages, turn)
        return
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


def return_locked(
    queue: Queue, messages: Iterable[Message], now_ms: int, turn: Turn, *, failed: bool
) -> None:
    """Locks end without a settlement: they expired, or the connection broke (`failed`), or their
    session was closed. Of many messages the last return later; their locks are over all the same,
    since either their time is or their holder has given them up: see `Queue.live_tokens`."""
    locked = sorted(messages, key=_SEQUENCE_NUMBER)
    act = _return_failed if failed else _return_unharmed
    queue.context.backlog.act(act, queue, locked, now_ms, turn)


def release_locks(holder: Receiver, now_ms: int, turn: Turn, *, failed: bool) -> None:
    """End all locks of a receiver."""
    if holder.locked:
        holder.lost_locks = True
        return_locked(holder.queue, holder.locked.values(), now_ms, turn, failed=failed)


def _return_failed(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Return messages whose delivery failed."""
    back: Sequence[Message] = queue.locks.end(_still_locked(queue, messages))
    turn.count(queue.counts, Outcome.LOCK_LOST, len(back))
    if queue.counts_failures:
        back = _count_failure(queue, back, turn)
        if back:
            turn.records.append(MessagesUpdated(rows_of(back)))
    _make_ready(queue, back, now_ms, turn)
    queue.offer_for_eviction(back)


def _return_unharmed(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Return messages as if they had not been delivered."""
    back = queue.locks.end(_still_locked(queue, messages))
    turn.count(queue.counts, Outcome.RELEASED, len(back))
    _make_ready(queue, back, now_ms, turn)
    queue.offer_for_eviction(back)


def _still_locked(queue: Queue, messages: Sequence[Message]) -> list[bytes]:
    """The tokens of messages that have not been unlocked while they waited for this."""
    locks = queue.locks
    tokens = [message.lock_token for message in messages]
    return [token for token in tokens if token is not None and token in locks]


def _count_failure(queue: Queue, messages: Sequence[Message], turn: Turn) -> Sequence[Message]:
    """Count a failed delivery each; dead-letter those that reach the maximum, and
    return the rest.

    Nothing counts in a dead-letter queue, whatever ends a lock there: the service leaves the number
    with which a message died, and there is no limit that a count could lead to.
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
    """Return unlocked messages to their places; the deferred stay deferred."""
    ready = [message for message in messages if message.state is _ACTIVE]
    # Time to live does not end while a message is locked, but it goes on being counted.
    expired = [message for message in ready if 0 < message.expires_at_ms <= now_ms]
    if expired:
        expire(queue, expired, turn)
        ready = [message for message in ready if message.queue is queue]
    queue.delivery.put_back(ready)
