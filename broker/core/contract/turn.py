"""A turn: what a run of commands gathered to remember, to tell, to count and to log.

Memory changes at once; records wait for storage, and all the rest waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.counting import Counted, Counts
    from broker.core.contract.effects import Effect
    from broker.core.contract.records import Record


class DeadLetter(NamedTuple):
    """One dead letter, as the log tells it."""

    message_id: str | None
    sequence_number: int
    """In the queue where it died."""
    delivery_count: int


class DeadLettered(NamedTuple):
    """Messages of one queue became dead letters."""

    namespace: str
    path: str
    reason: str | None
    message_count: int
    first: Sequence[DeadLetter]
    """The first of them: a turn may have very many."""


class Turn:
    """Records and effects in the order they came about."""

    __slots__ = ("counts", "dead_lettered", "effects", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.counts: list[tuple[Counts, Counted, int]] = []
        """What to add to which counts."""
        self.dead_lettered: list[DeadLettered] = []

    def __bool__(self) -> bool:
        return bool(self.records or self.effects or self.counts)

    def count(self, counts: Counts, what: Counted, number: int) -> None:
        """Have so many messages counted, once this turn is durable."""
        self.counts.append((counts, what, number))

    @property
    def weight(self) -> int:
        """How much there is to write and to tell: rows, other records and effects."""
        weight = len(self.effects)
        for record in self.records:
            first = record[0]
            weight += 1 if isinstance(first, int) else len(first)
        return weight

    def absorb(self, later: Turn) -> None:
        """Append a later turn."""
        self.records += later.records
        self.effects += later.effects
        self.counts += later.counts
        self.dead_lettered += later.dead_lettered
