"""One queue of messages: an entity's own, or one of its sub-queues.

Owns what happens to a message from arrival to settlement: numbers, locks, counts, expiry. Who may
send here and where a message goes next is the entity's; the order of delivery is the outlet's.
Each message is in exactly one queue and has at most one lock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.commands import SettlementKind
from broker.core.deadlines import Due
from broker.core.effects import Deliver, Settled, SettleRefused
from broker.core.errors import BrokerError, MessageLockLost, NotAllowed
from broker.core.index import BLOCK_BITS, MessageIndex
from broker.core.message import Message, MessageState
from broker.core.outlet import Outlet, Receiver
from broker.core.overlay import EMPTY
from broker.core.records import MessagesDeleted, MessagesStored, MessagesUpdated, PayloadRow
from broker.core.rows import rows_of
from config.entities import UNLIMITED_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.commands import Peer, Settlement
    from broker.core.environment import Environment
    from broker.core.turn import Turn

MAIN = 0
DEAD_LETTERS = 1
TRANSFER_DEAD_LETTERS = 2

MAX_DELIVERIES_REASON = "MaxDeliveryCountExceeded"
EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."

_ACTIVE = MessageState.ACTIVE


class Queue:
    """Messages, locks and counts of one queue."""

    __slots__ = (
        "count",
        "dead_letters",
        "dead_letters_expired",
        "default_time_to_live_ms",
        "deferred_count",
        "entity_id",
        "environment",
        "index",
        "last_sequence_number",
        "lock_duration_ms",
        "locks",
        "max_delivery_count",
        "outlet",
        "path",
        "scheduled_count",
        "size_bytes",
        "sub_queue",
    )

    def __init__(self, environment: Environment, entity_id: int, path: str, sub_queue: int) -> None:
        self.environment = environment
        self.entity_id = entity_id
        self.path = path
        self.sub_queue = sub_queue
        self.dead_letters: Queue | None = None
        """Where its dead letters go; None in a sub-queue, which keeps what it has."""
        self.lock_duration_ms = 0
        self.max_delivery_count = 0
        self.default_time_to_live_ms = UNLIMITED_MS
        self.dead_letters_expired = False
        self.index = MessageIndex()
        self.outlet = Outlet(self)
        self.locks: dict[bytes, Message] = {}
        self.last_sequence_number = 0
        self.count = 0
        self.deferred_count = 0
        self.scheduled_count = 0
        self.size_bytes = 0

    # --- arrival ----------------------------------------------------------------------------

    def store(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Take in messages nobody has stored yet, and have them remembered."""
        number = self.environment.ids.take_messages(len(messages))
        size = 0
        for message in messages:
            message.id = message.payload_id = number
            number += 1
            size += message.size
        self.environment.payloads.resident_bytes += size
        self.admit(messages, now_ms)
        make = tuple.__new__
        turn.records.append(
            MessagesStored(
                rows_of(messages),
                [make(PayloadRow, (m.id, m.body, m.annotations)) for m in messages],
            )
        )

    def admit(self, messages: Sequence[Message], now_ms: int) -> None:
        """Number messages and put them in their places; remembering them is the caller's."""
        first = number = self.last_sequence_number + 1
        expires = self.default_time_to_live_ms < UNLIMITED_MS
        size = 0
        scheduled: list[Message] = []
        for message in messages:
            message.queue = self
            message.sequence_number = number
            if not message.enqueue_sequence_number:
                message.enqueue_sequence_number = number
            message.enqueued_time_ms = now_ms
            number += 1
            size += message.size
            if message.scheduled_enqueue_time_ms > now_ms:
                scheduled.append(message)
            elif expires or message.time_to_live_ms is not None:
                self._set_expiry(message, now_ms)
        self._enter(first, messages, size)
        if scheduled:
            self._hold_until_due(scheduled)
            messages = [message for message in messages if message.state is _ACTIVE]
        self._make_ready(messages)

    def admit_dead(self, messages: Sequence[Message]) -> None:
        """Take in dead letters: numbered anew, otherwise as they were when they died."""
        first = number = self.last_sequence_number + 1
        size = 0
        for message in messages:
            message.queue = self
            message.sequence_number = number
            message.expires_at_ms = 0
            message.state = _ACTIVE
            number += 1
            size += message.size
        self._enter(first, messages, size)
        self._make_ready(messages)

    def restore(self, message: Message) -> None:
        """Take in a message the store remembers; they come in the order of their numbers."""
        message.queue = self
        deadlines = self.environment.deadlines
        self.index.add(message.sequence_number, (message,))
        self.last_sequence_number = max(self.last_sequence_number, message.sequence_number)
        self.count += 1
        self.size_bytes += message.size
        if message.state is _ACTIVE:
            if message.expires_at_ms:
                deadlines.add(Due.TIME_TO_LIVE, message.expires_at_ms, (message,))
            self.outlet.arrive((message,))
            self.outlet.paged_out(message)
        elif message.state is MessageState.DEFERRED:
            self.deferred_count += 1
        else:
            self._hold_until_due((message,))

    def _enter(self, first_number: int, messages: Sequence[Message], size: int) -> None:
        self.index.add(first_number, messages)
        self.last_sequence_number = first_number + len(messages) - 1
        self.count += len(messages)
        self.size_bytes += size

    def _make_ready(self, messages: Sequence[Message]) -> None:
        self.outlet.arrive(messages)
        if self.environment.payloads.over_budget:
            self.environment.arrived += messages

    def _set_expiry(self, message: Message, now_ms: int) -> None:
        live_ms = self.default_time_to_live_ms
        if message.time_to_live_ms is not None and message.time_to_live_ms < live_ms:
            live_ms = message.time_to_live_ms
        if live_ms < UNLIMITED_MS:
            message.expires_at_ms = now_ms + live_ms
            self.environment.deadlines.add(Due.TIME_TO_LIVE, message.expires_at_ms, (message,))

    def _hold_until_due(self, messages: Iterable[Message]) -> None:
        for message in messages:
            message.state = MessageState.SCHEDULED
            self.scheduled_count += 1
            self.environment.deadlines.add(
                Due.SCHEDULED, message.scheduled_enqueue_time_ms, (message,)
            )

    # --- delivery ---------------------------------------------------------------------------

    def deliver(
        self, receiver: Receiver, messages: Sequence[Message], now_ms: int, turn: Turn
    ) -> None:
        """Hand ready messages to a receiver: locked, or gone the moment they are on the wire."""
        if receiver.locks:
            tokens = self.lock(receiver, messages, now_ms)
            turn.effects.append(Deliver(receiver.peer, messages, tokens))
        else:
            self.delete(messages, turn)
            turn.effects.append(Deliver(receiver.peer, messages, [None] * len(messages)))

    def lock(self, holder: Receiver, messages: Sequence[Message], now_ms: int) -> list[bytes]:
        """Lock messages that nobody holds; their tokens, in order."""
        new_lock_token = self.environment.new_lock_token
        tokens = [new_lock_token() for _ in messages]
        until_ms = now_ms + self.lock_duration_ms
        for message, token in zip(messages, tokens, strict=True):
            message.lock_token = token
            message.locked_until_ms = until_ms
            message.lock_holder = holder
        self.locks.update(zip(tokens, messages, strict=True))
        holder.held.update(messages)
        self.environment.deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)
        return tokens

    def renew(self, tokens: Sequence[bytes], now_ms: int) -> list[int] | BrokerError:
        """Extend locks, all or none; the new ends, in order."""
        messages = [self.locks.get(token) for token in tokens]
        if None in messages:
            return MessageLockLost()
        until_ms = now_ms + self.lock_duration_ms
        for message in messages:
            assert message is not None
            self.environment.deadlines.discard(
                Due.MESSAGE_LOCK, message.locked_until_ms, (message,)
            )
            message.locked_until_ms = until_ms
        self.environment.deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)
        return [until_ms] * len(messages)

    # --- settlement -------------------------------------------------------------------------

    def settle(
        self,
        peer: Peer,
        tokens: Sequence[bytes],
        handles: Sequence[object],
        settlement: Settlement,
        now_ms: int,
        turn: Turn,
    ) -> None:
        """Settle what is still locked; refuse what is not. Tokens are independent."""
        refusal = self.refuses(settlement)
        if refusal is not None:
            turn.effects.append(SettleRefused(peer, _answered(handles), refusal))
            return
        locks = self.locks
        messages: list[Message] = []
        settled: list[object] = []
        lost: list[object] = []
        for token, handle in zip(tokens, handles, strict=True):
            message = locks.pop(token, None)
            if message is None:
                lost.append(handle)
            else:
                messages.append(message)
                settled.append(handle)
        if messages:
            self.end_locks(messages, settlement, now_ms, turn)
            if settled := _answered(settled):
                turn.effects.append(Settled(peer, settled, settlement))
        if lost := _answered(lost):
            turn.effects.append(SettleRefused(peer, lost, MessageLockLost()))

    def refuses(self, settlement: Settlement) -> BrokerError | None:
        """Why no message of this queue can be settled like that."""
        if settlement.kind is SettlementKind.DEAD_LETTER and self.dead_letters is None:
            return NotAllowed("A message in a dead-letter queue cannot be dead-lettered again.")
        return None

    def end_locks(
        self, messages: Sequence[Message], settlement: Settlement, now_ms: int, turn: Turn
    ) -> None:
        """Do to messages, whose tokens have been taken back, what their receiver asked for."""
        self._unlock(messages)
        kind = settlement.kind
        if kind is SettlementKind.COMPLETE:
            self.delete(messages, turn)
            return
        if settlement.properties:
            for message in messages:
                overlay = message.overlay or EMPTY
                message.overlay = overlay.with_properties(settlement.properties)
        if kind is SettlementKind.DEAD_LETTER:
            self.dead_letter(messages, settlement.reason, settlement.description, turn)
        elif kind is SettlementKind.DEFER:
            self._defer(messages, turn)
        else:
            failed = kind is SettlementKind.ABANDON
            self._give_back(messages, now_ms, turn, count=failed, changed=failed)

    def fail_deliveries(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Locks ended without a settlement: expired, or lost with their connection."""
        for message in messages:
            assert message.lock_token is not None
            del self.locks[message.lock_token]
        self._unlock(messages)
        counts = self.dead_letters is not None
        self._give_back(messages, now_ms, turn, count=counts, changed=counts)

    def _unlock(self, messages: Sequence[Message]) -> None:
        """Clear the locks of messages already out of `locks`."""
        discard = self.environment.deadlines.discard
        until_ms = messages[0].locked_until_ms
        holder = messages[0].lock_holder
        alike: list[Message] = []
        for message in messages:
            if message.locked_until_ms != until_ms or message.lock_holder is not holder:
                discard(Due.MESSAGE_LOCK, until_ms, alike)
                _let_go(holder, alike)
                until_ms, holder, alike = message.locked_until_ms, message.lock_holder, []
            alike.append(message)
            message.lock_token = message.lock_holder = None
        discard(Due.MESSAGE_LOCK, until_ms, alike)
        _let_go(holder, alike)

    def _give_back(
        self, messages: Sequence[Message], now_ms: int, turn: Turn, *, count: bool, changed: bool
    ) -> None:
        """Return unlocked messages to where they were; those used up or expired go elsewhere."""
        ready: list[Message] = []
        kept: list[Message] = []
        used_up: list[Message] = []
        expired: list[Message] = []
        for message in messages:
            if count:
                message.delivery_count += 1
                if 0 < self.max_delivery_count <= message.delivery_count:
                    used_up.append(message)
                    continue
            if message.state is _ACTIVE:
                if 0 < message.expires_at_ms <= now_ms:
                    expired.append(message)
                    continue
                ready.append(message)
            kept.append(message)
        if changed and kept:
            turn.records.append(MessagesUpdated(rows_of(kept)))
        if ready:
            self.outlet.give_back(ready)
        if used_up:
            self.dead_letter(
                used_up,
                MAX_DELIVERIES_REASON,
                f"Message could not be consumed after {self.max_delivery_count} delivery attempts.",
                turn,
            )
        if expired:
            self.expire(expired, turn)

    def _defer(self, messages: Sequence[Message], turn: Turn) -> None:
        """Set aside, to be fetched by number. Counts as a delivery that led nowhere."""
        payloads = self.environment.payloads
        counts = self.dead_letters is not None
        kept: list[Message] = []
        used_up: list[Message] = []
        for message in messages:
            message.delivery_count += counts
            if counts and 0 < self.max_delivery_count <= message.delivery_count:
                used_up.append(message)
                continue
            kept.append(message)
            if message.state is _ACTIVE:
                message.state = MessageState.DEFERRED
                self.deferred_count += 1
            if payloads.over_budget:
                payloads.evict(message)
        if kept:
            turn.records.append(MessagesUpdated(rows_of(kept)))
        if used_up:
            self.dead_letter(
                used_up,
                MAX_DELIVERIES_REASON,
                f"Message could not be consumed after {self.max_delivery_count} delivery attempts.",
                turn,
            )

    # --- leaving ----------------------------------------------------------------------------

    def delete(self, messages: Sequence[Message], turn: Turn) -> None:
        """Forget messages for good."""
        self.withdraw(messages)
        unreferenced = self.environment.payloads.release(messages)
        turn.records.append(MessagesDeleted([message.id for message in messages], unreferenced))

    def expire(self, messages: Sequence[Message], turn: Turn) -> None:
        """Time to live is over."""
        if self.dead_letters_expired and self.dead_letters is not None:
            self.dead_letter(messages, EXPIRED_REASON, EXPIRED_DESCRIPTION, turn)
        else:
            self.delete(messages, turn)

    def dead_letter(
        self, messages: Sequence[Message], reason: str | None, description: str | None, turn: Turn
    ) -> None:
        """Move messages to the dead-letter queue, saying why."""
        assert self.dead_letters is not None
        self.withdraw(messages)
        moved = []
        for message in messages:
            twin = message.copy()
            twin.overlay = replace(
                message.overlay or EMPTY,
                dead_letter_reason=reason,
                dead_letter_description=description,
            )
            moved.append(twin)
        self.dead_letters.admit_dead(moved)
        turn.records.append(MessagesUpdated(rows_of(moved)))

    def withdraw(self, messages: Sequence[Message]) -> None:
        """Take unlocked messages out; what becomes of them, and of their bodies, is the caller's."""
        blocks = self.index.blocks
        size = 0
        for message in messages:
            number = message.sequence_number
            block = blocks[number >> BLOCK_BITS]
            del block[number]
            if not block:
                self.index.drop_block(number >> BLOCK_BITS)
            size += message.size
            message.queue = None
            if message.expires_at_ms:
                self.environment.deadlines.discard(
                    Due.TIME_TO_LIVE, message.expires_at_ms, (message,)
                )
            if message.state is not _ACTIVE:
                self._leave_state(message)
        self.count -= len(messages)
        self.size_bytes -= size

    def _leave_state(self, message: Message) -> None:
        if message.state is MessageState.DEFERRED:
            self.deferred_count -= 1
        else:
            self.scheduled_count -= 1
            self.environment.deadlines.discard(
                Due.SCHEDULED, message.scheduled_enqueue_time_ms, (message,)
            )


def _answered(handles: Iterable[object]) -> list[object]:
    """Those who want an answer."""
    return [handle for handle in handles if handle is not None]


def _let_go(holder: object, messages: Sequence[Message]) -> None:
    if isinstance(holder, Receiver):
        holder.held.difference_update(messages)
