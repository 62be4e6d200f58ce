"""The history of messages: every transition, by message id, number, session or expression, and as a live stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import Field

from protocol.http.control import event_stream
from protocol.http.control.control_errors import ControlError
from protocol.http.control.expressions import TEXT_MAX_CHARACTERS
from protocol.http.control.history_stream import HistoryStream
from protocol.http.control.messages_resource import SEQUENCE_NUMBER_MAX, compiled
from protocol.http.control.pacing import Pace
from protocol.http.control.request_models import AnswerModel, EntityPath, RequestModel, SubQueue
from protocol.http.control.routes import Route
from protocol.http.control.transition_json import (
    TransitionAnswer,
    TransitionSelection,
    write_transition,
)

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control_services import HistoryReader

PAGE_MAX = 1_000
BATCHES_AT_ONCE = 100
SCAN_MAX_S = 5.0
"""How long one request searches. Then it answers with what it has, and where to continue."""


class HistoryStreamQuery(RequestModel):
    """Which transitions. Without a field, all."""

    entity: EntityPath | None = Field(
        None, description="only transitions in this entity, and moves to it"
    )
    sub_queue: SubQueue | None = Field(
        None, description="only of this queue of the entity; without it, of all of them"
    )
    message_id: str | None = Field(None, max_length=1000)
    sequence_number: int | None = Field(None, ge=1, le=SEQUENCE_NUMBER_MAX)
    session: str | None = Field(None, max_length=1000)
    filter: str | None = Field(
        None,
        max_length=TEXT_MAX_CHARACTERS,
        description="only transitions for which this SQL expression is true. It is about the message, and about event, "
        "entity, sub_queue, rule, reason and description",
        examples=["event = 'dead_lettered' AND color = 'red'"],
    )
    after: int | None = Field(
        None,
        ge=0,
        le=SEQUENCE_NUMBER_MAX,
        description="only transitions with a higher number. Without it, a stream begins with the next transition",
    )


class HistoryQuery(HistoryStreamQuery):
    """Which transitions. Without a field, all that are kept."""

    limit: int = Field(100, ge=1, le=PAGE_MAX)


class HistoryAnswer(AnswerModel):
    """Transitions, the oldest first. A page may have fewer than `limit`."""

    recording: bool = Field(description="whether transitions are recorded now")
    transitions: list[TransitionAnswer]
    next: int | None = Field(description="`after` of the next page; null if this is the last")
    last: int = Field(description="the number of the last transition so far; 0 if there is none")


class RecordingRequest(RequestModel):
    """Whether transitions are recorded."""

    recording: bool


class RecordingAnswer(AnswerModel):
    """Whether transitions are recorded."""

    recording: bool


async def read_history(call: Call) -> Answer:
    """Reads transitions."""
    query: HistoryQuery = call.query
    selection = selection_of(call, query)
    history = history_of(call)
    stopwatch_s = call.services.sources.stopwatch_s
    ends_s = stopwatch_s() + SCAN_MAX_S
    pace = Pace(call)
    position = max(query.after or 0, history.first_number - 1)
    last = history.last_number
    found: list[str] = []
    while position < last and len(found) < query.limit and stopwatch_s() < ends_s:
        for batch in history.after(position, BATCHES_AT_ONCE):
            end = batch.first_number + len(batch.numbers) - 1
            if not selection.may_match(batch):
                position = end
                continue
            for view in batch.expand(max(0, position + 1 - batch.first_number)):
                position = view.number
                if selection.matches(view):
                    found.append(json.dumps(write_transition(view)))
                await pace.pause()
                if len(found) >= query.limit or position >= last:
                    break
            if len(found) >= query.limit or position >= last or stopwatch_s() > ends_s:
                break
        await pace.pause()
        position = max(position, history.first_number - 1)
    following = position if position < last else None
    recording = call.services.history.is_recording(call.namespace)
    # As one JSON text after the other: a thousand transitions at once would take too long for other clients.
    text = (
        f'{{"recording": {json.dumps(recording)}, "transitions": [{", ".join(found)}], '
        f'"next": {json.dumps(following)}, "last": {last}}}'
    )
    return web.Response(text=text, content_type="application/json")


async def set_recording(call: Call) -> Answer:
    """Begins or ends recording."""
    body: RecordingRequest = call.body
    control = call.services.history
    if body.recording and not control.can_record:
        raise ControlError(
            409,
            "history_off",
            "The broker was started with history=0, so no transition can be recorded.",
            "recording",
        )
    control.set_recording(call.namespace, recording=body.recording)
    return {"recording": control.is_recording(call.namespace)}


async def stream_history(call: Call) -> Answer:
    """Writes transitions as they become durable."""
    query: HistoryStreamQuery = call.query
    selection = selection_of(call, query)
    history = history_of(call)
    after = query.after
    if after is None:
        after = history.last_number
        # An EventSource in a browser connects again with the number of the last event that it got.
        seen = call.request.headers.get("Last-Event-ID", "")
        if seen.isascii() and seen.isdigit():
            after = min(after, int(seen[:20]))
    return await event_stream.respond(call, HistoryStream(call, history, selection, after))


def history_of(call: Call) -> HistoryReader:
    """Returns the history of the namespace of a request."""
    history = call.services.history.of(call.namespace)
    if history is None:
        raise ControlError(
            404, "namespace_not_found", f"There is no namespace '{call.namespace}'.", "namespace"
        )
    return history


def selection_of(call: Call, query: HistoryStreamQuery) -> TransitionSelection:
    """Returns the transitions that a request asks for. Raises `ControlError`."""
    return TransitionSelection(
        query.entity,
        query.sub_queue,
        query.message_id,
        query.sequence_number,
        query.session,
        compiled(call, query.filter, "filter"),
    )


_OFF: dict[int, Any] = {409: "The broker was started with `history=0`."}

ROUTES = (
    Route(
        "GET",
        "/history",
        "readHistory",
        "Read what happened to messages, by message id, sequence number, session or SQL expression",
        read_history,
        HistoryAnswer,
        query=HistoryQuery,
    ),
    Route(
        "PUT",
        "/history",
        "setHistoryRecording",
        "Begin or end recording what happens to messages",
        set_recording,
        RecordingAnswer,
        body=RecordingRequest,
        refusals=_OFF,
    ),
    Route(
        "GET",
        "/history/stream",
        "streamHistory",
        "Follow what happens to messages, as server-sent events",
        stream_history,
        None,
        query=HistoryStreamQuery,
        is_stream=True,
    ),
)
