"""Deferred messages: no receiver gets them, and they can be received by sequence number.

A deferral without an answer may have happened or not: then the message is delivered again, or can
be received by number, and one of the two must be true.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Completion, Ledger, Link, MessageKey, Order

if TYPE_CHECKING:
    from tests.crash.ledgers.report import Report


class Deferral(Enum):
    IN_DOUBT = "in doubt"
    CONFIRMED = "confirmed"


class DeferralLedger(Ledger):
    """Messages of one queue with a single receiver, and their numbers."""

    kinds = ("deferred yet delivered", "deferred yet missing", "number changed", *Ledger.kinds)

    def __init__(self) -> None:
        super().__init__(Order.STRICT)
        self._deferrals: dict[MessageKey, Deferral] = {}
        """Of those that are, or may be, deferred now."""
        self._deferral_counts: Counter[str] = Counter()

    def deferring(self, key: MessageKey) -> None:
        """The deferral is about to be put on the wire."""
        self._deferrals[key] = Deferral.IN_DOUBT

    def deferred(self, key: MessageKey) -> None:
        self._deferral_counts["deferred"] += 1
        self._deferrals[key] = Deferral.CONFIRMED

    def deferral_refused(self, key: MessageKey) -> None:
        del self._deferrals[key]

    def delivered(self, key: MessageKey, sequence_number: int, link: Link) -> bool:
        """A receiver got it in the ordinary way, so it is not deferred."""
        if self._deferrals.pop(key, None) is Deferral.CONFIRMED:
            self.violate("deferred yet delivered", f"{key}")
        return super().delivered(key, sequence_number, link)

    def number_of(self, key: MessageKey) -> int:
        """The number to ask for it by."""
        number = self._fates[key].sequence_number
        assert number is not None
        return number

    @property
    def set_aside(self) -> list[MessageKey]:
        """Returns the messages that must be available by sequence number."""
        return [
            key
            for key, deferral in self._deferrals.items()
            if deferral is Deferral.CONFIRMED and self.completion_of(key) is Completion.NONE
        ]

    @property
    def set_aside_in_doubt(self) -> list[MessageKey]:
        """What may be there: its deferral or its completion had no answer."""
        return [
            key
            for key, deferral in self._deferrals.items()
            if deferral is Deferral.IN_DOUBT or self.completion_of(key) is Completion.IN_DOUBT
        ]

    def fetched(self, key: MessageKey, found: MessageKey, sequence_number: int) -> None:
        """The broker gave a message for the number of this one."""
        self._deferral_counts["fetched"] += 1
        fate = self._fates[key]
        if (found, sequence_number) != (key, fate.sequence_number):
            self.violate("number changed", f"{key} came as {found}, number {sequence_number}")
        if fate.completion is Completion.CONFIRMED:
            self.violate("back", f"{key} was fetched after its completion was confirmed")
        self._deferrals[key] = Deferral.CONFIRMED
        fate.completion = Completion.NONE

    def not_found(self, key: MessageKey) -> None:
        """The broker has no unlocked deferred message with this number."""
        self._deferral_counts["not found"] += 1
        fate = self._fates[key]
        if fate.completion is Completion.IN_DOUBT:
            fate.completion = Completion.CONFIRMED
        elif self._deferrals[key] is Deferral.CONFIRMED:
            self.violate("deferred yet missing", f"{key}, number {fate.sequence_number}")
        del self._deferrals[key]

    def completed(self, key: MessageKey) -> None:
        super().completed(key)
        self._deferrals.pop(key, None)

    def audit(self) -> Report:
        report = super().audit()
        return type(report)({**report.counts, **self._deferral_counts}, report.violations)
