"""The AMQP frames of connections: live, or the last ones if they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from protocol.http.control import event_stream
from protocol.http.control.control_errors import ControlError
from protocol.http.control.event_stream import Event, EventQueue
from protocol.http.control.pacing import Pace, each
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control_services import FrameWatch

LAST_DEFAULT = 1_000
LAST_MAX = 100_000
SHOWN_DEFAULT = 100
SHOWN_MAX = 10_000
CONNECTION = "the id of a connection in GET /connections"
CONTAINER = "the container id that the client chose, exactly or with * for any text"


class FrameAnswer(AnswerModel):
    """A frame, or a protocol header."""

    number: int = Field(description="increases over all connections of the broker")
    time: str = Field(description="in real time")
    connection: str = Field(description=CONNECTION)
    container_id: str = Field(description="empty before the client has opened the connection")
    direction: str = Field(description="in: the client wrote it; out: the broker wrote it")
    channel: int | None = Field(description="null for protocol headers and SASL")
    performative: str = Field(
        description="open, begin, attach, flow, transfer, disposition, detach, end, close, a name such as sasl_init, "
        "header for a protocol header, empty for a heartbeat, or malformed"
    )
    fields: dict[str, Any] = Field(description="those that are not null, by their names in AMQP")
    frame_bytes: int = Field(description="the size on the wire")
    payload_bytes: int = Field(description="what follows the fields of a transfer")
    message: dict[str, Any] | None = Field(
        description="the sections of the message, and of its body the size and a preview; null in the frames that "
        "continue a message"
    )
    error: str | None = Field(description="why the frame, or a part of it, could not be decoded")


class FramesAnswer(AnswerModel):
    """Recorded frames, the oldest first."""

    recording: bool = Field(description="whether frames are recorded now")
    last: int = Field(description="how many frames of the namespace are recorded at most")
    frames: list[FrameAnswer]


class RecordingAnswer(AnswerModel):
    """Whether frames are recorded."""

    recording: bool
    last: int = Field(description="how many frames of the namespace are recorded at most")


class RecordingBody(RequestModel):
    """Starts or stops recording the frames of a namespace. Stopping deletes those that were recorded."""

    recording: bool
    last: int = Field(LAST_DEFAULT, ge=1, le=LAST_MAX, description="how many frames are kept")


class FramesOfConnectionQuery(RequestModel):
    """Which frames are shown."""

    last: int = Field(SHOWN_DEFAULT, ge=1, le=SHOWN_MAX, description="how many, at most")
    after: int = Field(0, ge=0, description="only frames with a larger number")


class FramesQuery(FramesOfConnectionQuery):
    """Which frames are shown."""

    connection: str | None = Field(None, max_length=200, description=CONNECTION)
    container_id: str | None = Field(None, max_length=1_000, description=CONTAINER)


class StreamQuery(RequestModel):
    """Which connections are looked at."""

    container_id: str | None = Field(None, max_length=1_000, description=CONTAINER)


class FrameQueue(EventQueue):
    """The frames of a live view as events. They are decoded when the client reads them."""

    def __init__(self, call: Call, view: FrameWatch) -> None:
        super().__init__()
        self._call = call
        self._view = view

    def end(self) -> None:
        """Ends the stream after the frames that wait."""
        self._view.end()

    async def take(self) -> list[Event]:
        """Returns the frames that wait, and waits for one if there is none. Empty: the stream has ended."""
        dropped, frames = await self._view.taken()
        events = [Event({"count": dropped}, "dropped")] if dropped else []
        pace = Pace(self._call)
        for one in frames:
            shown = self._call.services.frames.describe(one)
            events.append(Event(dict(shown), number=shown["number"]))
            await pace.pause()
        return events


async def get_recording(call: Call) -> Answer:
    """Returns recorded frames of all connections, also of those that are closed."""
    query: FramesQuery = call.query
    return await _recorded(call, query.connection, query.container_id, query)


async def set_recording(call: Call) -> Answer:
    """Starts or stops recording frames."""
    body: RecordingBody = call.body
    frames = call.services.frames
    frames.record(call.namespace, body.last if body.recording else 0)
    last = frames.recorded_last(call.namespace)
    return {"recording": last > 0, "last": last}


async def get_connection_frames(call: Call) -> Answer:
    """Returns the recorded frames of one connection."""
    connection = call.segments["connection"]
    answer = await _recorded(call, connection, None, call.query)
    if not answer["frames"]:
        _check_connection(call, connection)
    return answer


async def stream_frames(call: Call) -> Answer:
    """Streams the frames of all connections, also of those that are opened later."""
    return await _stream(call, None, call.query.container_id)


async def stream_connection_frames(call: Call) -> Answer:
    """Streams the frames of one connection until it is closed."""
    connection = call.segments["connection"]
    _check_connection(call, connection)
    return await _stream(call, connection, None)


async def _recorded(
    call: Call, connection: str | None, container_id: str | None, query: FramesOfConnectionQuery
) -> dict[str, Any]:
    frames = call.services.frames
    last = frames.recorded_last(call.namespace)
    found = frames.frames(call.namespace, connection, container_id, query.after, query.last)
    shown = await each(call, found, frames.describe)
    return {"recording": last > 0, "last": last, "frames": shown}


async def _stream(call: Call, connection: str | None, container_id: str | None) -> Answer:
    with call.services.frames.watch(call.namespace, connection, container_id) as view:
        return await event_stream.respond(call, FrameQueue(call, view))


def _check_connection(call: Call, connection: str) -> None:
    if not call.services.frames.is_connected(call.namespace, connection):
        raise ControlError(
            404,
            "connection_not_found",
            f"There is no connection '{connection[:200]}', and none of its frames is recorded.",
            "connection",
        )


ROUTES = (
    Route(
        "GET",
        "/frames",
        "listFrames",
        "List the recorded AMQP frames of all connections, decoded, without secrets",
        get_recording,
        FramesAnswer,
        query=FramesQuery,
    ),
    Route(
        "PUT",
        "/frames",
        "recordFrames",
        "Start or stop recording the AMQP frames of the namespace",
        set_recording,
        RecordingAnswer,
        body=RecordingBody,
    ),
    Route(
        "GET",
        "/frames/stream",
        "streamFrames",
        "Stream the AMQP frames of all connections, also of those that are opened later",
        stream_frames,
        None,
        query=StreamQuery,
        is_stream=True,
    ),
    Route(
        "GET",
        "/connections/{connection}/frames",
        "listConnectionFrames",
        "List the recorded AMQP frames of one connection",
        get_connection_frames,
        FramesAnswer,
        query=FramesOfConnectionQuery,
    ),
    Route(
        "GET",
        "/connections/{connection}/frames/stream",
        "streamConnectionFrames",
        "Stream the AMQP frames of one connection until it is closed",
        stream_connection_frames,
        None,
        is_stream=True,
    ),
)
