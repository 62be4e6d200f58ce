"""Reads messages: of any queue or sub-queue, by state, session or expression. Nothing is locked or changed."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import Field

from broker.core.contract import control_operations as control
from protocol.http.control import control_errors, message_scan, pacing
from protocol.http.control.expressions import (
    TEXT_MAX_CHARACTERS,
    AllOf,
    MessageFilter,
    TextSearch,
)
from protocol.http.control.message_json import (
    BodyFormat,
    DetailedMessageAnswer,
    MessageAnswer,
    write_message,
)
from protocol.http.control.message_types import write_types
from protocol.http.control.request_models import (
    AnswerModel,
    QueuePath,
    RequestModel,
    SubQueue,
    queue_path,
    split_queue_path,
)
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.expressions import MessageTest
    from protocol.http.control.routes import Answer, Call

PAGE_MAX = 1000
SEQUENCE_NUMBER_MAX = 2**63 - 1


class State(StrEnum):
    """The state of a message. A dead letter is in the dead-letter queue, in any state."""

    ACTIVE = "active"
    LOCKED = "locked"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD_LETTERED = "dead_lettered"


class MessagesQuery(RequestModel):
    """Which messages."""

    entity: QueuePath
    sub_queue: SubQueue = SubQueue.MAIN
    state: State | None = Field(
        None, description="only messages in this state; dead_lettered selects the dead-letter queue"
    )
    session: str | None = Field(None, max_length=1000, description="only messages of this session")
    filter: str | None = Field(
        None,
        max_length=TEXT_MAX_CHARACTERS,
        description="only messages for which this SQL expression is true, such as color = 'red'",
        examples=["color = 'red' AND sys.DeliveryCount > 0"],
    )
    text: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="only messages that contain this text in the body, an id, a property or a reason",
    )
    after: int = Field(0, ge=0, le=SEQUENCE_NUMBER_MAX, description="`next` of the page before")
    limit: int = Field(100, ge=1, le=PAGE_MAX)
    body: BodyFormat = Field(BodyFormat.AUTO, description="how to write the bodies")


class MessagesAnswer(AnswerModel):
    """Messages in the order of their sequence numbers. A page may have fewer than `limit`."""

    messages: list[MessageAnswer]
    next: int | None = Field(description="`after` of the next page; null if this is the last")


class MessageQuery(RequestModel):
    """Which message."""

    entity: QueuePath
    sub_queue: SubQueue = SubQueue.MAIN
    sequence_number: int = Field(ge=1, le=SEQUENCE_NUMBER_MAX)
    body: BodyFormat = BodyFormat.AUTO


async def list_messages(call: Call) -> Answer:
    """Lists messages."""
    query: MessagesQuery = call.query
    path, state = selected_queue(query.entity, query.sub_queue, query.state)
    selection = message_scan.Selection(
        path,
        state,
        query.session,
        _chosen(call, query),
        query.after,
    )
    page = await message_scan.read_page(call, selection, query.limit)
    _, sub_queue = split_queue_path(path)
    holder_of = call.services.holder_of

    def written(view: control.MessageView) -> str:
        return json.dumps(write_message(view, sub_queue, query.body, holder_of))

    # As one JSON text after the other: a thousand messages at once would take too long for other clients.
    messages = ", ".join(await pacing.each(call, page.messages, written))
    text = f'{{"messages": [{messages}], "next": {json.dumps(page.next_after)}}}'
    return web.Response(text=text, content_type="application/json")


async def get_message(call: Call) -> Answer:
    """Returns one message."""
    query: MessageQuery = call.query
    path = queue_path(query.entity, query.sub_queue)
    read: control.MessagesRead = await call.ask(control.FindMessages(path, [query.sequence_number]))
    views = await message_scan.load_bodies(call, read.messages)
    if not views:
        raise control_errors.ControlError(
            404, "message_not_found", "The message was deleted meanwhile.", "sequence_number"
        )
    _, sub_queue = split_queue_path(path)
    return {
        **write_message(views[0], sub_queue, query.body, call.services.holder_of),
        "types": write_types(views[0]),
    }


def selected_queue(entity: str, sub_queue: SubQueue, state: State | None) -> tuple[str, str | None]:
    """Returns the path of the queue that is asked for, and the state of its messages. Raises `ControlError`."""
    if state is not State.DEAD_LETTERED:
        return queue_path(entity, sub_queue), None if state is None else state.value
    if sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        raise control_errors.bad_field(
            "state", "Messages of the transfer dead-letter queue are not in the dead-letter queue."
        )
    path, named = split_queue_path(entity.strip("/"))
    if named is SubQueue.TRANSFER_DEAD_LETTER:
        raise control_errors.bad_field("state", "The entity names another sub-queue.")
    return queue_path(path, SubQueue.DEAD_LETTER), None


def compiled(call: Call, text: str | None, field: str) -> MessageFilter | None:
    """Returns the compiled expression, or None without one. Raises `ControlError`."""
    return None if text is None else MessageFilter(text, field, call.services.sources.new_uuid)


def _chosen(call: Call, query: MessagesQuery) -> MessageTest | None:
    expression = compiled(call, query.filter, "filter")
    if query.text is None:
        return expression
    search = TextSearch(query.text)
    return search if expression is None else AllOf(search, expression)


ROUTES = (
    Route(
        "GET",
        "/messages",
        "listMessages",
        "Read messages without locking them, by state, session or SQL expression",
        list_messages,
        MessagesAnswer,
        query=MessagesQuery,
    ),
    Route(
        "GET",
        "/message",
        "getMessage",
        "Read one message by its sequence number",
        get_message,
        DetailedMessageAnswer,
        query=MessageQuery,
    ),
)
