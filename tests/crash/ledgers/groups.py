"""Messages that were sent together, in a batch or a request: all of them are stored, or none.

Adds this promise to the ledger of messages, which still judges each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.crash.ledgers.messages import Ledger, Order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.ledgers.messages import MessageKey
    from tests.crash.ledgers.report import Report


class GroupLedger(Ledger):
    """A ledger that knows which messages belong together."""

    kinds: ClassVar[tuple[str, ...]] = ("partial", *Ledger.kinds)

    def __init__(self, order: Order = Order.STRICT) -> None:
        super().__init__(order)
        self._groups: list[Sequence[MessageKey]] = []

    def sending_together(self, keys: Sequence[MessageKey]) -> None:
        """They are about to be put on the wire as one."""
        self._groups.append(keys)
        for key in keys:
            self.sending(key)

    def accepted_together(self, keys: Sequence[MessageKey]) -> None:
        for key in keys:
            self.accepted(key)

    def refused_together(self, keys: Sequence[MessageKey]) -> None:
        for key in keys:
            self.refused(key)

    def audit(self) -> Report:
        """Besides each message: no group may have arrived in part."""
        for keys in self._groups:
            seen = sum(map(self.was_seen, keys))
            if 0 < seen < len(keys):
                self.violate("partial", f"{seen} of the {len(keys)} sent with {keys[0]}")
        report = super().audit()
        return type(report)({"groups": len(self._groups), **report.counts}, report.violations)
