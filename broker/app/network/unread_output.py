"""Limits the output that clients have not read, over all connections.

`amqp_transport.py` limits each connection. With many clients that do not read, the sum becomes too large: then
the clients that have stopped reading are disconnected, the one with the most unread output first. Clients
that only read slowly are not disconnected: a burst to many clients at once is no abuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("peeklock.clients")

STALLED_S = 5.0
"""A client that has had unread output for so long may be disconnected."""
CHECK_SOON_S = 0.1


class WrittenConnection(Protocol):
    """A connection with output."""

    def abort(self) -> None:
        """Closes the connection without sending anything more."""


class UnreadBytes(NamedTuple):
    """The unread output of a connection."""

    size_bytes: int
    since_s: float


class UnreadOutput:
    """The unread output of all connections.

    `now_s` is a monotonic clock. `call_later` calls a function after a number of seconds.
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
        """Records how many bytes of a connection are unread; 0 if the client has read everything."""
        before = self._by_writer.pop(writer, None)
        if before is not None:
            self.total_bytes -= before.size_bytes
        if size_bytes:
            since_s = self._now_s() if before is None else before.since_s
            self._by_writer[writer] = UnreadBytes(size_bytes, since_s)
            self.total_bytes += size_bytes
            if self.total_bytes > self._max_bytes and not self._will_check:
                self._check_later()

    def _check_later(self) -> None:
        """Checks when the next client has stopped reading for long enough; soon, if one has already."""
        self._will_check = True
        oldest_s = min(unread.since_s for unread in self._by_writer.values())
        self._call_later(max(CHECK_SOON_S, oldest_s + STALLED_S - self._now_s()), self.check)

    def check(self) -> None:
        """Disconnects clients that have stopped reading, until the sum is below the limit."""
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
            self._check_later()
