"""What clients leave unread of all that was written to them, over all connections.

A client that reads slowly has nothing more delivered, and one that leaves much unread is not listened to
any more (`amqp_transport.py`). With many such clients what each may leave unread adds up: this bounds the sum,
at the expense of those that have stopped reading, the one that left most first. Clients that only read
slowly are left alone: many that get a burst at once are no abuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("peeklock.clients")

STALLED_S = 5.0
"""A client that has not caught up for so long may be cut off."""


class WrittenConnection(Protocol):
    """A connection that is written to."""

    def abort(self) -> None:
        """Close the connection without sending anything more."""


class UnreadBytes(NamedTuple):
    """What waits on a connection."""

    size_bytes: int
    since_s: float


class UnreadOutput:
    """How much is left unread, by whom and since when.

    `now_s` is a clock that does not jump; `call_later` has `check` called after so many seconds.
    """

    def __init__(
        self,
        max_bytes: int,
        now_s: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._max_bytes = max_bytes
        self._now_s = now_s
        self._call_later = call_later
        self._by_writer: dict[WrittenConnection, UnreadBytes] = {}
        self._will_check = False
        self.total_bytes = 0

    def note(self, writer: WrittenConnection, size_bytes: int) -> None:
        """Record how many bytes wait to be read on a connection; 0 when the client has caught up."""
        before = self._by_writer.pop(writer, None)
        if before is not None:
            self.total_bytes -= before.size_bytes
        if size_bytes:
            since_s = self._now_s() if before is None else before.since_s
            self._by_writer[writer] = UnreadBytes(size_bytes, since_s)
            self.total_bytes += size_bytes
            if self.total_bytes > self._max_bytes and not self._will_check:
                self._will_check = True
                self._call_later(STALLED_S, self.check)

    def check(self) -> None:
        """Make room at the expense of clients that have stopped reading."""
        self._will_check = False
        stalled_s = self._now_s() - STALLED_S
        stalled = [one for one, unread in self._by_writer.items() if unread.since_s <= stalled_s]
        stalled.sort(key=lambda one: self._by_writer[one].size_bytes)
        while stalled and self.total_bytes > self._max_bytes:
            largest = stalled.pop()
            log.warning("connection.unread", unread_bytes=self._by_writer[largest].size_bytes)
            self.note(largest, 0)
            largest.abort()
        if self.total_bytes > self._max_bytes:
            self._will_check = True
            self._call_later(STALLED_S, self.check)
