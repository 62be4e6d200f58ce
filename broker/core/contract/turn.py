"""A turn: the records, effects, counts, log entries and transitions of the commands that ran together.

Memory changes at once. The records are committed. Effects wait for what they depend on, and counts, log entries and
transitions for the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.records import MessagesDeleted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.counting import Counted, Counts
    from broker.core.contract.effects import Effect
    from broker.core.contract.records import Record
    from broker.core.contract.transitions import Transitions


class DeadLetter(NamedTuple):
    """One dead letter in the log."""

    message_id: str | None
    sequence_number: int
    """The number in the queue that it was moved from."""
    delivery_count: int
    trace_id: str | None = None
    """The trace that the message belongs to, if traces are exported."""


class DeadLettered(NamedTuple):
    """Messages of one queue became dead letters."""

    namespace: str
    path: str
    reason: str | None
    message_count: int
    first: Sequence[DeadLetter]
    """The first messages. A turn may have very many."""


class Turn:
    """Records and effects in order."""

    __slots__ = ("counts", "dead_lettered", "effects", "records", "transitions", "unstored_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.counts: list[tuple[Counts, Counted, int]] = []
        """Counts to increase after the commit: the counts, the key and the number."""
        self.dead_lettered: list[DeadLettered] = []
        self.transitions: list[Transitions] = []
        """What happened to messages, in order, if the history is recorded."""
        self.unstored_bytes = 0
        """What it takes of the store's room, if that is scarce: see `StorageRoom`."""

    def __bool__(self) -> bool:
        return bool(self.records or self.effects or self.counts)

    def count(self, counts: Counts, what: Counted, number: int) -> None:
        """Increase a count when this turn is durable."""
        self.counts.append((counts, what, number))

    def record_deleted(self, ids: list[int], payload_ids: list[int]) -> None:
        """Record that messages and payloads were deleted.

        Many small settlements in one turn make one record, because a record costs as much as several messages. Only
        messages with payloads of their own are joined: stores treat them alike. Their record has one list for both."""
        if ids != payload_ids:
            self.records.append(MessagesDeleted(ids, payload_ids))
            return
        last = self.records[-1] if self.records else None
        if type(last) is MessagesDeleted and last.ids is last.payload_ids:
            last.ids.extend(ids)  # type: ignore[attr-defined]  # a list of this turn
        else:
            self.records.append(MessagesDeleted(ids, ids))

    @property
    def weight(self) -> int:
        """Returns the amount of work to commit and send: rows, other records and effects."""
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
        self.transitions += later.transitions
        self.unstored_bytes += later.unstored_bytes
