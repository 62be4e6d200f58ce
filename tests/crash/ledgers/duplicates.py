"""An entity with duplicate detection: a message that is sent several times is stored at most once.

The ledger of messages recognises a second copy by its number. This ledger adds only repeated sends.
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
        self._sends = 0
        self._places: dict[MessageKey, list[int]] = {}
        """The sends that may have stored each message, by their numbers. A send without an answer
        may have been refused while a later message was stored, as when a full disk has room again;
        the message is then stored by its next send, behind that later one."""
        self._seen_as: dict[MessageKey, int] = {}
        """Which of its sends each message is taken for, since it was seen."""
        self._sent_again = {Send.IN_DOUBT: 0, Send.ACCEPTED: 0, Send.REFUSED: 0}

    def sending(self, key: MessageKey) -> None:
        """Once, or again: what is known of it stays known."""
        self._sends += 1
        fate = self._fates.get(key)
        if fate is None:
            super().sending(key)
            self._places[key] = [self._sends]
            return
        self._sent_again[fate.send] += 1
        self._more_than_once.add(key)
        if fate.send is not Send.ACCEPTED and not fate.deliveries:
            self._places[key].append(self._sends)

    def accepted(self, key: MessageKey) -> None:
        if self._fates[key].send is not Send.ACCEPTED:
            super().accepted(key)

    def refused(self, key: MessageKey) -> None:
        """Says nothing about what became of it when it was sent before."""
        fate = self._fates[key]
        if key not in self._more_than_once:
            super().refused(key)
        elif fate.send is Send.IN_DOUBT and not fate.deliveries:
            self._places[key].pop()  # the send before it may still have stored the message

    def _place(self, key: MessageKey) -> int:
        """The first of its sends that lets it stand behind everything that was seen before it."""
        if key not in self._seen_as:
            newest = self._newest_first_seen.get(key[0], (0, key))[0]
            places = self._places[key]
            self._seen_as[key] = next((place for place in places if place > newest), places[-1])
        return self._seen_as[key]

    def _check_stored_order(self) -> None:
        """Each message must have a send that comes after those of all messages before it."""
        stored = [
            (fate.sequence_number, key)
            for key, fate in self._fates.items()
            if fate.sequence_number is not None
        ]
        newest: dict[str, int] = {}
        for number, key in sorted(stored):
            before = newest.get(key[0], 0)
            place = next((place for place in self._places[key] if place > before), None)
            if place is None:
                text = f"{key} has number {number}, and others before it were sent after it"
                self.violate("stored out of order", text)
            else:
                newest[key[0]] = place

    def audit(self) -> Report:
        report = super().audit()
        counts = {
            **report.counts,
            "sent again after doubt": self._sent_again[Send.IN_DOUBT],
            "sent again though accepted": self._sent_again[Send.ACCEPTED],
        }
        return type(report)(counts, report.violations)
