"""The answers that the clients of one entity got, and whether the broker kept its promises.

Clients report to it; it does not connect to the broker. A missing answer proves nothing: the result
of such a send or completion is not known, and only a certain contradiction is a violation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import ClassVar

from tests.crash.ledgers.report import Book, Report

MessageKey = tuple[str, int]
"""Sender, and which of its messages: 0, 1, 2... in the order it sent them."""

Placed = tuple[int, MessageKey]
"""A message, by its place among the sends of its sender."""


class Send(Enum):
    IN_DOUBT = "in doubt"
    ACCEPTED = "accepted"
    REFUSED = "refused"


class Completion(Enum):
    NONE = "none"
    IN_DOUBT = "in doubt"
    CONFIRMED = "confirmed"


@dataclass(slots=True)
class Fate:
    """All that is known of one message."""

    send: Send = Send.IN_DOUBT
    completion: Completion = Completion.NONE
    incarnation: int = -1
    """In which run of the broker the completion was asked for."""
    sequence_number: int | None = None
    deliveries: int = 0
    receivers_lost_before: int = 0
    """How many receivers had been lost when it was sent."""


@dataclass(frozen=True, slots=True)
class Link:
    """One receiver link: its own number, and the run of the broker it was attached in."""

    number: int
    incarnation: int


class Order(Enum):
    """What a place promises about the order of one sender's messages."""

    STRICT = "with a single receiver: first seen in order, over all runs of the broker"
    ON_LINKS = "with several receivers: in order on the link of each"
    STORED = "numbered in the order they were sent, delivered as receivers let them"
    NONE = "not meant to come in the order they were sent"


