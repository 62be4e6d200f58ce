"""The sessions of an entity: who holds them, their states, what waits in them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import Field

from broker.core.contract import control_operations as control
from protocol.http.control import pacing
from protocol.http.control.message_json import LockAnswer, write_lock
from protocol.http.control.message_scan import PAGE_MAX_BYTES
from protocol.http.control.request_models import AnswerModel, EntityPath, RequestModel
from protocol.http.control.routes import Route
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.http.control.routes import Answer, Call

PAGE_MAX = 1000


class SessionAnswer(AnswerModel):
    """A session."""

    session_id: str
    messages: int = Field(description="all its messages, in any state")
    locked: int
    lock: LockAnswer | None = Field(description="who holds the session; null if nobody does")
    state: str | None = Field(description="its state as text, or as base64")
    state_format: str | None = Field(description="text or base64; null if there is no state")
    state_size_bytes: int
    state_updated_at: str | None


class SessionsAnswer(AnswerModel):
    """Sessions, ordered by id. A page may have fewer than `limit`, if their states are large."""

    sessions: list[SessionAnswer]
    waiting_receivers: int = Field(description="receivers that wait for the next session")
    next: str | None = Field(description="`after` of the next page; null if this is the last")


class SessionsQuery(RequestModel):
    """Which sessions."""

    entity: EntityPath
    after: str | None = Field(None, max_length=1000, description="`next` of the page before")
    limit: int = Field(100, ge=1, le=PAGE_MAX)


async def list_sessions(call: Call) -> Answer:
    """Lists sessions."""
    query: SessionsQuery = call.query
    read: control.SessionsRead = await call.ask(
        control.ReadSessions(query.entity.strip("/"), query.after, query.limit + 1)
    )
    page = _within_bytes(read.sessions[: query.limit])
    # Each session becomes JSON by itself, with pauses: all states at once would make other clients wait.
    written = await pacing.each(call, page, lambda one: json.dumps(_written(call, one)))
    following = page[-1].session_id if len(read.sessions) > len(page) else None
    text = (
        f'{{"sessions": [{", ".join(written)}], "waiting_receivers": {read.waiting_receivers}, '
        f'"next": {json.dumps(following)}}}'
    )
    return web.Response(text=text, content_type="application/json")


def _within_bytes(sessions: Sequence[control.SessionView]) -> Sequence[control.SessionView]:
    """Returns the first sessions whose states are not too large together."""
    size = 0
    for position, session in enumerate(sessions):
        size += len(session.state or b"")
        if size > PAGE_MAX_BYTES and position:
            return sessions[:position]
    return sessions


def _written(call: Call, session: control.SessionView) -> dict[str, Any]:
    state, state_format = None, None
    if session.state is not None:
        try:
            state, state_format = session.state.decode(), "text"
        except ValueError:
            state, state_format = b64encode(session.state).decode(), "base64"
    lock = session.lock
    return {
        "session_id": session.session_id,
        "messages": session.message_count,
        "locked": session.locked_count,
        "lock": None if lock is None else write_lock(lock, call.services.holder_of),
        "state": state,
        "state_format": state_format,
        "state_size_bytes": len(session.state or b""),
        "state_updated_at": write_time(session.state_updated_ms),
    }


ROUTES = (
    Route(
        "GET",
        "/sessions",
        "listSessions",
        "List the sessions of an entity with holders and states",
        list_sessions,
        SessionsAnswer,
        query=SessionsQuery,
    ),
)
