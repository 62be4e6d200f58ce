"""How much memory clients make the broker hold: sessions, links and messages that have not arrived completely.

Every connection has a budget, and all connections share one. When the shared budget is used up, the connection that
holds most of it is closed, so that one client cannot keep others from working. A connection that requires a token and
has none yet has a much smaller budget, and shares one with all connections without a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.model.limits import RELAXED

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.model.limits import Limits

CONNECTION_BYTES = 64 * 1024
"""The memory of a connection itself. Counted only until the client has a token: afterwards the number of
connections is bounded."""
SESSION_BYTES = 4 * 1024
LINK_BYTES = 6 * 1024
ATTACH_PLAIN_BYTES = 1024
"""An attach of this size or less is in `LINK_BYTES`."""
DECODED_FACTOR = 16
"""Proton keeps properties decoded, which takes about 16 times their encoded size."""


class MemoryBudget:
    """How much connections may hold together, and which connections hold any."""

    def __init__(self, max_bytes: int, max_bytes_per_connection: int) -> None:
        self.max_bytes = max_bytes
        self.max_bytes_per_connection = max_bytes_per_connection
        self.used_bytes = 0
        self.holders: dict[HeldMemory, None] = {}
        """Connections that hold anything, the oldest first."""

    def largest(self) -> HeldMemory:
        """Returns the connection that holds most, and of equals the oldest."""
        return max(self.holders, key=lambda holder: holder.held_bytes)


class MemoryBudgets:
    """The budgets of one broker."""

    def __init__(self, limits: Limits) -> None:
        self.authenticated = MemoryBudget(
            limits.held_max_bytes, limits.held_per_connection_max_bytes
        )
        self.unauthenticated = MemoryBudget(
            limits.held_without_token_max_bytes, limits.held_without_token_per_connection_max_bytes
        )
        """For connections that require a token and have none yet."""


class HeldMemory:
    """The account of one connection. `close_connection` closes it when others need the memory."""

    def __init__(
        self, budgets: MemoryBudgets, close_connection: Callable[[], None], *, needs_token: bool
    ) -> None:
        self._budgets = budgets
        self._close_connection: Callable[[], None] | None = close_connection
        """None after `end`: then the connection is not counted any more."""
        self._budget = budgets.unauthenticated if needs_token else budgets.authenticated
        self.held_bytes = 0
        if needs_token:
            self.hold(CONNECTION_BYTES)

    def hold(self, size_bytes: int) -> bool:
        """Adds bytes. Returns False if the connection holds too much and must be closed."""
        if self._close_connection is None:
            return True  # the connection is closing and is not counted any more
        budget = self._budget
        self.held_bytes += size_bytes
        budget.used_bytes += size_bytes
        budget.holders[self] = None
        if self.held_bytes > budget.max_bytes_per_connection:
            return False
        while budget.used_bytes > budget.max_bytes:
            largest = budget.largest()
            if largest is self:
                return False
            largest.evict()
        return True

    def release(self, size_bytes: int) -> None:
        """Subtracts bytes."""
        if self._close_connection is None:
            return
        self.held_bytes -= size_bytes
        self._budget.used_bytes -= size_bytes
        if not self.held_bytes:
            self._budget.holders.pop(self, None)

    def use_authenticated_budget(self) -> None:
        """Moves the account to the larger budget, because the client has a valid token."""
        if self._close_connection is None or self._budget is self._budgets.authenticated:
            return
        held_bytes = self.held_bytes
        self.release(held_bytes)
        self._budget = self._budgets.authenticated
        self.hold(held_bytes - CONNECTION_BYTES)

    def evict(self) -> None:
        """Closes the connection, because others need the memory."""
        close_connection = self._close_connection
        self.end()
        if close_connection is not None:
            close_connection()

    def end(self) -> None:
        """Subtracts everything, because the connection is closing."""
        self.release(self.held_bytes)
        self._close_connection = None

    @property
    def refusal(self) -> str:
        """The text with which a connection is closed that holds too much."""
        if self._budget is self._budgets.unauthenticated:
            return (
                "Before a token is put, a connection may hold only a few links, sessions and bytes "
                "of unfinished messages, and all such connections share little room."
            )
        return (
            "Too many links, sessions or bytes of unfinished messages: at most "
            f"{self._budget.max_bytes_per_connection} bytes are held for a connection and "
            f"{self._budget.max_bytes} for all of them together."
        )


def link_bytes(attach_bytes: int) -> int:
    """Returns the memory of a link that was attached with a frame of this size."""
    return LINK_BYTES + DECODED_FACTOR * max(0, attach_bytes - ATTACH_PLAIN_BYTES)


def unshared_memory() -> HeldMemory:
    """Returns an account that shares its budget with no other connection."""
    return HeldMemory(MemoryBudgets(RELAXED), lambda: None, needs_token=False)
