"""Scheduled messages: delivered once, not before their time, and never after they were cancelled.

A message that was not delivered may be seen in a peek instead. Requests without an answer may have
happened or not, for all their messages together.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.crash.ledgers.groups import GroupLedger
from tests.crash.ledgers.messages import Completion, Link, MessageKey, Order

if TYPE_CHECKING:
    from tests.crash.ledgers.report import Report


class ScheduleLedger(GroupLedger):
    """The messages of one entity. It must get the scheduled time of each before it is sent."""

    kinds = ("early", "cancelled yet present", "gone before its time", *GroupLedger.kinds)

    def __init__(self) -> None:
        super().__init__(Order.NONE)
        self._due_ms: dict[MessageKey, int] = {}
        self._cancelled: set[MessageKey] = set()
        self._schedule_counts: Counter[str] = Counter()

    def due(self, key: MessageKey, at_ms: int) -> None:
        self._due_ms[key] = at_ms

    # ---- cancelling ---------------------------------------------------------------------------

    def cancelling(self, key: MessageKey, incarnation: int) -> None:
        """The cancellation is about to be put on the wire."""
        fate = self._fates[key]
        if not fate.deliveries:  # else its receiver's completion is what counts
            fate.completion, fate.incarnation = Completion.IN_DOUBT, incarnation

    def cancelled(self, key: MessageKey) -> None:
        self._schedule_counts["cancelled"] += 1
        self._cancelled.add(key)
        self._fates[key].completion = Completion.CONFIRMED

    def not_cancelled(self, key: MessageKey, now_ms: int) -> None:
        """The broker found nothing to cancel, which is right once the message is due."""
        self._schedule_counts["too late to cancel"] += 1
        if now_ms < self._due_ms[key]:
            text = f"{key} was not there {self._due_ms[key] - now_ms} ms before it was due"
            self.violate("gone before its time", text)
        fate = self._fates[key]
        if not fate.deliveries:  # it may have come, and been completed, while this was answered
            fate.completion = Completion.NONE

    # ---- seeing -------------------------------------------------------------------------------

    def came(self, key: MessageKey, sequence_number: int, link: Link, now_ms: int) -> bool:
        """A receiver holds the message at this time."""
        due_ms = self._due_ms.get(key, 0)
        if now_ms < due_ms:
            self.violate("early", f"{key} came {due_ms - now_ms} ms before it was due")
        if key in self._cancelled:
            self.violate("cancelled yet present", f"{key} came")
            return False
        return self.delivered(key, sequence_number, link)

    def waits(self, key: MessageKey) -> None:
        """The message was seen among those whose time has not come, at the very end."""
        if key in self._cancelled:
            self.violate("cancelled yet present", f"{key} still waits")
        elif key not in self._fates:
            self.violate("unknown", f"{key} was never sent")
        else:
            self._schedule_counts["still waiting"] += 1
            fate = self._fates[key]
            fate.completion = Completion.CONFIRMED
            fate.deliveries += 1

    def audit(self) -> Report:
        report = super().audit()
        counts = {**report.counts, **self._schedule_counts}
        return type(report)(counts, report.violations)
