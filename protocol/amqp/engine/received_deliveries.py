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

    __slots__ = ("_addresses", "_next_number")

    def __init__(self) -> None:
        self._addresses: dict[int, int] = {}
        """Addresses of Proton's deliveries by number."""
        self._next_number = 0

    def __len__(self) -> int:
        """Returns the number of deliveries."""
        return len(self._addresses)

    @property
    def unsettled(self) -> dict[int, int]:
        """The numbers of the deliveries, in their order."""
        return self._addresses

    def add(self, address: int) -> int:
        """Adds a delivery and returns its number."""
        number = self._next_number
        self._next_number = number + 1
        self._addresses[number] = address
        return number

    def take(
        self,
        collector_address: int,
        link_address: int,
        limit: int,
        max_bytes: int,
        may_be_settled: bool,  # noqa: FBT001 -- without names, because it is called for every read
    ) -> tuple[list[int], list[bytes], bool, int]:
        """Takes messages from Proton, see `take` in `protocol/native/proton.c`, and adds their deliveries."""
        taken = compiled.take(
            collector_address,
            link_address,
            self._addresses,
            self._next_number,
            limit,
            max_bytes,
            may_be_settled,
        )
        self._next_number += len(taken[0])
        return taken

    def settle(self, numbers: Sequence[int | None], code: int) -> None:
        """Settles deliveries with an outcome that has no fields, or with none if the code is 0."""
        compiled.settle(self._addresses, list(numbers), code)

    def forget(self, numbers: Sequence[int | None]) -> list[int]:
        """Forgets deliveries that the caller settles, and returns their addresses."""
        addresses = self._addresses
        return [addresses.pop(number) for number in numbers if number in addresses]

    def clear(self) -> None:
        """Forgets all deliveries, because their link is freed."""
        self._addresses.clear()
