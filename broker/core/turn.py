"""A turn: what a run of commands gathered to remember, to tell and to count.

Memory changes at once; records wait for storage, effects and counts wait for their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.commands import Peer
    from broker.core.effects import Effect
    from broker.core.records import Record


class Turn:
    """Records and effects in the order they came about."""

    __slots__ = ("counts", "effects", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.counts: list[tuple[Peer, str, int]] = []
        """Through whom, what was done, and to how many messages: also where nobody is told."""

    def __bool__(self) -> bool:
        return bool(self.records or self.effects)

    def absorb(self, later: Turn) -> None:
        """Append a later turn."""
        self.records += later.records
        self.effects += later.effects
        self.counts += later.counts
