"""What clients leave unread of all that was written to them, over all connections.

A client that reads slowly has nothing more delivered, and one that leaves much unread is not listened to
any more (`transport.py`). With many such clients what each may leave unread adds up: this bounds the sum,
at the expense of the one that left most.
"""

from __future__ import annotations

from typing import Protocol

import structlog

log = structlog.get_logger("peeklock.clients")


class Writer(Protocol):
    """A connection that is written to."""

    def abort(self) -> None:
        """End it without another word."""


class UnreadOutput:
    """How much is left unread, and by whom."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_writer: dict[Writer, int] = {}
        self.total_bytes = 0

    def note(self, writer: Writer, size_bytes: int) -> None:
        """So much waits to be read on a connection now."""
        self.total_bytes += size_bytes - self._by_writer.get(writer, 0)
        if size_bytes:
            self._by_writer[writer] = size_bytes
        else:
            self._by_writer.pop(writer, None)
        while self.total_bytes > self._max_bytes:
            self._cut_off()

    def _cut_off(self) -> None:
        """End the connection that left most unread. It would not read a reason either."""
        largest = max(self._by_writer, key=self._by_writer.__getitem__)
        log.warning("connection.unread", unread_bytes=self._by_writer[largest])
        self.note(largest, 0)
        largest.abort()
