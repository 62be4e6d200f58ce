"""Transactions that receive a message from one queue and send to others: all of it, or nothing.

Each attempt has its own outputs, so that they show which attempt was committed. A commit without an
answer may have happened or not, but as a whole. Outputs that were not committed never appear.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Ledger, Link, MessageKey, Order
from tests.crash.ledgers.report import Book, Report

if TYPE_CHECKING:
    from collections.abc import Iterable


class End(Enum):
    """What was asked for, and what was answered."""

    NOT_ASKED = "never discharged"
    COMMIT_IN_DOUBT = "commits in doubt"
    COMMITTED = "committed"
    ROLLBACK_IN_DOUBT = "rollbacks in doubt"
    ROLLED_BACK = "rolled back"
    REFUSED = "commits refused"


@dataclass(slots=True)
class Try:
    """One transaction: an input, and its own outputs."""

    source: MessageKey
    end: End = End.NOT_ASKED
    input_came_again: bool = False
    """After the commit was asked for: it did not happen."""


class TransactionLedger(Book):
    """`inputs` gets the sends to the input queue, and what is received when it is emptied."""

    kinds = ("partial", "confirmed yet missing", "rolled back yet present")

    def __init__(self, output_queues: Iterable[str]) -> None:
        super().__init__()
        # What is rolled back comes again, behind what came after it.
        self.inputs = Ledger(Order.NONE)
        self.outputs = {name: Ledger(Order.NONE) for name in output_queues}
        self._tries: dict[MessageKey, Try] = {}
        self._latest: dict[MessageKey, Try] = {}
        self._counts_of_tries: Counter[MessageKey] = Counter()

    def input_delivered(self, source: MessageKey, sequence_number: int, link: Link) -> bool:
        """A receiver holds an input: the try before, if any, did not take effect."""
        if not self.inputs.delivered(source, sequence_number, link):
            return False
        if source in self._latest:
            self._latest[source].input_came_again = True
        return True

    def beginning(self, source: MessageKey) -> MessageKey:
        """A transaction is about to be declared; gives the key its outputs must have."""
        key = f"{source[0]}:{source[1]}", self._counts_of_tries[source]
        self._counts_of_tries[source] += 1
        self._tries[key] = self._latest[source] = Try(source)
        for ledger in self.outputs.values():
            ledger.sending(key)
        return key

    def committing(self, key: MessageKey, link: Link) -> None:
        """The commit is about to be put on the wire."""
        this = self._tries[key]
        this.end = End.COMMIT_IN_DOUBT
        self.inputs.completing(this.source, link)

    def committed(self, key: MessageKey) -> None:
        self._tries[key].end = End.COMMITTED
        self.inputs.completed(self._tries[key].source)

    def commit_refused(self, key: MessageKey) -> None:
        """The broker answered that none of it was done."""
        self._tries[key].end = End.REFUSED
        self.inputs.completion_refused(self._tries[key].source)

    def rolling_back(self, key: MessageKey) -> None:
        self._tries[key].end = End.ROLLBACK_IN_DOUBT

    def rolled_back(self, key: MessageKey) -> None:
        self._tries[key].end = End.ROLLED_BACK

    def audit(self) -> Report:
        """Judge, once all queues have been emptied."""
        for key, this in self._tries.items():
            self._judge(key, this)
        ends = Counter(this.end for this in self._tries.values())
        counts = {"transactions": len(self._tries)} | {end.value: ends[end] for end in End}
        doubtful = [key for key, this in self._tries.items() if this.end is End.COMMIT_IN_DOUBT]
        first = next(iter(self.outputs.values()))
        counts["commits in doubt that happened"] = sum(map(first.was_seen, doubtful))
        report = Report(counts, self.violations)
        for ledger in (self.inputs, *self.outputs.values()):
            # Their counts say nothing that is not said above.
            report = report.plus(Report({}, ledger.audit().violations))
        return report

    def _judge(self, key: MessageKey, this: Try) -> None:
        present = [name for name, ledger in self.outputs.items() if ledger.was_seen(key)]
        absent = [name for name in self.outputs if name not in present]
        text = f"{key}: on {present}, not on {absent}, input came again: {this.input_came_again}"
        match this.end:
            case End.COMMITTED:
                if absent or this.input_came_again:
                    self.violate("confirmed yet missing", text)
            case End.COMMIT_IN_DOUBT:
                happened = {name in present for name in self.outputs} | {not this.input_came_again}
                if len(happened) > 1:
                    self.violate("partial", text)
            case _:
                if present:
                    self.violate("rolled back yet present", text)
