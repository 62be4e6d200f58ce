"""Limits how many connections browse at a time, over all connections.

An answer to a peek is about a megabyte, and it is in memory until the client has read it. Hundreds of clients that
browse and do not read would fill the memory before `UnreadOutput` disconnects them, so only a few connections have a
slot. The others wait in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    CallLater = Callable[[float, Callable[[], None]], object]

SLOTS = 8
STALLED_CHECK_S = 0.75
"""A connection whose client has not read for one or two times so long loses its slot to one that waits. What it
left unread counts in `UnreadOutput`."""


class SlotHolder(Protocol):
    """The browsing links of one connection."""

    @property
    def is_paused(self) -> bool:
        """Whether the client has not read its output."""

    def slot_granted(self) -> None:
        """Continues after waiting for a slot."""


class BrowsingSlots:
    """The slots of all connections. `call_later` calls a function after a number of seconds."""

    def __init__(self, call_later: CallLater, slots: int = SLOTS) -> None:
        self._call_later = call_later
        self._slots = slots
        self._holders: dict[SlotHolder, None] = {}
        self._waiting: dict[SlotHolder, None] = {}
        self._stalled: set[SlotHolder] = set()
        """Holders that were paused at the last check."""
        self._will_check = False
        self._is_granting = False

    @property
    def is_awaited(self) -> bool:
        """Whether a connection waits for a slot."""
        return bool(self._waiting)

    def take(self, holder: SlotHolder) -> bool:
        """Returns whether a connection has a slot. If not, it gets one later."""
        if holder in self._holders:
            return True
        if len(self._holders) < self._slots:
            self._holders[holder] = None
            return True
        self._waiting[holder] = None
        self._check_later()
        return False

    def release(self, holder: SlotHolder) -> None:
        """Takes the slot of a connection, or removes it from those that wait for one."""
        self._waiting.pop(holder, None)
        self._stalled.discard(holder)
        if holder in self._holders:
            del self._holders[holder]
            self._grant()

    def _grant(self) -> None:
        if self._is_granting:  # a connection released the slot that it was just granted
            return
        self._is_granting = True
        try:
            while self._waiting and len(self._holders) < self._slots:
                holder = next(iter(self._waiting))
                del self._waiting[holder]
                self._holders[holder] = None
                holder.slot_granted()
        finally:
            self._is_granting = False

    def _check_later(self) -> None:
        if not self._will_check:
            self._will_check = True
            self._call_later(STALLED_CHECK_S, self._check)

    def _check(self) -> None:
        self._will_check = False
        paused = {holder for holder in self._holders if holder.is_paused}
        if self._waiting:
            for holder in [one for one in self._holders if one in paused & self._stalled]:
                paused.discard(holder)
                self.release(holder)
        self._stalled = paused
        if self._waiting:
            self._check_later()


def unshared_slots() -> BrowsingSlots:
    """Returns slots for a connection that shares them with no other."""
    return BrowsingSlots(lambda *_: None)
