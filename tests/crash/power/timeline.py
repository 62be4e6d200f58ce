"""The answers that clients got, with their times, for a comparison with the state at any moment.

Clients report to it as to a ledger. `judge` compares it with an image: what was answered before the
cut must be there, what was requested before it may be there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from tests.crash.ledgers.messages import MessageKey
    from tests.crash.ledgers.report import Book

Place = tuple[str, int]
"""An entity's path in small letters, and which of its queues: 1 is that of dead letters."""


@dataclass(slots=True)
class Stay:
    """One message in one place."""

    asked: float
    answered: float = inf
    removal_asked: float = inf
    removal_answered: float = inf
    moved_to: Place | None = None
    """Where the removal takes it; None for good."""
    group: int | None = None
    """Messages of one group are stored together or not at all."""


@dataclass(slots=True)
class Setting:
    """One change of a value."""

    value: Hashable
    asked: float
    answered: float = inf


@dataclass(slots=True)
class Found:
    """What an image holds."""

    messages: dict[Place, set[MessageKey]] = field(default_factory=dict)
    values: Mapping[str, Hashable] = field(default_factory=dict)


class Timeline:
    """All of it, over all runs of the broker."""

    def __init__(self) -> None:
        self._stays: dict[tuple[Place, MessageKey], Stay] = {}
        self._settings: defaultdict[str, list[Setting]] = defaultdict(list)
        self._groups = 0

    # ---- what clients report ------------------------------------------------------------------

    def sending(self, places: Iterable[Place], keys: Iterable[MessageKey]) -> None:
        """These messages are about to be sent to all these places, as one."""
        now = time.monotonic_ns()
        self._groups += 1
        keys = list(keys)
        for place in places:
            for key in keys:
                self._stays[place, key] = Stay(now, group=self._groups)

    def accepted(self, places: Iterable[Place], keys: Iterable[MessageKey]) -> None:
        now = time.monotonic_ns()
        keys = list(keys)
        for place in places:
            for key in keys:
                self._stays[place, key].answered = now

    def delivered(self, place: Place, key: MessageKey) -> None:
        """A receiver holds it: no removal that was asked for earlier has happened."""
        stay = self._stays.get((place, key))
        if stay is None:
            return  # `judge` finds it in an image
        stay.removal_asked = inf
        if stay.moved_to is not None:
            self._stays.pop((stay.moved_to, key), None)
            stay.moved_to = None

    def removing(self, place: Place, key: MessageKey, moved_to: Place | None = None) -> None:
        stay = self._stays[place, key]
        stay.removal_asked = now = time.monotonic_ns()
        stay.moved_to = moved_to
        if moved_to is not None:
            self._stays[moved_to, key] = Stay(now)

    def removed(self, place: Place, key: MessageKey) -> None:
        stay = self._stays[place, key]
        stay.removal_answered = now = time.monotonic_ns()
        if stay.moved_to is not None:
            self._stays[stay.moved_to, key].answered = now

    def setting(self, name: str, value: Hashable) -> None:
        self._settings[name].append(Setting(value, time.monotonic_ns()))

    def was_set(self, name: str) -> None:
        self._settings[name][-1].answered = time.monotonic_ns()

    @property
    def counts(self) -> dict[str, int]:
        stays, changes = self._stays.values(), sum(map(len, self._settings.values()))
        return {
            "messages in places": len(stays),
            "accepted": sum(stay.answered < inf for stay in stays),
            "removed": sum(stay.removal_answered < inf for stay in stays),
            "changes of values": changes,
        }

    # ---- judging ------------------------------------------------------------------------------

    def judge(self, cut: float, found: Found, book: Book, image: str) -> None:
        """Compare with the state that a cut at this time has left."""
        groups: defaultdict[int, list[bool]] = defaultdict(list)
        for (place, key), stay in self._stays.items():
            is_there = key in found.messages.get(place, ())
            text = f"{key} in {place}, {image}"
            if is_there:
                if stay.asked > cut:
                    book.violate("not sent yet", text)
                elif stay.removal_answered < cut:
                    book.violate("back", text)
            elif stay.answered < cut < stay.removal_asked:
                book.violate("lost", text)
            if stay.group is not None and stay.asked < cut < stay.removal_asked:
                groups[stay.group].append(is_there)
            if stay.moved_to is not None and stay.answered < cut:
                in_the_other = key in found.messages.get(stay.moved_to, ())
                if is_there == in_the_other and stay.removal_asked < cut:
                    book.violate("moved in part", text)
        for present in groups.values():
            if any(present) and not all(present):
                book.violate("stored in part", f"{sum(present)} of {len(present)}, {image}")
        for place, keys in found.messages.items():
            for key in keys:
                if (place, key) not in self._stays:
                    book.violate("unknown", f"{key} in {place}, {image}")
        for name, settings in self._settings.items():
            self._judge_value(name, settings, cut, found.values.get(name), book, image)

    @staticmethod
    def _judge_value(
        name: str, settings: list[Setting], cut: float, value: Hashable, book: Book, image: str
    ) -> None:
        possible: list[Hashable] = [None]
        for setting in settings:
            if setting.answered < cut:
                possible = [setting.value]
            elif setting.asked < cut:
                possible.append(setting.value)
        if value not in possible:
            book.violate("value lost", f"{name} is {value}, may be {possible}, {image}")
