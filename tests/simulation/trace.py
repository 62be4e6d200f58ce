"""The events of a run in order: a hash of all events, and the text of the last ones."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_KEPT = 60
BYTES_SHOWN = 24


class Trace:
    """Two runs of a seed are the same run if their traces have the same hash."""

    def __init__(self, now_s: Callable[[], float], show: Callable[[str], None] | None) -> None:
        self._now_s = now_s
        self._show = show
        self._hash = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._lines_up_to_finding: list[str] | None = None
        self.events = 0

    def note(self, what: str, data: bytes = b"") -> None:
        head = f"{self._now_s():11.6f} {what}"
        self.events += 1
        self._hash.update(head.encode())
        self._hash.update(data)
        line = f"{head} {len(data)} bytes {data[:BYTES_SHOWN]!r}" if data else head
        self._lines.append(line)
        if self._show is not None:
            self._show(line)

    def note_finding(self, what: str) -> None:
        """Keeps the events before a finding, regardless of what follows."""
        self.note(f"BROKEN PROMISE {what}")
        if self._lines_up_to_finding is None:
            self._lines_up_to_finding = list(self._lines)

    @property
    def lines(self) -> list[str]:
        """The last events before the first thing that was wrong, or else before the end."""
        if self._lines_up_to_finding is not None:
            return self._lines_up_to_finding
        return list(self._lines)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()[:16]
