"""A stream of transitions: reads the history at the speed of its client.

It keeps a position and no transitions, so a client that does not read costs nothing. What was dropped from the
history before the client read it is counted, and the client is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.http.control.event_stream import Event, EventQueue
from protocol.http.control.pacing import Pace
from protocol.http.control.transition_json import write_transition

if TYPE_CHECKING:
    from protocol.http.control.routes import Call
    from protocol.http.control.transition_json import TransitionSelection
    from protocol.http.control_services import HistoryReader

EVENTS_AT_ONCE = 100
BATCHES_AT_ONCE = 100


class HistoryStream(EventQueue):
    """The transitions after a number, as events."""

    def __init__(
        self, call: Call, history: HistoryReader, selection: TransitionSelection, after: int
    ) -> None:
        super().__init__()
        self._history = history
        self._selection = selection
        self._position = after
        self._pace = Pace(call)
        self._is_over = False

    def end(self) -> None:
        """Ends the stream: the broker stops."""
        super().end()
        self._is_over = True
        self._history.wake()

    async def take(self) -> list[Event]:
        """Returns the next events, and waits for one if there is none. Empty: the stream has ended."""
        while not self._is_over:
            events = await self._next()
            if events:
                return events
            if self._position >= self._history.last_number and not await self._history.changed(
                self._position
            ):
                break
        return []

    async def _next(self) -> list[Event]:
        """Returns some events, perhaps none."""
        events: list[Event] = []
        missed = self._history.first_number - 1 - self._position
        if missed > 0:
            events.append(Event({"count": missed}, "dropped"))
            self._position += missed
        for batch in self._history.after(self._position, BATCHES_AT_ONCE):
            if not self._selection.may_match(batch):
                self._position = batch.first_number + len(batch.numbers) - 1
                continue
            for view in batch.expand(max(0, self._position + 1 - batch.first_number)):
                self._position = view.number
                if self._selection.matches(view):
                    events.append(Event(write_transition(view), None, view.number))
                await self._pace.pause()
                if len(events) >= EVENTS_AT_ONCE:
                    return events
        return events
