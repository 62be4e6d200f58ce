"""Delivery ids of one session: what the client wrote, and what Proton expects.

Proton closes a connection whose incoming delivery ids are not consecutive. The service ignores them, and the Python
SDK depends on that: under concurrency it writes ids out of order and some twice. So every incoming delivery gets the
id that Proton expects, dispositions to the client get the client's id, and dispositions of the client as a sender get
Proton's id.

While the client's ids are consecutive, nothing is kept: `renumbered` is False and both ids are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SERIAL_MASK = 0xFFFFFFFF
_HALF = 1 << 31

Range = tuple[int, int]
"""First and last id of a disposition, both included."""


class DeliveryIds:
    """The incoming deliveries of one session by both of their ids."""

    __slots__ = ("_client_ids", "_first_renumbered", "_last_client_id", "_numbers", "next_number")

    def __init__(self) -> None:
        self.next_number: int | None = None
        """Proton's id of the next delivery. None before the first, whose id is taken from the client."""
        self._first_renumbered: int | None = None
        """Deliveries before this one have the same id on both sides."""
        self._last_client_id = 0
        self._client_ids: dict[int, tuple[int, set[int]]] = {}
        """The client's ids of the unsettled deliveries from `_first_renumbered` on, by Proton's id; with the set of
        all such deliveries of the same link."""
        self._numbers: dict[int, list[int]] = {}
        """Proton's ids by the client's id: a client may use one id for several deliveries."""

    @property
    def renumbered(self) -> bool:
        """Whether the two ids of a delivery may differ."""
        return self._first_renumbered is not None

    def assign(self, client_id: int | None, unsettled: set[int] | None) -> int:
        """Returns Proton's id of a new delivery. If the client wrote no id, it is the next one. `unsettled` is the set of
        renumbered deliveries of its link, or None if this one is settled."""
        number = self.next_number
        if number is None:
            number = client_id or 0
        self.next_number = (number + 1) & SERIAL_MASK
        if self._first_renumbered is None:
            if client_id is None or client_id == number:
                return number
            self._first_renumbered = number
        elif client_id is None:
            client_id = (self._last_client_id + 1) & SERIAL_MASK
        self._last_client_id = client_id
        if unsettled is not None:
            self._client_ids[number] = client_id, unsettled
            self._numbers.setdefault(client_id, []).append(number)
            unsettled.add(number)
        return number

    def forget(self, number: int) -> None:
        """Forgets a delivery that is settled."""
        known = self._client_ids.pop(number, None)
        if known is None:
            return
        client_id, unsettled = known
        unsettled.discard(number)
        numbers = self._numbers[client_id]
        numbers.remove(number)
        if not numbers:
            del self._numbers[client_id]

    def to_client(self, first: int, last: int, *, settled: bool) -> list[Range]:
        """Returns the ranges of client ids for a disposition of the broker, in Proton's order."""
        client_ids = self._client_ids
        numbers = list(_serials(first, last))
        ranges = ranges_of(
            client_ids[number][0] if number in client_ids else number for number in numbers
        )
        if settled:
            for number in numbers:
                self.forget(number)
        return ranges

    def from_client(self, first: int, last: int, *, settled: bool) -> list[Range]:
        """Returns the ranges of Proton's ids for a disposition of the client. An id that was used for several
        deliveries means all of them."""
        count = ((last - first) & SERIAL_MASK) + 1
        known = self._numbers
        if count <= len(known):
            found = [n for client_id in _serials(first, last) for n in known.get(client_id, ())]
        else:
            found = [
                number
                for client_id, numbers in known.items()
                if (client_id - first) & SERIAL_MASK < count
                for number in numbers
            ]
        start = self.next_number or 0
        ranges = ranges_of(sorted(found, key=lambda number: (number - start) & SERIAL_MASK))
        if settled:
            for number in found:
                self.forget(number)
        return [*self._before_renumbering(first, count), *ranges]

    def _before_renumbering(self, first: int, count: int) -> list[Range]:
        """Returns the part of a range with deliveries whose ids are the same on both sides."""
        if self._first_renumbered is None:
            return [(first, (first + count - 1) & SERIAL_MASK)]
        ahead = (self._first_renumbered - first) & SERIAL_MASK
        if not 0 < ahead < _HALF:
            return []
        return [(first, (first + min(count, ahead) - 1) & SERIAL_MASK)]


def is_range(first: int, last: int) -> bool:
    """Whether `last` does not come before `first` (RFC 1982)."""
    return (last - first) & SERIAL_MASK < _HALF


def _serials(first: int, last: int) -> Iterator[int]:
    for offset in range(((last - first) & SERIAL_MASK) + 1):
        yield (first + offset) & SERIAL_MASK


def ranges_of(ids: Iterable[int]) -> list[Range]:
    """Returns ids in their order, with consecutive ids joined to ranges."""
    ranges: list[Range] = []
    for each in ids:
        if ranges and each == (ranges[-1][1] + 1) & SERIAL_MASK:
            ranges[-1] = (ranges[-1][0], each)
        else:
            ranges.append((each, each))
    return ranges