class Ledger(Book):
    """Thread-safe only under the caller's lock."""

    kinds: ClassVar[tuple[str, ...]] = (
        "lost",
        "back",
        "stored twice",
        "sequence number reused",
        "out of order",
        "stored out of order",
        "unknown",
        "refused yet delivered",
        "dead-lettered",
        "delivery count",
    )

    def __init__(self, order: Order = Order.STRICT) -> None:
        super().__init__()
        self._order = order
        self._fates: dict[MessageKey, Fate] = {}
        self._keys: dict[int, MessageKey] = {}
        self._newest_first_seen: dict[str, Placed] = {}
        self._newest_on_link: dict[tuple[int, str], Placed] = {}
        self._disturbed_incarnations: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._receivers_lost = 0

    # ---- what clients report ------------------------------------------------------------------

    def sending(self, key: MessageKey) -> None:
        """The message is about to be put on the wire."""
        self._fates[key] = Fate(receivers_lost_before=self._receivers_lost)

    def accepted(self, key: MessageKey) -> None:
        self._counts["accepted"] += 1
        self._fates[key].send = Send.ACCEPTED

    def refused(self, key: MessageKey) -> None:
        """The broker answered, and the answer was no."""
        self._fates[key].send = Send.REFUSED

    def delivered(self, key: MessageKey, sequence_number: int, link: Link) -> bool:
        """A receiver holds the message; false if the ledger has no account of it."""
        self._counts["deliveries"] += 1
        fate = self._fates.get(key)
        if fate is None:
            self.violate("unknown", f"{key} was never sent")
            return False
        if fate.send is Send.REFUSED:
            self.violate("refused yet delivered", f"{key}")
        if fate.completion is not Completion.NONE and link.incarnation >= fate.incarnation:
            if fate.completion is Completion.CONFIRMED:
                self.violate("back", f"{key} came again after its completion was confirmed")
            # If the completion was in doubt, this settles it: it did not happen.
            fate.completion = Completion.NONE
        self._check_number(key, fate, sequence_number)
        if self._order in {Order.STRICT, Order.ON_LINKS}:
            self._check_order(key, fate, link)
        self._counts["seen"] += not fate.deliveries
        fate.deliveries += 1
        return True

    def completing(self, key: MessageKey, link: Link) -> None:
        """The completion is about to be put on the wire."""
        fate = self._fates[key]
        fate.completion, fate.incarnation = Completion.IN_DOUBT, link.incarnation

    def completed(self, key: MessageKey) -> None:
        self._fates[key].completion = Completion.CONFIRMED

    def completion_refused(self, key: MessageKey) -> None:
        """The broker answered that the lock was lost: the message is still its own."""
        self._counts["completions refused"] += 1
        self._fates[key].completion = Completion.NONE

    def disturbed(self, incarnation: int) -> None:
        """A receiver gave locks back while the broker lived, so order on other links may break."""
        self._counts["connections lost without a kill"] += 1
        self._disturbed_incarnations.add(incarnation)

    def receiver_lost(self) -> None:
        """The connection of a receiver ended. Each message that it had locked counts a failed delivery,
        unless the broker was gone before."""
        self._receivers_lost += 1

    def counted(self, key: MessageKey, delivery_count: int) -> None:
        """A receiver holds the message, and this many deliveries of it have failed. Nobody abandons here and
        no lock expires, so each failure needs a receiver that was lost after the message was sent."""
        most = self._receivers_lost - self._fates[key].receivers_lost_before
        if delivery_count > most:
            text = f"{key} has {delivery_count} after {most} lost receivers"
            self.violate("delivery count", text)

    def dead_lettered(self, key: MessageKey) -> None:
        """No workload dead-letters here, and no message may be dead-lettered by the broker."""
        self.violate("dead-lettered", f"{key}")

    # ---- checks -------------------------------------------------------------------------------

    def _check_number(self, key: MessageKey, fate: Fate, sequence_number: int) -> None:
        owner = self._keys.setdefault(sequence_number, key)
        if owner != key:
            text = f"number {sequence_number} was of {owner}, then of {key}"
            self.violate("sequence number reused", text)
        if fate.sequence_number is None:
            fate.sequence_number = sequence_number
        elif fate.sequence_number != sequence_number:
            text = f"{key} came as {fate.sequence_number}, then as {sequence_number}"
            self.violate("stored twice", text)

    def _check_order(self, key: MessageKey, fate: Fate, link: Link) -> None:
        sender = key[0]
        this = self._place(key), key
        on_link = (link.number, sender)
        newest = self._newest_on_link.get(on_link, this)
        if this < newest and link.incarnation not in self._disturbed_incarnations:
            self.violate("out of order", f"{key} after {newest[1]} on link {link.number}")
        self._newest_on_link[on_link] = max(newest, this)
        if self._order is Order.STRICT and not fate.deliveries:
            newest = self._newest_first_seen.get(sender, this)
            if this < newest:
                self.violate("out of order", f"{key} first seen after {newest[1]}")
            self._newest_first_seen[sender] = max(newest, this)

    def _place(self, key: MessageKey) -> int:
        """Where the message, which a receiver holds, stands among the sends of its sender."""
        return key[1]

    @property
    def backlog(self) -> int:
        """How many accepted messages no receiver has seen; a little less when sends are in doubt."""
        return self._counts["accepted"] - self._counts["seen"]

    def was_seen(self, key: MessageKey) -> bool:
        """Whether the message ever arrived."""
        fate = self._fates.get(key)
        return fate is not None and fate.deliveries > 0

    def completion_of(self, key: MessageKey) -> Completion:
        """What is known of its completion."""
        return self._fates[key].completion

    def audit(self) -> Report:
        """Judge, once everything that was left in the entity has been received and completed."""
        for key, fate in self._fates.items():
            if fate.send is Send.ACCEPTED and fate.completion is Completion.NONE:
                seen = f"seen {fate.deliveries} times" if fate.deliveries else "never seen"
                self.violate("lost", f"{key} was accepted, {seen} and is gone")
        if self._order is not Order.NONE:
            self._check_stored_order()
        return Report(self._final_counts(), self.violations)

    def _check_stored_order(self) -> None:
        by_sender: dict[str, list[tuple[Placed, int]]] = {}
        for key, fate in self._fates.items():
            if fate.sequence_number is not None:
                placed = self._place(key), key
                by_sender.setdefault(key[0], []).append((placed, fate.sequence_number))
        for numbers in by_sender.values():
            for (_, before), ((_, key), after) in pairwise(sorted(numbers)):
                if after < before:
                    text = f"{key} has number {after}, the one before it {before}"
                    self.violate("stored out of order", text)

    def _final_counts(self) -> dict[str, int]:
        fates = self._fates.values()
        doubtful = [fate for fate in fates if fate.send is Send.IN_DOUBT]
        return {
            "sent": len(fates),
            "accepted": sum(fate.send is Send.ACCEPTED for fate in fates),
            "refused": sum(fate.send is Send.REFUSED for fate in fates),
            "sends in doubt": len(doubtful),
            "of these stored": sum(fate.sequence_number is not None for fate in doubtful),
            "deliveries": self._counts["deliveries"],
            "redeliveries": sum(max(fate.deliveries - 1, 0) for fate in fates),
            "completed": sum(fate.completion is Completion.CONFIRMED for fate in fates),
            "completions in doubt": sum(fate.completion is Completion.IN_DOUBT for fate in fates),
            "completions refused": self._counts["completions refused"],
            "connections lost without a kill": self._counts["connections lost without a kill"],
        }
