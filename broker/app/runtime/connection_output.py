"""The connections that have something to write, and when they write it.

A connection writes once, after all effects of a turn. While the turn is being written to the disk, its output can be
prepared: the frames are built, and no byte of them leaves before the turn is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("peeklock.turn")


class OutputConnection(Protocol):
    """A connection with something to write."""

    def prepare(self) -> None:
        """Builds the frames of the output so far."""

    def write_prepared(self) -> None:
        """Writes the frames that `prepare` has built. To ask the engine for more output would cost as much again."""

    def flush(self) -> None:
        """Builds the frames of the output so far, and writes all of them."""

    def abort(self) -> None:
        """Closes the connection without sending anything more."""


class ConnectionOutput:
    """The connections with output that is not written yet."""

    def __init__(self) -> None:
        self._touched: dict[OutputConnection, bool] = {}
        """Whether all output of the connection is prepared. The order of a dict is the same in every run, unlike that of a
        set, so that a simulation can repeat a run."""

    def touch(self, connection: OutputConnection) -> None:
        """A connection has something to write."""
        self._touched[connection] = False

    def forget(self, connection: OutputConnection) -> None:
        """A connection is closed."""
        self._touched.pop(connection, None)

    def prepare(self) -> None:
        """Builds the frames of all connections, and writes nothing."""
        for connection in tuple(self._touched):
            self._touched[connection] = True
            if not _is_called(connection, connection.prepare):
                del self._touched[connection]

    def flush(self) -> None:
        """Writes the output of all connections."""
        while self._touched:
            connection, is_prepared = self._touched.popitem()
            _is_called(connection, connection.write_prepared if is_prepared else connection.flush)

    def abort(self) -> None:
        """Ends all connections that have output. None of it is written: what it says has not become durable."""
        while self._touched:
            connection, _ = self._touched.popitem()
            connection.abort()


def _is_called(connection: OutputConnection, method: Callable[[], None]) -> bool:
    """Calls a method. Returns False if it failed: a bug of the broker on one connection ends that one, and no other."""
    try:
        method()
    except Exception:
        log.exception("flush.failed")
        connection.abort()
        return False
    return True
