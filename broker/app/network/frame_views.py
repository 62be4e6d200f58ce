"""The frames of AMQP connections, for those who look at them: live views, and recordings of the last frames.

A connection has a tap only while somebody looks at its namespace. The tap cuts the bytes of the socket into frames
and keeps their beginnings; they are decoded when they are shown. What a view or a recording keeps is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from broker.app.network.client_views import real_time
from protocol.amqp.wire_view.frame_cutting import FrameCutter
from protocol.amqp.wire_view.frame_decoding import decode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.app.network.amqp_transport import AmqpTransport
    from config.model.limits import Limits
    from protocol.amqp.connection import Connection
    from protocol.amqp.links.link_context import ClientView
    from protocol.amqp.wire_view.frame_cutting import CutFrame

HELD_MAX_FRAMES = 200
"""Frames of a connection that has no namespace yet."""
HELD_MAX_S = 1.0
"""How long they are held. Then they are shown in the default namespace, but not in strict authorization, where the
clients of one namespace are no business of another."""
TAKEN_MAX_FRAMES = 500
FRAME_BYTES = 400
"""What a frame takes in memory besides its bytes."""


class SeenFrame(NamedTuple):
    """A frame as it was on the wire."""

    number: int
    """Increases over all connections of the broker."""
    time_ms: int
    is_output: bool
    frame: CutFrame
    client: ClientView

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return len(self.frame.kept) + FRAME_BYTES


class FrameSelection(NamedTuple):
    """Which connections are looked at. None: all of the namespace."""

    connection_id: str | None = None
    container_id: str | None = None
    """May contain `*`."""

    def includes(self, client: ClientView) -> bool:
        """Returns whether a connection is looked at."""
        if self.connection_id is not None and client.connection_id != self.connection_id:
            return False
        return self.container_id is None or fnmatchcase(client.container_id, self.container_id)


EVERYTHING = FrameSelection()


class Recording:
    """The last frames of a namespace, limited in number and in bytes."""

    def __init__(self, last: int, max_bytes: int) -> None:
        self.selection = EVERYTHING
        self.last = last
        self._max_bytes = max_bytes
        self._bytes = 0
        self._frames: deque[SeenFrame] = deque()

    def add(self, frames: Iterable[SeenFrame]) -> None:
        """Adds frames and drops the oldest."""
        kept = self._frames
        for one in frames:
            kept.append(one)
            self._bytes += one.size_bytes
        while len(kept) > self.last or self._bytes > self._max_bytes:
            self._bytes -= kept.popleft().size_bytes

    def resize(self, last: int) -> None:
        """Changes the number of frames."""
        self.last = last
        self.add(())

    def frames(self, selection: FrameSelection, after: int, last: int) -> list[SeenFrame]:
        """Returns the last of the frames that are selected and come after a number."""
        found: deque[SeenFrame] = deque(maxlen=last)
        found.extend(
            one for one in self._frames if one.number > after and selection.includes(one.client)
        )
        return list(found)

    def connection_closed(self, connection_id: str) -> None:
        """Keeps the frames of a connection that was closed."""


class LiveView:
    """The frames that are seen from now on, in a `with` block. If they are not taken in time, the oldest
    are dropped."""

    def __init__(
        self, leave: Callable[[LiveView], None], selection: FrameSelection, max_bytes: int
    ) -> None:
        self._leave = leave
        self.selection = selection
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: deque[SeenFrame] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False
        self._dropped_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self)

    def add(self, frames: Iterable[SeenFrame]) -> None:
        """Adds frames, and drops the oldest if the client reads too slowly."""
        waiting = self._waiting
        for one in frames:
            waiting.append(one)
            self._bytes += one.size_bytes
        while self._bytes > self._max_bytes:
            self._bytes -= waiting.popleft().size_bytes
            self._dropped_count += 1
        self._changed.set()

    def connection_closed(self, connection_id: str) -> None:
        """Ends the view of a single connection."""
        if connection_id == self.selection.connection_id:
            self.end()

    def end(self) -> None:
        """Ends the view after the frames that wait."""
        self._is_ended = True
        self._changed.set()

    async def taken(self) -> tuple[int, list[SeenFrame]]:
        """Waits for frames. Returns how many were dropped before them, and the frames. No frames: there will be no
        more."""
        while not self._waiting and not self._is_ended:
            self._changed.clear()
            await self._changed.wait()
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), TAKEN_MAX_FRAMES))]
        self._bytes -= sum(one.size_bytes for one in taken)
        dropped, self._dropped_count = self._dropped_count, 0
        return dropped, taken


class FrameViews:
    """All views and recordings of the broker."""

    def __init__(
        self,
        transports: Iterable[AmqpTransport],
        limits: Limits,
        real_ms: Callable[[], int],
        *,
        is_strict: bool,
        last: int = 0,
    ) -> None:
        """`last` frames of every namespace are recorded from the beginning."""
        self._transports = transports
        self._limits = limits
        self._real_ms = real_ms
        self._last = last
        self.held_max_s = None if is_strict else HELD_MAX_S
        self._number = 0
        self._views: dict[str, list[Recording | LiveView]] = {}
        self._recordings: dict[str, Recording | None] = {}
        """None: recording was switched off."""

    # --- for the control API -------------------------------------------------------------------------

    def record(self, namespace: str, last: int) -> None:
        """Records the last frames of a namespace from now on. 0: records nothing any more."""
        recording = self._recordings.get(namespace)
        if recording is not None and last:
            recording.resize(last)
            return
        if recording is not None:
            self._views[namespace].remove(recording)
        self._recordings[namespace] = None
        if last:
            self._begin_recording(namespace, last)
        self._attach()

    def recorded_last(self, namespace: str) -> int:
        """Returns how many frames of a namespace are recorded; 0 if none."""
        recording = self._recording(namespace)
        return 0 if recording is None else recording.last

    def frames(
        self,
        namespace: str,
        connection_id: str | None,
        container_id: str | None,
        after: int,
        last: int,
    ) -> list[SeenFrame]:
        """Returns recorded frames, the oldest first."""
        recording = self._recording(namespace)
        if recording is None:
            return []
        return recording.frames(FrameSelection(connection_id, container_id), after, last)

    def watch(
        self, namespace: str, connection_id: str | None, container_id: str | None
    ) -> LiveView:
        """Returns a live view."""
        view = LiveView(
            lambda view: self._leave(namespace, view),
            FrameSelection(connection_id, container_id),
            self._limits.frames_unread_max_bytes,
        )
        self._views.setdefault(namespace, []).append(view)
        self._attach()
        return view

    def is_connected(self, namespace: str, connection_id: str) -> bool:
        """Returns whether there is such a connection."""
        found = (transport.connection for transport in self._transports)
        return any(
            one.client.connection_id == connection_id and one.namespace == namespace
            for one in found
            if one is not None
        )

    def forget(self, namespace: str) -> None:
        """Forgets the frames of a namespace that was deleted. Live views stay until their clients leave."""
        recording = self._recordings.pop(namespace, None)
        if recording is not None:
            self._views[namespace].remove(recording)

    @staticmethod
    def describe(seen: SeenFrame) -> dict[str, Any]:
        """Returns a decoded frame as plain data."""
        return {
            "number": seen.number,
            "time": real_time(seen.time_ms),
            "connection": seen.client.connection_id,
            "container_id": seen.client.container_id,
            "direction": "out" if seen.is_output else "in",
            **decode_frame(seen.frame, is_output=seen.is_output),
        }

    # --- for connections -------------------------------------------------------------------------------

    @property
    def is_looking(self) -> bool:
        """Whether new connections are looked at."""
        return self._last > 0 or any(self._views.values())

    def tap(self, transport: AmqpTransport, connection: Connection, held: bytes = b"") -> None:
        """Looks at a connection. `held` is the beginning of a frame that was read before."""
        transport.tap = FrameTap(self, transport, connection, self._limits.frame_max_bytes, held)

    def seen(
        self, cut: Iterable[CutFrame], client: ClientView, *, is_output: bool
    ) -> list[SeenFrame]:
        """Returns frames with their numbers and the time."""
        time_ms = self._real_ms()
        seen = []
        for one in cut:
            self._number += 1
            seen.append(SeenFrame(self._number, time_ms, is_output, one, client))
        return seen

    def show(self, namespace: str, frames: list[SeenFrame], client: ClientView) -> bool:
        """Shows frames to those who look at their connection. Returns whether there are any."""
        if self._last:
            self._recording(namespace)
        is_shown = False
        for view in self._views.get(namespace, ()):
            if view.selection.includes(client):
                view.add(frames)
                is_shown = True
        return is_shown

    def connection_closed(self, namespace: str, connection_id: str) -> None:
        """Ends the views of one connection."""
        for view in self._views.get(namespace, ()):
            view.connection_closed(connection_id)

    # --- inside --------------------------------------------------------------------------------------------

    def _recording(self, namespace: str) -> Recording | None:
        if self._last and namespace not in self._recordings:
            self._begin_recording(namespace, self._last)
        return self._recordings.get(namespace)

    def _begin_recording(self, namespace: str, last: int) -> None:
        recording = Recording(last, self._limits.frames_recorded_max_bytes)
        self._recordings[namespace] = recording
        self._views.setdefault(namespace, []).append(recording)

    def _leave(self, namespace: str, view: LiveView) -> None:
        self._views[namespace].remove(view)
        if not self.is_looking:
            for transport in self._transports:
                transport.tap = None

    def _attach(self) -> None:
        """Looks at the connections that are open already."""
        if not self.is_looking:
            for transport in self._transports:
                transport.tap = None
            return
        for transport in self._transports:
            connection = transport.connection
            if connection is not None and transport.tap is None:
                self.tap(transport, connection, transport.unprocessed_input)


class FrameTap:
    """Looks at the bytes of one connection."""

    def __init__(
        self,
        views: FrameViews,
        transport: AmqpTransport,
        connection: Connection,
        frame_max_bytes: int,
        held: bytes,
    ) -> None:
        self._views = views
        self._transport = transport
        self._connection = connection
        self._input = FrameCutter(frame_max_bytes, held)
        self._output = FrameCutter(frame_max_bytes)
        self._held: deque[SeenFrame] = deque(maxlen=HELD_MAX_FRAMES)
        """Frames from before the connection had a namespace."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_overdue = False

    def received(self, data: bytes) -> None:
        """Bytes were read."""
        self._add(self._input.cut(data), is_output=False)

    def sent(self, data: bytes) -> None:
        """Bytes are written."""
        self._add(self._output.cut(data), is_output=True)

    def closed(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._show_held(self._connection.namespace)
        client = self._connection.client
        self._views.connection_closed(self._connection.namespace, client.connection_id)

    def _add(self, cut: list[CutFrame], *, is_output: bool) -> None:
        if not cut:
            return
        client = self._connection.client
        frames = self._views.seen(cut, client, is_output=is_output)
        namespace = self._connection.selected_namespace
        if namespace is None and not self._is_overdue:
            self._hold(frames)
            return
        if self._held:
            self._show_held(namespace or self._connection.namespace)
        is_shown = self._views.show(namespace or self._connection.namespace, frames, client)
        if not is_shown and namespace is not None:
            self._transport.tap = None  # nobody looks at this connection

    def _hold(self, frames: list[SeenFrame]) -> None:
        self._held.extend(frames)
        if self._timer is None and self._views.held_max_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._views.held_max_s, self._end_hold)

    def _end_hold(self) -> None:
        self._is_overdue = True
        self._show_held(self._connection.namespace)

    def _show_held(self, namespace: str) -> None:
        if self._held:
            self._views.show(namespace, list(self._held), self._connection.client)
            self._held.clear()
