"""Limits how many connections browse at a time, over all connections.

An answer to a peek is about a megabyte, and it is in memory until the client has read it. Hundreds of clients that
browse and do not read would fill the memory before `UnreadOutput` disconnects them, so only a few connections have a
slot. Of those that wait, clients that read their answers before come first, then the newest, and clients that lost a
slot because they did not read come last. So an honest client does not wait for hundreds that keep a slot until they
lose it. Every fourth slot goes to the connection that has waited longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

    CallLater = Callable[[float, Callable[[], None]], object]

SLOTS = 8
STALLED_CHECK_S = 0.75
"""A connection whose client has not read for one or two times so long loses its slot to one that waits. What it
left unread counts in `UnreadOutput`."""


OLDEST_EVERY = 4
"""Of so many slots, one goes to the connection that has waited longest, whatever it did before."""


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
        """All that wait, the oldest first."""
        self._waiting_readers: dict[SlotHolder, None] = {}
        self._waiting_new: dict[SlotHolder, None] = {}
        """The same by what they did before. Clients that did not read are in neither."""
        self._readers: WeakSet[SlotHolder] = WeakSet()
        self._non_readers: WeakSet[SlotHolder] = WeakSet()
        self._grants = 0
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
        if holder in self._readers:
            self._waiting_readers[holder] = None
        elif holder not in self._non_readers:
            self._waiting_new[holder] = None
        self._check_later()
        return False

    def release(self, holder: SlotHolder) -> None:
        """Takes the slot of a connection, or removes it from those that wait for one."""
        self._stop_waiting(holder)
        self._stalled.discard(holder)
        if holder in self._holders:
            del self._holders[holder]
            has_read, others = self._readers, self._non_readers
            if holder.is_paused:
                has_read, others = others, has_read
            has_read.add(holder)
            others.discard(holder)
            self._grant()

    def _stop_waiting(self, holder: SlotHolder) -> None:
        for waiting in (self._waiting, self._waiting_readers, self._waiting_new):
            waiting.pop(holder, None)

    def _next_holder(self) -> SlotHolder:
        self._grants += 1
        if self._grants % OLDEST_EVERY:
            if self._waiting_readers:
                return next(iter(self._waiting_readers))
            if self._waiting_new:
                return next(reversed(self._waiting_new))
        return next(iter(self._waiting))

    def _grant(self) -> None:
        if self._is_granting:  # a connection released the slot that it was just granted
            return
        self._is_granting = True
        try:
            while self._waiting and len(self._holders) < self._slots:
                holder = self._next_holder()
                self._stop_waiting(holder)
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
