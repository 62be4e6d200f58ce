"""Messages that are moved from one place to another: at any time they are in exactly one of the two.

Each place has its own ledger; this one checks what both must agree on. A move without an answer may
have happened or not, and the next place where the message is seen decides.
"""

from __future__ import annotations

from tests.crash.ledgers.messages import Completion, Ledger, Link, MessageKey, Order
from tests.crash.ledgers.report import Book, Report


class MoveLedger(Book):
    """`here` gets the sends, and the completions of messages that are not moved."""

    kinds = ("in two places", "lost on the way")

    def __init__(self, here: Ledger) -> None:
        super().__init__()
        self.here = here
        self.there = Ledger(Order.NONE)
        self._moves: dict[MessageKey, bool] = {}
        """Whether the move was confirmed, by what was moved."""
        self._came_back: set[MessageKey] = set()
        """What was delivered here after its last move was asked for."""

    def moving(self, key: MessageKey, link: Link) -> None:
        """The move is about to be asked for."""
        self.here.completing(key, link)
        if key not in self._moves:
            self.there.sending(key)
        self._moves[key] = False
        self._came_back.discard(key)

    def moved(self, key: MessageKey) -> None:
        self.here.completed(key)
        self.there.accepted(key)
        self._moves[key] = True

    def came_here(self, key: MessageKey) -> None:
        """It was delivered where it came from: it must not have arrived, and a move in doubt was
        not made."""
        self._came_back.add(key)
        if self.there.was_seen(key):
            self.violate("in two places", f"{key} is back after it arrived")

    def came_there(self, key: MessageKey, sequence_number: int, link: Link) -> bool:
        """It was delivered where it was moved to: it must not be where it came from."""
        if key in self._moves and self.here.completion_of(key) is Completion.NONE:
            self.violate("in two places", f"{key} arrived, and was not moved")
        return self.there.delivered(key, sequence_number, link)

    def audit(self) -> Report:
        """Judges the moved messages, after both places are empty. The owner of `here` judges
        `here`."""
        for key, confirmed in self._moves.items():
            in_doubt = self.here.completion_of(key) is Completion.IN_DOUBT
            in_doubt &= key not in self._came_back
            if not confirmed and in_doubt and not self.there.was_seen(key):
                self.violate("lost on the way", f"{key}")
        found = self.there.audit()
        moves = list(self._moves.values())
        counts = {"moves": len(moves), "moves in doubt": moves.count(False)}
        counts["moves seen there"] = sum(map(self.there.was_seen, self._moves))
        return Report(counts, self.violations).plus(Report({}, found.violations))
