"""Keeps the operations of a link in order while some of them are delayed.

A delayed operation also delays the later operations of its link. So a delay does not change the order of messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], None]


class _Item:
    __slots__ = ("is_ready", "work")

    def __init__(self, work: Work, *, is_ready: bool) -> None:
        self.work = work
        self.is_ready = is_ready


class OrderedWork:
    """Work that is done in the order in which it was added."""

    __slots__ = ("_later", "_waiting")

    def __init__(self, later: Callable[[float, Work], None]) -> None:
        self._later = later
        self._waiting: deque[_Item] = deque()

    @property
    def is_waiting(self) -> bool:
        """Whether something is delayed."""
        return bool(self._waiting)

    def add(self, work: Work, delay_s: float = 0.0) -> None:
        """Does work after this long, and after everything that was added before."""
        if not delay_s and not self._waiting:
            work()
            return
        item = _Item(work, is_ready=not delay_s)
        self._waiting.append(item)
        if delay_s:
            self._later(delay_s, lambda: self._become_ready(item))

    def clear(self) -> None:
        """Drops what is delayed."""
        self._waiting.clear()

    def _become_ready(self, item: _Item) -> None:
        item.is_ready = True
        while self._waiting and self._waiting[0].is_ready:
            self._waiting.popleft().work()
