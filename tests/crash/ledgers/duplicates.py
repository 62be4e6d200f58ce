"""An entity that detects duplicates: however often a message is sent, it is stored at most once.

The ledger of messages sees a second copy by its number; here is only what sending again means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Ledger, Order, Send

if TYPE_CHECKING:
    from tests.crash.ledgers.messages import MessageKey
    from tests.crash.ledgers.report import Report


class DuplicateLedger(Ledger):
    """A ledger where the same message may be sent any number of times."""

    def __init__(self) -> None:
        super().__init__(Order.STRICT)
        self._more_than_once: set[MessageKey] = set()
        self._sent_again = {Send.IN_DOUBT: 0, Send.ACCEPTED: 0, Send.REFUSED: 0}

    def sending(self, key: MessageKey) -> None:
        """Once, or again: what is known of it stays known."""
        fate = self._fates.get(key)
        if fate is None:
            super().sending(key)
        else:
            self._sent_again[fate.send] += 1
            self._more_than_once.add(key)

    def accepted(self, key: MessageKey) -> None:
        if self._fates[key].send is not Send.ACCEPTED:
            super().accepted(key)

    def refused(self, key: MessageKey) -> None:
        """Says nothing about what became of it when it was sent before."""
        if key not in self._more_than_once:
            super().refused(key)

    def audit(self) -> Report:
        report = super().audit()
        counts = {
            **report.counts,
            "sent again after doubt": self._sent_again[Send.IN_DOUBT],
            "sent again though accepted": self._sent_again[Send.ACCEPTED],
        }
        return type(report)(counts, report.violations)
