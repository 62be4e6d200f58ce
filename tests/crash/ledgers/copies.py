"""The copies of messages to a topic: on every matching subscription, or on none.

Checks what the subscriptions promise together. Each subscription has its own ledger for its copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Ledger, Link, MessageKey
from tests.crash.ledgers.report import Book, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class FanOutLedger(Book):
    """One topic. The sender says which subscriptions the rules must choose."""

    kinds = ("partial", "misrouted", "action lost")

    def __init__(self, subscriptions: Iterable[str]) -> None:
        super().__init__()
        self.on = {name: Ledger() for name in subscriptions}
        """The ledger of each subscription, for completing."""
        self._wanted_by: dict[MessageKey, Sequence[str]] = {}

    def sending(self, key: MessageKey, wanted_by: Sequence[str]) -> None:
        """The message is about to be put on the wire."""
        self._wanted_by[key] = wanted_by
        for name in wanted_by:
            self.on[name].sending(key)

    def accepted(self, key: MessageKey) -> None:
        for name in self._wanted_by[key]:
            self.on[name].accepted(key)

    def refused(self, key: MessageKey) -> None:
        for name in self._wanted_by[key]:
            self.on[name].refused(key)

    def delivered(
        self, subscription: str, key: MessageKey, sequence_number: int, link: Link
    ) -> bool:
        """A receiver of this subscription holds its copy; false if it should not have one."""
        if subscription not in self._wanted_by.get(key, (subscription,)):
            self.violate("misrouted", f"{key} is on {subscription}")
            return False
        return self.on[subscription].delivered(key, sequence_number, link)

    @property
    def backlog(self) -> int:
        """Of the subscription that is furthest behind."""
        return max(ledger.backlog for ledger in self.on.values())

    def audit(self) -> Report:
        """Judge, once every subscription has been emptied."""
        for key, wanted_by in self._wanted_by.items():
            missing = [name for name in wanted_by if not self.on[name].was_seen(key)]
            if missing and len(missing) < len(wanted_by):
                self.violate("partial", f"{key} never came to {', '.join(missing)}")
        report = Report({"messages": len(self._wanted_by)}, self.violations)
        for ledger in self.on.values():
            report = report.plus(ledger.audit())
        return report
