"""Delivery ids of one session: what the client wrote, and what Proton expects.

Proton ends a connection whose incoming delivery ids do not count up one by one. The service does not
look at them, and the Python SDK depends on that: under concurrency it writes ids out of order and
writes some twice. So every incoming delivery gets the id that Proton expects, dispositions that we
send carry the client's id again, and dispositions of the client as a sender carry Proton's.

While the client counts as Proton does, nothing is kept: `renumbered` is False and both are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIAL_MASK = 0xFFFFFFFF
_HALF = 1 << 31

Range = tuple[int, int]
"""First and last id of a disposition, both included."""


class DeliveryIds:
    """The incoming deliveries of one session by both of their ids."""

    __slots__ = ("_client_ids", "_first_renumbered", "_last_client_id", "_numbers", "next_number")

    def __init__(self) -> None:
        self.next_number: int | None = None
        """What Proton will call the next delivery: the first one's id decides."""
        self._first_renumbered: int | None = None
        """Deliveries before this one have the same id on both sides."""
        self._last_client_id = 0
        self._client_ids: dict[int, tuple[int, set[int]]] = {}
        """Of the unsettled deliveries from `_first_renumbered` on, by Proton's id; with the set of
        all such deliveries on the same link."""
        self._numbers: dict[int, list[int]] = {}
        """The same the other way round: a client may use one id for several."""

    @property
    def renumbered(self) -> bool:
        """The two ids of a delivery may differ."""
        return self._first_renumbered is not None

    def assign(self, client_id: int | None, unsettled: set[int] | None) -> int:
        """Proton's id of a new delivery. A client that wrote no id means the next one. `unsettled`
        are the renumbered deliveries of its link, None where this one comes settled."""
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
        """The delivery is settled: no disposition will speak of it any more."""
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
        """A disposition of ours in the client's ids, in Proton's order."""
        client_ids = self._client_ids
        numbers = list(_serials(first, last))
        ranges = _ranges(
            client_ids[number][0] if number in client_ids else number for number in numbers
        )
        if settled:
            for number in numbers:
                self.forget(number)
        return ranges

    def from_client(self, first: int, last: int, *, settled: bool) -> list[Range]:
        """A disposition that the client sent as the sender, in Proton's ids. An id that was used
        for several deliveries means all of them."""
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
        ranges = _ranges(sorted(found, key=lambda number: (number - start) & SERIAL_MASK))
        if settled:
            for number in found:
                self.forget(number)
        return [*self._before_renumbering(first, count), *ranges]

    def _before_renumbering(self, first: int, count: int) -> list[Range]:
        """What of a range names deliveries whose ids never differed."""
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


def _ranges(ids: Iterator[int] | list[int]) -> list[Range]:
    """Ids in their order, those that count up joined."""
    ranges: list[Range] = []
    for each in ids:
        if ranges and each == (ranges[-1][1] + 1) & SERIAL_MASK:
            ranges[-1] = (ranges[-1][0], each)
        else:
            ranges.append((each, each))
    return ranges
