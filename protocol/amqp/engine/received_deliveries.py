"""The deliveries that a client sent and the broker has not settled.

The rest of the broker knows a delivery by its number on the link. Numbers are never used again, so that of a settled
delivery means nothing, whatever Proton does with its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReceivedDeliveries:
    """The unsettled deliveries of a link on which the client sends."""

    __slots__ = ("next_number", "unsettled")

    def __init__(self) -> None:
        self.unsettled: dict[int, int] = {}
        """Addresses of Proton's deliveries by number. `take` in `protocol/native/proton.c` adds some, too: whoever calls it
        counts them."""
        self.next_number = 0

    def __len__(self) -> int:
        """Returns the number of deliveries."""
        return len(self.unsettled)

    def add(self, address: int) -> int:
        """Adds a delivery and returns its number."""
        number = self.next_number
        self.next_number = number + 1
        self.unsettled[number] = address
        return number

    def settle(self, numbers: Sequence[int | None], code: int) -> None:
        """Settles deliveries with an outcome that has no fields, or with none if the code is 0."""
        numbers = numbers if isinstance(numbers, list) else list(numbers)
        compiled.settle(self.unsettled, numbers, code)

    def forget(self, numbers: Sequence[int | None]) -> list[int]:
        """Forgets deliveries that the caller settles, and returns their addresses."""
        addresses = self.unsettled
        return [addresses.pop(number) for number in numbers if number in addresses]

    def clear(self) -> None:
        """Forgets all deliveries, because their link is freed."""
        self.unsettled.clear()
