"""Transitions: what happened to messages, for the history. Values for a whole batch, expanded when somebody reads them.

A batch has columns of numbers, and no reference to a message or a body: it would keep them in memory. What clients
search by (ids and properties) is in the head of a message, which its place keeps for a while.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.message_changes import MessageChanges

    Head: TypeAlias = "bytes | ChangedHead"
    """The properties and application properties of a message."""

CHANGES_BYTES = 500
UNKNOWN = 1 << 63
"""Higher than every sequence number."""


class TransitionKind(StrEnum):
    """What happened to a message."""

    SENT = "sent"
    SCHEDULED = "scheduled"
    ACTIVATED = "activated"
    MATCHED = "matched"
    UNMATCHED = "unmatched"
    """It was sent to a topic, and no rule matched."""
    DEDUPLICATED = "deduplicated"
    """It was dropped, because its message id was seen before."""
    LOCKED = "locked"
    LOCK_RENEWED = "lock_renewed"
    RECEIVED = "received"
    """It was received and deleted."""
    ABANDONED = "abandoned"
    RELEASED = "released"
    LOCK_EXPIRED = "lock_expired"
    DEFERRED = "deferred"
    FORWARDED = "forwarded"
    DEAD_LETTERED = "dead_lettered"
    COMPLETED = "completed"
    EXPIRED = "expired"
    DELETED = "deleted"
    RESUBMITTED = "resubmitted"


class ChangedHead:
    """The head of a message as it was sent, and how it was changed since."""

    __slots__ = ("changes", "sent")

    def __init__(self, sent: bytes, changes: MessageChanges) -> None:
        self.sent = sent
        self.changes = changes

    def __len__(self) -> int:
        """Returns about how much memory it takes."""
        return len(self.sent) + CHANGES_BYTES


class HistoryPlace:
    """A queue or sub-queue in the history, with the heads of the messages that were in it lately."""

    __slots__ = ("_earlier_heads", "entity", "heads", "heads_from", "namespace", "sub_queue")

    def __init__(self, namespace: str, entity: str, sub_queue: int) -> None:
        self.namespace = namespace
        self.entity = entity
        """The path of the entity."""
        self.sub_queue = sub_queue
        self.heads_from = UNKNOWN
        """The heads of all messages with this number or a higher one are here."""
        self.heads: dict[int, Head | None] = {}
        """The heads of this generation, by sequence number."""
        self._earlier_heads: dict[int, Head | None] = {}

    def add_heads(self, numbers: Sequence[int], heads: Sequence[Head | None]) -> None:
        """Keep the heads of messages. None: its body was not in memory."""
        if None in heads:
            known = self.head
            heads = [
                known(number) if head is None else head
                for number, head in zip(numbers, heads, strict=True)
            ]
        self.heads.update(zip(numbers, heads, strict=True))

    def head(self, number: int) -> Head | None:
        """Returns the head of a message, or None if it is not known."""
        found = self.heads.get(number)
        return self._earlier_heads.get(number) if found is None else found

    def begin_generation(self) -> bool:
        """Forget the heads that were added before the last call. Returns whether any are left."""
        self._earlier_heads, self.heads = self.heads, {}
        self.heads_from = UNKNOWN
        return bool(self._earlier_heads)


class TransitionView(NamedTuple):
    """One transition of one message."""

    number: int
    batch: Transitions
    sequence_number: int
    """0 if it never had one."""
    delivery_count: int
    rule: str | None
    to: tuple[HistoryPlace, int] | None
    """Where the message went, and its number there."""
    head: Head | None


class Transitions:
    """The same transition of several messages of one queue. `HistoryRecorder` creates it."""

    __slots__ = (
        "client",
        "delivery_counts",
        "first_number",
        "heads",
        "kind",
        "locked_until_ms",
        "numbers",
        "place",
        "time_ms",
        "transaction_id",
    )
    # Only `DetailedTransitions` can have these. Nearly all batches are without them.
    reason: str | None = None
    description: str | None = None
    rules: str | Sequence[str | None] | None = None
    to_places: HistoryPlace | Sequence[HistoryPlace] | None = None
    to_numbers: Sequence[int] = ()

    def __init__(
        self,
        kind: TransitionKind,
        time_ms: int,
        place: HistoryPlace,
        numbers: Sequence[int],
        delivery_counts: int | Sequence[int],
        heads: Sequence[Head | None] | None,
        peer: Peer | None,
        transaction_id: bytes | None,
    ) -> None:
        self.kind = kind
        self.time_ms = time_ms
        self.place = place
        self.numbers = numbers
        """The sequence numbers of the messages. 0 for one that never had a number."""
        self.delivery_counts = delivery_counts
        """One number if all are the same."""
        self.heads = heads
        """Heads that are not known yet: of `to_places` if the messages move, of `place` otherwise. They stay here only
        if the messages have no numbers."""
        self.client: object = None if peer is None else getattr(peer, "client", None)
        """The client that caused it, as its link describes it. The core does not look inside."""
        self.transaction_id = transaction_id
        self.locked_until_ms = 0
        self.first_number = 0
        """The number of the first transition. Set when the turn is durable."""

    def __len__(self) -> int:
        return len(self.numbers)

    def keep_heads(self) -> int:
        """Move the heads to the places where the messages are now. Returns how many bytes they have."""
        heads = self.heads
        if heads is None:
            return 0
        places = self.to_places
        numbers = self.numbers
        if len(heads) == 1 and places is None and (only := heads[0]) is not None and numbers[0]:
            self.heads = None
            self.place.heads[numbers[0]] = only
            return len(only)
        size = sum(len(head) for head in heads if head is not None)
        if not numbers[0]:
            return size
        self.heads = None
        if places is None:
            self.place.add_heads(numbers, heads)
            return size
        source = self.place
        if None in heads:
            heads = [
                source.head(number) if head is None else head
                for number, head in zip(self.numbers, heads, strict=True)
            ]
        if isinstance(places, HistoryPlace):
            places.add_heads(self.to_numbers, heads)
            return size
        for place, number, head in zip(places, self.to_numbers, heads, strict=True):
            place.heads[number] = head
        return size

    def expand(self, start: int = 0) -> Iterator[TransitionView]:
        """Returns the transitions of the single messages, from one on."""
        heads = self.heads
        for position in range(start, len(self.numbers)):
            number = self.numbers[position]
            counts, rules, places = self.delivery_counts, self.rules, self.to_places
            to = None
            if places is not None:
                there = places if isinstance(places, HistoryPlace) else places[position]
                to = (there, self.to_numbers[position])
            if heads is not None:
                head = heads[position]
            elif to is not None and self.kind is TransitionKind.MATCHED:
                # A message that was forwarded to a topic has a number of another entity there.
                head = to[0].head(to[1])
            else:
                head = self.place.head(number)
                if head is None and to is not None:
                    head = to[0].head(to[1])
            yield TransitionView(
                self.first_number + position,
                self,
                number,
                counts if isinstance(counts, int) else counts[position],
                rules if rules is None or isinstance(rules, str) else rules[position],
                to,
                head,
            )


class DetailedTransitions(Transitions):
    """Transitions with a reason, or to another place."""

    __slots__ = ("description", "reason", "rules", "to_numbers", "to_places")

    def __init__(
        self,
        kind: TransitionKind,
        time_ms: int,
        place: HistoryPlace,
        numbers: Sequence[int],
        delivery_counts: int | Sequence[int],
        heads: Sequence[Head | None] | None,
        peer: Peer | None,
        transaction_id: bytes | None,
    ) -> None:
        super().__init__(
            kind, time_ms, place, numbers, delivery_counts, heads, peer, transaction_id
        )
        self.reason: str | None = None
        self.description: str | None = None
        self.rules: str | Sequence[str | None] | None = None
        """The rules that matched. One text if it is the same for all."""
        self.to_places: HistoryPlace | Sequence[HistoryPlace] | None = None
        """Where the messages went. One place if it is the same for all."""
        self.to_numbers: Sequence[int] = ()
