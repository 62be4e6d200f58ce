"""Limits the log lines for events that clients can repeat at will.

The first of several similar events is logged at once. Those that follow within a time window are
counted, and one line with their count and the last of them is logged when the window ends. Memory
and the number of lines are bounded: if a window has too many kinds of an event, further kinds are
counted under their wider kind, and the line says `various`.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

WINDOW_S = 10.0
KINDS_MAX = 100
"""How many kinds of events are counted separately in one window."""
TEXT_MAX_CHARACTERS = 300
"""Of what a client wrote, such as the name of an entity that does not exist."""

_NODE_BITS = 48


class LogMethod(Protocol):
    """A method of a logger."""

    def __call__(self, event: str, **fields: object) -> object: ...


class RepeatedEvent:
    """Similar events since the first of them."""

    __slots__ = (
        "_base",
        "_event",
        "_fields",
        "_various",
        "_write_line",
        "count",
        "since_s",
        "written",
    )

    def __init__(
        self,
        write_line: LogMethod,
        event: str,
        since_s: float,
        base: uuid.UUID,
        *,
        various: bool = False,
    ) -> None:
        self._write_line = write_line
        self._event = event
        self._various = various
        self._fields: dict[str, object] = {}
        self._base = base.int
        self.since_s = since_s
        self.count = 0
        self.written = 0

    def tracking_id(self, number: int) -> str:
        """The tracking id of one of these events. The ids differ only in the last group, so that each
        of them leads to the log lines."""
        last = (self._base + number) & ((1 << _NODE_BITS) - 1)
        return str(uuid.UUID(int=self._base >> _NODE_BITS << _NODE_BITS | last))

    def note(self, fields: dict[str, object], *, at_once_max: int, tracked: bool, more: int) -> str:
        """Count one more event, and log it if it is among the first. Returns its tracking id."""
        tracking_id = self.tracking_id(self.count) if tracked else ""
        self.count += 1 + more
        fields = {name: _short(value) for name, value in fields.items()}
        if tracked:
            fields["tracking_id"] = tracking_id
        if self.written < at_once_max:
            self.written += 1
            self._write_line(self._event, **fields)
        self._fields = fields
        return tracking_id

    def write_summary(self, now_s: float) -> None:
        """Log how many events were not written, and the last of them."""
        if self.count > self.written:
            various = {"various": True} if self._various else {}
            self._write_line(
                f"{self._event}.repeated",
                count=self.count - self.written,
                seconds=round(now_s - self.since_s, 1),
                **various,
                **self._fields,
            )


class RepeatedEvents:
    """All events that are being counted."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._now_s = now_s
        self._new_uuid = new_uuid
        self._events: dict[str, dict[Hashable, RepeatedEvent]] = {}
        """By event, of which there are few, and kind; the oldest kind first."""

    def configure(
        self,
        now_s: Callable[[], float] = time.monotonic,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        """Discards all counts, and uses these sources of time and ids from now on."""
        self._now_s = now_s
        self._new_uuid = new_uuid
        self._events = {}

    def note(
        self,
        write_line: LogMethod,
        event: str,
        kind: Hashable,
        *,
        wider_kind: Hashable = None,
        at_once_max: int = 1,
        tracked: bool = False,
        more: int = 0,
        **fields: object,
    ) -> str:
        """Log an event, or count it. Kinds may be as many as clients make up, wider kinds must be
        few. `more` like it are counted with it. Returns its tracking id if it is to have one."""
        now_s = self._now_s()
        self.write_summaries(now_s)
        kinds = self._events.setdefault(event, {})
        known = kinds.get(kind)
        if known is None:
            if various := len(kinds) >= KINDS_MAX:
                kind = ("various", wider_kind)
                known = kinds.get(kind)
            if known is None:
                known = kinds[kind] = RepeatedEvent(
                    write_line, event, now_s, self._new_uuid(), various=various
                )
        return known.note(fields, at_once_max=at_once_max, tracked=tracked, more=more)

    def write_summaries(self, now_s: float | None = None) -> None:
        """Log the summaries of windows that have ended."""
        if now_s is None:
            now_s = self._now_s()
        for kinds in self._events.values():
            while kinds:
                kind, oldest = next(iter(kinds.items()))
                if now_s - oldest.since_s < WINDOW_S:
                    break
                del kinds[kind]
                oldest.write_summary(now_s)

    def write_all(self) -> None:
        """Log all summaries, because the process stops."""
        now_s = self._now_s()
        events, self._events = self._events, {}
        for kinds in events.values():
            for repeated in kinds.values():
                repeated.write_summary(now_s)


repeated_events = RepeatedEvents()
"""The events of this process. Like the configuration of logging, there is one for each process: Proton reports to it
from a callback that belongs to no connection. `configure` injects its sources."""


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > TEXT_MAX_CHARACTERS:
        return f"{value[:TEXT_MAX_CHARACTERS]}..."
    return value
