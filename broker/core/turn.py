"""A turn: what a run of commands gathered to remember and to tell.

Memory changes at once; records wait for storage, effects wait for their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.effects import Effect
    from broker.core.records import Record


class Turn:
    """Records and effects in the order they came about."""

    __slots__ = ("effects", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []

    def __bool__(self) -> bool:
        return bool(self.records or self.effects)

    def absorb(self, later: Turn) -> None:
        """Append a later turn."""
        self.records += later.records
        self.effects += later.effects
