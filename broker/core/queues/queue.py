"""One queue of messages: the main queue of an entity, or one of its sub-queues.

A queue counts messages, and locks and deletes them. Messages arrive through `arrival.py`,
`settlement.py` settles them, `dead_lettering.py` dead-letters them, and a `DeliverySource` delivers
them. Each message is in exactly one queue and has at most one lock.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.effects import CreditNeeded, Deliver
from broker.core.contract.message import MessageState, contents_of
from broker.core.contract.records import SequenceNumbersSkipped
from broker.core.contract.transitions import TransitionKind
from broker.core.queues.dispatcher import Dispatcher
from broker.core.queues.locks import SESSION_MESSAGE_LOCKED_UNTIL_MS, Locks, group_of
from broker.core.queues.message_deadlines import forget_expiry, forget_schedule
from broker.core.queues.message_index import MessageIndex
from broker.core.queues.sessions import Sessions
from config.model.definitions import UNLIMITED_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.commands import SessionRequest
    from broker.core.contract.counting import Counts
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.delivery_source import DeliverySource
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.quota_usage import QuotaUsage
    from broker.core.queues.receiver import Receiver

MAIN = 0
DEAD_LETTERS = 1
TRANSFER_DEAD_LETTERS = 2

RESERVED_NUMBERS = 1_000
"""How many sequence numbers of a topic one record reserves."""

_ACTIVE = MessageState.ACTIVE
_DELIVERED = Outcome.DELIVERED


class Queue:
    """Messages, locks and counts of one queue."""

    ends_with_namespace = False

    __slots__ = (
        "context",
        "count",
        "counts",
        "dead_letters",
        "dead_letters_expired",
        "default_time_to_live_ms",
        "deferred_count",
        "delivery",
        "dispatcher",
        "entity_id",
        "index",
        "is_closed",
        "keeps_locked_bodies",
        "last_sequence_number",
        "lock_duration_ms",
        "locks",
        "max_delivery_count",
        "overdue_ms",
        "path",
        "receivers",
        "reserved_number",
        "scheduled_count",
        "size_bytes",
        "sub_queue",
        "usage",
    )

    def __init__(
        self,
        context: NamespaceContext,
        entity_id: int,
        path: str,
        sub_queue: int,
        usage: QuotaUsage,
    ) -> None:
        self.context = context
        self.entity_id = entity_id
        self.usage = usage
        self.path = path
        self.sub_queue = sub_queue
        self.dead_letters: Queue | None = None
        """Its dead-letter queue. None for a sub-queue."""
        self.lock_duration_ms = 0
        self.max_delivery_count = 0
        """0 in a sub-queue, which has no limit."""
        self.default_time_to_live_ms = UNLIMITED_MS
        self.dead_letters_expired = False
        self.index = MessageIndex(context.block_bits)
        self.dispatcher = Dispatcher(self)
        self.delivery: DeliverySource = self.dispatcher
        """Delivers the messages: the dispatcher, or the sessions if the queue requires sessions."""
        self.locks = Locks(context)
        self.receivers: dict[Receiver, None] = {}
        """Receivers that are attached, or wait for a session."""
        self.keeps_locked_bodies = False
        """Whether bodies of locked messages stay in memory. In a partitioned entity a transaction
        reads the partition keys from them."""
        self.is_closed = False
        """Whether its entity is deleted. Its messages may still have to be deleted."""
        self.overdue_ms = 0
        """Locks and times to live that end until this time have ended, although the backlog still
        has to process them (`backlog.py`). 0 if nothing is left to do."""
        self.last_sequence_number = 0
        self.reserved_number = 0
        """No record is needed for numbers up to this one: see `record_numbers`."""
        self.count = 0
        self.deferred_count = 0
        self.scheduled_count = 0
        self.size_bytes = 0
        self.counts: Counts = {}
        """Its counters, for metrics."""

    @property
    def counts_failures(self) -> bool:
        """Whether failed deliveries are counted. They are not in a dead-letter queue."""
        return self.dead_letters is not None

    # --- arrival ----------------------------------------------------------------------------

    def reserve_number(self) -> int:
        """Returns a sequence number that `enqueue` will not assign."""
        self.last_sequence_number += 1
        return self.last_sequence_number

    def skip_numbers(self, highest_number: int) -> None:
        """Never assign this sequence number or a lower one: they are in use."""
        self.last_sequence_number = max(self.last_sequence_number, highest_number)

    def record_numbers(self, turn: Turn) -> None:
        """Record that the numbers of a topic are not assigned again. The store has no messages with
        them, only copies in the subscriptions, and these are deleted. Numbers are reserved ahead, so
        that few sends need a record. After a restart the numbers continue after the reserved ones."""
        if self.last_sequence_number > self.reserved_number:
            self.reserved_number = self.last_sequence_number + RESERVED_NUMBERS
            numbers = self.entity_id, self.sub_queue, self.reserved_number
            turn.records.append(SequenceNumbersSkipped([numbers]))

    def enter(self, first_number: int, messages: Sequence[Message], size: int) -> None:
        """Add messages with consecutive numbers from this one on."""
        self.index.add(first_number, messages)
        self.last_sequence_number = first_number + len(messages) - 1
        self.change_size(len(messages), size)
        self.delivery.enter(messages)

    def change_size(self, count: int, size: int) -> None:
        """Count messages that entered or, with negative numbers, left the queue, and their size."""
        self.count += count
        self.context.payloads.add_messages(count)
        self.size_bytes += size
        self.usage.add(size)

    def offer_for_eviction(self, messages: Sequence[Message]) -> None:
        """Over the memory budget, remove the bodies of messages that this turn does not deliver."""
        if self._is_over_budget:
            self.context.arrived += messages

    @property
    def _is_over_budget(self) -> bool:
        """Whether bodies should leave memory."""
        return self.context.payloads.over_budget

    # --- delivery ---------------------------------------------------------------------------

    @property
    def sessions(self) -> Sessions | None:
        """Returns its sessions, or None if it does not require sessions."""
        return self.delivery if isinstance(self.delivery, Sessions) else None

    def require_sessions(self, *, required: bool) -> None:
        """Deliver through sessions or not. A queue with messages does not lose its sessions."""
        if required and not self.delivery.requires_sessions:
            self.delivery = Sessions(self)
        elif not required and not self.count:
            self.delivery.close()
            self.delivery = self.dispatcher

    @property
    def is_forwarding(self) -> bool:
        """Whether its messages are forwarded to another entity."""
        return self.dispatcher.forwarder is not None

    def attach(
        self, receiver: Receiver, session: SessionRequest | None, now_ms: int, turn: Turn
    ) -> None:
        """Attach a receiver, or let it wait for a session. Raises if the session is held."""
        self.delivery.attach(receiver, session, now_ms, turn)
        self.receivers[receiver] = None

    def detach(self, receiver: Receiver, now_ms: int, turn: Turn) -> bool:
        """Detach a receiver and close its session. Returns False if it is not attached."""
        if receiver not in self.receivers:
            return False
        del self.receivers[receiver]
        if receiver.source is not None:
            receiver.source.detach(receiver, now_ms, turn)
        return True

    def forget_receiver(self, receiver: Receiver) -> None:
        """Remove a receiver that has no source any more."""
        self.receivers.pop(receiver, None)

    def deliver(
        self, receiver: Receiver, messages: Sequence[Message], now_ms: int, turn: Turn
    ) -> None:
        """Deliver ready messages to a receiver: lock them, or delete them in receive-and-delete."""
        if receiver.locks:
            tokens = self.lock(receiver, messages, now_ms)
            until_ms = messages[0].locked_until_ms
            if self._is_over_budget and not self.keeps_locked_bodies:
                # The receiver may hold them for long.
                copies = [message.copy() for message in messages]
                for copy, token in zip(copies, tokens, strict=True):
                    copy.lock_token, copy.locked_until_ms = token, until_ms
                turn.effects.append(Deliver(receiver.peer, copies, tokens, until_ms))
                self.context.payloads.evict_delivered(messages)
            else:
                contents = contents_of(messages)
                turn.effects.append(Deliver(receiver.peer, messages, tokens, until_ms, contents))
        else:
            self.delete(messages, turn)
            turn.effects.append(Deliver(receiver.peer, messages, [None] * len(messages)))
        turn.count(self.counts, _DELIVERED, len(messages))
        if self.context.history is not None:
            self.context.history.delivered(self, receiver, messages, turn)
        if receiver.paused and receiver.limit > receiver.delivered:
            turn.effects.append(CreditNeeded(receiver.peer))

    def lock(self, holder: Receiver, messages: Sequence[Message], now_ms: int) -> list[bytes]:
        """Lock unlocked messages. Returns their tokens, in order."""
        if self.delivery.requires_sessions:
            return self.locks.begin(holder, messages, SESSION_MESSAGE_LOCKED_UNTIL_MS, expire=False)
        return self.locks.begin(holder, messages, now_ms + self.lock_duration_ms, expire=True)

    def live_tokens(self, tokens: Iterable[bytes]) -> list[bytes]:
        """Returns the tokens whose locks have not ended."""
        locks = self.locks
        if self.is_closed:
            return []
        if self.overdue_ms:
            return [token for token in tokens if token in locks and self._is_live(token)]
        return [token for token in tokens if token in locks]

    @property
    def live_lock_count(self) -> int:
        """Returns how many locks have not ended. The backlog may still have to process others."""
        return len(self.live_tokens(self.locks) if self.overdue_ms else self.locks)

    def _is_live(self, token: bytes) -> bool:
        message = self.locks[token]
        if message.locked_until_ms <= self.overdue_ms:
            return False
        return not group_of(message).holder.lost_locks

    def renew(self, tokens: Sequence[bytes], now_ms: int) -> list[int]:
        """Renew locks, all or none. Returns their new ends, in order. Raises if one is lost.

        A message lock under a session lock has no end of its own: the session lock is renewed.
        """
        messages = self.locks.messages(tokens)
        if self.delivery.requires_sessions:
            return [message.locked_until_ms for message in messages]
        until_ms = now_ms + self.lock_duration_ms
        self.locks.extend(messages, until_ms)
        return [until_ms] * len(messages)

    # --- leaving ----------------------------------------------------------------------------

    def delete(self, messages: Sequence[Message], turn: Turn) -> None:
        """Delete messages."""
        self.remove(messages)
        unreferenced = self.context.payloads.release(messages)
        turn.record_deleted([message.id for message in messages], unreferenced)

    def discard_ready(self, messages: Sequence[Message]) -> None:
        """Messages that were ready have left the queue. The list of ready messages may still refer
        to them until a receiver comes, so their bodies are dropped here."""
        for message in messages:
            message.body = None
            message.annotations = b""
        self.delivery.discard_ready(messages)

    def close(self, turn: Turn) -> None:
        """The entity is deleted. Delete all messages, in parts if there are many: no client can
        reach them."""
        backlog = self.context.backlog
        self.end()
        if self.count and (not backlog.may_act(self.count) or self.do_part(self.count, turn)):
            backlog.add(self)

    def end(self) -> None:
        """Deliver nothing more. Its messages can be deleted with `do_part`."""
        self.context.backlog.discard(self)
        self.is_closed = True
        self.delivery.close()
        self.delivery = self.dispatcher

    def do_part(self, count: int, turn: Turn) -> bool:
        """Delete the first messages of a closed queue, including locked ones. Returns False if none
        is left."""
        messages = list(islice(self.index.walk(), count))
        self.locks.end([message.lock_token for message in messages if message.lock_token])
        if self.context.history is not None:
            self.context.history.record(
                TransitionKind.DELETED, self, messages, turn, description="The entity was deleted."
            )
        self.delete(messages, turn)
        self.discard_ready(messages)
        return bool(self.count)

    def remove(self, messages: Sequence[Message]) -> None:
        """Remove unlocked messages from the queue. The caller deletes or moves them and their
        bodies."""
        self.index.remove(messages)
        expiring: list[Message] = []
        size_bytes = 0
        for message in messages:
            message.queue = None
            size_bytes += message.size
            if message.expires_at_ms:
                expiring.append(message)
            if message.state is not _ACTIVE:
                self._subtract_from_counts(message)
        if expiring:
            forget_expiry(self.context.deadlines, expiring)
        self.change_size(-len(messages), -size_bytes)
        self.delivery.leave(messages)

    def defer(self, messages: Sequence[Message]) -> None:
        """Set messages aside for receivers that ask for them by sequence number."""
        for message in messages:
            if message.state is _ACTIVE:
                message.state = MessageState.DEFERRED
                self.deferred_count += 1

    def _subtract_from_counts(self, message: Message) -> None:
        if message.state is MessageState.DEFERRED:
            self.deferred_count -= 1
        else:
            self.scheduled_count -= 1
            forget_schedule(self.context.deadlines, message)


def queue_of(message: Message | PackedMessages) -> Queue | None:
    """Returns the queue that a message is in, or None."""
    queue = message.queue
    assert queue is None or isinstance(queue, Queue)
    return queue
