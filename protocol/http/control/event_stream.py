"""Answers a request with server-sent events, for all streams of the control API.

A producer puts events into an `EventQueue`, which never blocks it: if the client reads too slowly, the oldest events are
dropped and the client is told how many. Streams end when their client goes, their source ends, or the broker stops.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from protocol.http.control.control_errors import ControlError

if TYPE_CHECKING:
    from protocol.http.control.routes import Call

EVENTS_MAX = 1_000
"""How many events wait for a client by default. Older ones are dropped."""
STREAMS_MAX = 100
KEEP_ALIVE_S = 15.0
"""After so long without an event a comment is written, so that proxies do not end the connection."""


class Event(NamedTuple):
    """One event."""

    data: dict[str, Any]
    name: str | None = None
    """The type of the event for clients. None: `message`."""
    number: int | None = None
    """The `id` of the event."""


class EventQueue:
    """The events that wait for one client."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._waiting: deque[Event] = deque()
        self._events_max = events_max
        self._dropped_count = 0
        self._is_ended = False
        self._wake = asyncio.Event()

    def put(self, event: Event) -> None:
        """Adds an event, and drops the oldest one if the client reads too slowly."""
        if len(self._waiting) >= self._events_max:
            self._waiting.popleft()
            self._dropped_count += 1
        self._waiting.append(event)
        self._wake.set()

    def end(self) -> None:
        """Ends the stream after the events that wait."""
        self._is_ended = True
        self._wake.set()

    async def take(self) -> list[Event]:
        """Returns all events that wait, and waits for one if there is none. Empty: the stream has ended."""
        while not self._waiting and not self._is_ended:
            self._wake.clear()
            await self._wake.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        if self._dropped_count:
            taken.insert(0, Event({"count": self._dropped_count}, "dropped"))
            self._dropped_count = 0
        return taken


OPEN_STREAMS: web.AppKey[set[EventQueue]] = web.AppKey("open_streams", set)


def prepare(application: web.Application) -> None:
    """Makes an application able to answer with streams. They end when it stops."""
    streams: set[EventQueue] = set()
    application[OPEN_STREAMS] = streams

    async def end_streams(_: web.Application) -> None:
        for queue in streams:
            queue.end()

    application.on_shutdown.append(end_streams)


async def respond(call: Call, queue: EventQueue) -> web.StreamResponse:
    """Writes the events of a queue until it ends or the client goes."""
    streams = call.request.app[OPEN_STREAMS]
    if len(streams) >= STREAMS_MAX:
        raise ControlError(
            429, "too_many_streams", f"{STREAMS_MAX} streams are open; close one of them."
        )
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    streams.add(queue)
    taking: asyncio.Task[list[Event]] | None = None
    try:
        await response.prepare(call.request)
        await response.write(b": the stream is open\n\n")
        while True:
            if taking is None:
                taking = asyncio.get_running_loop().create_task(queue.take())
            # A timeout must not cancel it: it may have taken events already, which would be lost.
            done, _ = await asyncio.wait({taking}, timeout=KEEP_ALIVE_S)
            if not done:
                await response.write(b": keep-alive\n\n")
                continue
            events, taking = taking.result(), None
            if not events:
                return response
            for event in events:
                await response.write(encode(event))
    except ConnectionResetError:
        return response  # the client has gone
    finally:
        streams.discard(queue)
        if taking is not None:
            taking.cancel()


def encode(event: Event) -> bytes:
    """Returns an event as it is on the wire. JSON has no line breaks, so its data is one line."""
    lines = [f"data: {json.dumps(event.data, ensure_ascii=False)}"]
    if event.name is not None:
        lines.insert(0, f"event: {event.name}")
    if event.number is not None:
        lines.insert(0, f"id: {event.number}")
    return ("\n".join(lines) + "\n\n").encode()
