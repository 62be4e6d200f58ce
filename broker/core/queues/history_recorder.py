"""Adds to the turn what happens to messages: one record for each batch.

The recorder exists only while the history of the namespace is recorded. It reads sequence numbers, delivery counts and
heads from messages at the moment of the transition, because all of these may change before the turn is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.contract.transitions import (
    UNKNOWN,
    ChangedHead,
    DetailedTransitions,
    HistoryPlace,
    TransitionKind,
    Transitions,
)
from broker.core.queues.locks import group_of
from broker.core.queues.queue import queue_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message, MessageReader
    from broker.core.contract.transitions import Head
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver

_SUFFIXES = ("", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue")


class HistoryRecorder:
    """The recorder of one namespace."""

    __slots__ = (
        "_latest_place",
        "_latest_queue",
        "_namespace",
        "_reader",
        "actor",
        "now_ms",
        "places",
        "traces",
        "transaction_id",
    )

    def __init__(self, namespace: str, reader: MessageReader, *, traces: bool = False) -> None:
        self._namespace = namespace
        self._reader = reader
        self.traces = traces
        """Whether traces are exported, and the log is to name them."""
        self.places: dict[tuple[int, int], HistoryPlace] = {}
        """By entity id and sub-queue."""
        self._latest_queue: Queue | None = None
        self._latest_place: HistoryPlace | None = None
        """The place of that queue. Messages that come alone are mostly in the same queue as the one before."""
        self.actor: Peer | None = None
        """The peer of the present command. None for what is due, and for deliveries."""
        self.now_ms = 0
        self.transaction_id: bytes | None = None
        """The transaction whose operations are carried out now."""

    def begin_generation(self) -> None:
        """A generation of heads begins. Places without heads are no longer needed."""
        self._latest_queue = self._latest_place = None
        for key in [key for key, place in self.places.items() if not place.begin_generation()]:
            del self.places[key]

    # --- messages that stay in their queue, or leave ------------------------------------------

    def record(
        self,
        kind: TransitionKind,
        queue: Queue,
        messages: Sequence[Message],
        turn: Turn,
        *,
        at: int | None = None,
        description: str | None = None,
    ) -> Transitions | None:
        """Record a transition of messages that are in a queue, or just left it. With `at`, it comes before the later
        transitions of the turn."""
        if not messages:
            return None
        place = self._latest_place
        if place is None or queue is not self._latest_queue:
            place = self._place(queue)
        numbers: Sequence[int]
        if len(messages) == 1:
            message = messages[0]
            lowest = message.sequence_number
            numbers = (lowest,)
            counts: int | Sequence[int] = message.delivery_count
        else:
            numbers = [message.sequence_number for message in messages]
            counts = _alike([message.delivery_count for message in messages])
            lowest = min(numbers)
            numbers = _compact(numbers)
        heads = None if lowest >= place.heads_from else self._heads(messages)
        actor, transaction_id = self.actor, self.transaction_id
        if description is None:
            batch = Transitions(
                kind, self.now_ms, place, numbers, counts, heads, actor, transaction_id
            )
        else:
            batch = detailed = DetailedTransitions(
                kind, self.now_ms, place, numbers, counts, heads, actor, transaction_id
            )
            detailed.description = description
        if at is None:
            turn.transitions.append(batch)
        else:
            turn.transitions.insert(at, batch)
        return batch

    def delivered(
        self, queue: Queue, receiver: Receiver, messages: Sequence[Message], turn: Turn
    ) -> None:
        """Messages were delivered to a receiver: locked, or deleted in receive-and-delete."""
        kind = TransitionKind.LOCKED if receiver.locks else TransitionKind.RECEIVED
        batch = self.record(kind, queue, messages, turn)
        if batch is not None:
            batch.client = getattr(receiver.peer, "client", None)
            if receiver.locks:
                # The lock of a message in a session ends with that of the session.
                source = receiver.source
                session_until_ms: int = getattr(source, "locked_until_ms", 0)
                batch.locked_until_ms = session_until_ms or messages[0].locked_until_ms

    @staticmethod
    def locks_ending(
        messages: Sequence[Message], tokens: Sequence[bytes]
    ) -> dict[Receiver, list[Message]]:
        """Returns messages that are still locked, by the receivers that lose their locks now."""
        ending = set(tokens)
        holders: dict[Receiver, list[Message]] = {}
        for message in messages:
            if message.lock_token in ending:
                holders.setdefault(group_of(message).holder, []).append(message)
        return holders

    def locks_ended(
        self,
        kind: TransitionKind,
        queue: Queue,
        holders: dict[Receiver, list[Message]],
        turn: Turn,
        at: int,
        description: str | None,
    ) -> None:
        """Locks ended without a settlement."""
        for holder, messages in holders.items():
            batch = self.record(kind, queue, messages, turn, at=at, description=description)
            if batch is not None:
                batch.client = getattr(holder.peer, "client", None)

    def deduplicated(self, queue: Queue, messages: Sequence[Message], turn: Turn) -> None:
        """Messages were dropped because of their message ids. They have no numbers."""
        turn.transitions.append(
            Transitions(
                TransitionKind.DEDUPLICATED,
                self.now_ms,
                self._place(queue),
                [0] * len(messages),
                0,
                self._heads(messages),
                self.actor,
                self.transaction_id,
            )
        )

    def unmatched(self, topic: Queue, messages: Sequence[Message], turn: Turn) -> None:
        """No rule of a topic matched these messages."""
        batch = self.record(TransitionKind.UNMATCHED, topic, messages, turn)
        if batch is not None:
            batch.numbers = _compact([message.enqueue_sequence_number for message in messages])

    # --- messages that arrive -----------------------------------------------------------------

    def accepted(self, queue: Queue, messages: Sequence[Message], turn: Turn) -> None:
        """New messages were stored in a queue, with consecutive numbers."""
        first = messages[0].sequence_number
        numbers: Sequence[int]
        if len(messages) == 1 and not messages[0].state:
            self._new(TransitionKind.SENT, queue, (first,), messages, turn)
            return
        scheduled = [message for message in messages if message.state]
        if scheduled:
            numbers = _compact([message.sequence_number for message in scheduled])
            self._new(TransitionKind.SCHEDULED, queue, numbers, scheduled, turn)
            messages = [message for message in messages if not message.state]
            numbers = [message.sequence_number for message in messages]
        else:
            numbers = range(first, first + len(messages)) if len(messages) > 1 else (first,)
        if messages:
            self._new(TransitionKind.SENT, queue, numbers, messages, turn)

    def _new(
        self,
        kind: TransitionKind,
        queue: Queue,
        numbers: Sequence[int],
        messages: Sequence[Message],
        turn: Turn,
    ) -> None:
        place = self._latest_place
        if place is None or queue is not self._latest_queue:
            place = self._place(queue)
        if place.heads_from == UNKNOWN:
            place.heads_from = numbers[0]
        if len(messages) == 1:
            heads = self._reader.heads([messages[0].body])
        else:
            heads = self._reader.heads([message.body for message in messages])
        turn.transitions.append(
            Transitions(
                kind, self.now_ms, place, numbers, 0, heads, self.actor, self.transaction_id
            )
        )

    def accepted_by_topic(self, topic: Queue, messages: Sequence[Message], turn: Turn) -> None:
        """New messages have their numbers of a topic. `fanned_out` follows."""
        numbers = _compact([message.enqueue_sequence_number for message in messages])
        self._new(TransitionKind.SENT, topic, numbers, messages, turn)

    def refused_transfer(
        self, via: Queue, dead_letters: Queue, messages: Sequence[Message], turn: Turn
    ) -> None:
        """New messages for a disabled destination went to the transfer dead-letter queue of the entity that they were
        sent through."""
        changes = messages[0].changes
        self.accepted_by_topic(via, messages, turn)
        self.moved(
            TransitionKind.DEAD_LETTERED,
            via,
            [message.enqueue_sequence_number for message in messages],
            dead_letters,
            messages,
            turn,
            reason=None if changes is None else changes.dead_letter_reason,
            description=None if changes is None else changes.dead_letter_description,
        )

    def renumbered(self, messages: Sequence[Message], turn: Turn, since: int) -> None:
        """Scheduled messages got other numbers after they were accepted in this turn."""
        numbers = [m.sequence_number for m in messages if m.state is MessageState.SCHEDULED]
        for batch in turn.transitions[since:]:
            if batch.kind is TransitionKind.SCHEDULED and len(batch.numbers) == len(numbers):
                batch.numbers = _compact(numbers)

    # --- messages that move -------------------------------------------------------------------

    def fanned_out(
        self,
        topic: Queue,
        copies: Sequence[Message],
        rules: Sequence[str | None],
        turn: Turn,
    ) -> None:
        """Copies of messages were stored in subscriptions. `rules` has the rule that made each copy."""
        queues = [queue for queue in map(queue_of, copies) if queue is not None]
        places = [self._place(queue) for queue in queues]
        dead = [position for position, place in enumerate(places) if place.sub_queue]
        for position in dead:
            one = slice(position, position + 1)
            kind = TransitionKind.DEAD_LETTERED
            self._fan_out(kind, topic, copies[one], places[one], rules[one], turn)
        if dead:
            live = [position for position, place in enumerate(places) if not place.sub_queue]
            copies = [copies[position] for position in live]
            places = [places[position] for position in live]
            rules = [rules[position] for position in live]
        if copies:
            self._fan_out(TransitionKind.MATCHED, topic, copies, places, rules, turn)

    def _fan_out(
        self,
        kind: TransitionKind,
        topic: Queue,
        copies: Sequence[Message],
        places: list[HistoryPlace],
        rules: Sequence[str | None],
        turn: Turn,
    ) -> None:
        # Copies on thousands of subscriptions share their heads.
        by_payload = {copy.payload_id: copy.body for copy in copies}
        heads = dict(zip(by_payload, self._reader.heads(list(by_payload.values())), strict=True))
        batch = DetailedTransitions(
            kind,
            self.now_ms,
            self._place(topic),
            _compact([copy.enqueue_sequence_number for copy in copies]),
            0,
            [
                heads[copy.payload_id] if copy.changes is None else self._heads((copy,))[0]
                for copy in copies
            ],
            self.actor,
            self.transaction_id,
        )
        for copy, place in zip(copies, places, strict=True):
            if place.heads_from == UNKNOWN:
                place.heads_from = copy.sequence_number
        is_one = places.count(places[0]) == len(places)
        batch.to_places = places[0] if is_one else places
        batch.to_numbers = _compact([copy.sequence_number for copy in copies])
        batch.rules = rules[0] if rules.count(rules[0]) == len(rules) else rules
        changes = copies[0].changes
        if kind is TransitionKind.DEAD_LETTERED and changes is not None:
            batch.reason = changes.dead_letter_reason
            batch.description = changes.dead_letter_description
        turn.transitions.append(batch)

    def moved(
        self,
        kind: TransitionKind,
        queue: Queue,
        numbers: Sequence[int],
        to: Queue,
        copies: Sequence[Message],
        turn: Turn,
        *,
        at: int | None = None,
        to_topic: bool = False,
        reason: str | None = None,
        description: str | None = None,
        delivery_counts: Sequence[int] | None = None,
    ) -> None:
        """Messages of one queue went to another, or got other numbers. `copies` are the messages as they are now.
        A topic gives them no new numbers."""
        if not numbers:
            return
        place, there = self._place(queue), self._place(to)
        if to_topic:
            to_numbers = [copy.enqueue_sequence_number for copy in copies]
        else:
            to_numbers = [copy.sequence_number if copy.queue is to else 0 for copy in copies]
            if there.heads_from == UNKNOWN:
                there.heads_from = next((number for number in to_numbers if number), UNKNOWN)
        batch = DetailedTransitions(
            kind,
            self.now_ms,
            place,
            _compact(numbers),
            _alike(delivery_counts or [copy.delivery_count for copy in copies]),
            self._heads(copies),
            self.actor,
            self.transaction_id,
        )
        batch.to_places = there
        batch.to_numbers = _compact(to_numbers)
        batch.reason = reason
        batch.description = description
        if at is None:
            turn.transitions.append(batch)
        else:
            turn.transitions.insert(at, batch)

    # ------------------------------------------------------------------------------------------

    def _place(self, queue: Queue) -> HistoryPlace:
        key = (queue.entity_id, queue.sub_queue)
        place = self.places.get(key)
        if place is None:
            entity = queue.path.removesuffix(_SUFFIXES[queue.sub_queue])
            place = self.places[key] = HistoryPlace(self._namespace, entity, queue.sub_queue)
        self._latest_queue, self._latest_place = queue, place
        return place

    def _heads(self, messages: Sequence[Message]) -> list[Head | None]:
        heads: list[Head | None] = [*self._reader.heads([message.body for message in messages])]
        changes = [message.changes for message in messages]
        if changes.count(None) < len(changes):
            for position, head in enumerate(heads):
                change = changes[position]
                if change is not None and isinstance(head, bytes):
                    heads[position] = ChangedHead(head, change)
        return heads


def _compact(numbers: Sequence[int]) -> Sequence[int]:
    """Returns consecutive numbers as a range, which takes less memory."""
    first, count = numbers[0], len(numbers)
    if count > 1 and numbers[-1] == first + count - 1:
        consecutive = range(first, first + count)
        if numbers == list(consecutive):
            return consecutive
    return numbers


def _alike(values: Sequence[int]) -> int | Sequence[int]:
    """Returns the value if all are the same."""
    return values[0] if values.count(values[0]) == len(values) else values
