"""Changes messages: purge, delete, dead-letter, release, resubmit, expire locks; and resets the namespace.

Work on many messages is done in parts, each durable before the next, so that other clients are served in between.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from broker.core.contract import control_operations as control
from broker.core.contract.errors import ArgumentError, EntityNotFound, MessageNotFound
from protocol.http.control import message_scan
from protocol.http.control.control_errors import ControlError
from protocol.http.control.expressions import TEXT_MAX_CHARACTERS
from protocol.http.control.messages_resource import (
    SEQUENCE_NUMBER_MAX,
    State,
    compiled,
    selected_queue,
)
from protocol.http.control.pacing import Pace
from protocol.http.control.request_models import (
    AnswerModel,
    EntityPath,
    QueuePath,
    RequestModel,
    SubQueue,
    queue_path,
    split_queue_path,
)
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from protocol.http.control.routes import Answer, Call

NUMBERS_MAX = 1000
PART_MESSAGES = 500
"""How many messages one turn changes."""

SequenceNumbers = list[int]


class MessageSelection(RequestModel):
    """Messages by their sequence numbers, or by state, session or expression."""

    entity: QueuePath
    sub_queue: SubQueue = SubQueue.MAIN
    sequence_numbers: SequenceNumbers | None = Field(
        None, min_length=1, max_length=NUMBERS_MAX, description="these messages: all or none"
    )
    state: State | None = Field(None, description="messages in this state")
    session: str | None = Field(None, max_length=1000, description="messages of this session")
    filter: str | None = Field(
        None,
        max_length=TEXT_MAX_CHARACTERS,
        description="messages for which this SQL expression is true",
        examples=["color = 'red'"],
    )

    @model_validator(mode="after")
    def _names_messages_once(self) -> Self:
        conditions = [self.state, self.session, self.filter]
        if self.sequence_numbers is not None and any(one is not None for one in conditions):
            raise ValueError("sequence_numbers cannot be combined with state, session or filter")
        if self.sequence_numbers is not None and not all(
            0 < number <= SEQUENCE_NUMBER_MAX for number in self.sequence_numbers
        ):
            raise ValueError("sequence_numbers must be positive")
        return self


class RequiredSelection(MessageSelection):
    """Messages by their sequence numbers, or by state, session or expression. One of them is required."""

    @model_validator(mode="after")
    def _names_messages(self) -> Self:
        named = [self.sequence_numbers, self.state, self.session, self.filter]
        if all(one is None for one in named):
            raise ValueError("Name the messages: sequence_numbers, state, session or filter")
        return self


class DeadLetterBody(RequiredSelection):
    """Which messages to dead-letter, and why."""

    reason: str | None = Field(None, max_length=4096)
    description: str | None = Field(None, max_length=4096)


class ResubmitBody(MessageSelection):
    """Which dead letters to resubmit: all, unless some are named."""

    sub_queue: SubQueue = SubQueue.DEAD_LETTER
    to: EntityPath | None = Field(
        None, description="the queue or topic that gets them; their own entity if it is not set"
    )


class ExpireLocksBody(RequestModel):
    """Which locks to expire: those of these messages, the lock of a session, or all message locks."""

    entity: QueuePath
    sub_queue: SubQueue = SubQueue.MAIN
    sequence_numbers: SequenceNumbers | None = Field(None, min_length=1, max_length=NUMBERS_MAX)
    session: str | None = Field(None, max_length=1000)


class PurgeBody(RequestModel):
    """What to purge."""

    entity: QueuePath
    sub_queue: SubQueue | None = Field(
        None,
        description="only this queue; without it, the entity with its sub-queues, and a topic with its subscriptions",
    )


class ResetBody(RequestModel):
    """Nothing: an empty body or an empty object."""


class CountAnswer(AnswerModel):
    """What was done."""

    count: int = Field(description="how many messages, or locks, it concerned")


class ResetAnswer(AnswerModel):
    """What was reset."""

    purged: int = Field(description="how many messages were deleted")


# --- handlers ------------------------------------------------------------------------------------


async def delete(call: Call) -> Answer:
    """Deletes messages."""
    body: RequiredSelection = call.body
    return await _change(call, body, control.DeleteByNumber)


async def dead_letter(call: Call) -> Answer:
    """Dead-letters messages."""
    body: DeadLetterBody = call.body
    return await _change(
        call,
        body,
        lambda path, part: control.DeadLetterByNumber(path, part, body.reason, body.description),
    )


async def release(call: Call) -> Answer:
    """Makes messages ready to be received."""
    body: RequiredSelection = call.body
    return await _change(call, body, control.ReleaseByNumber)


async def resubmit(call: Call) -> Answer:
    """Moves dead letters to their entity or another."""
    body: ResubmitBody = call.body
    to = None if body.to is None else body.to.strip("/")
    path, _ = selected_queue(body.entity, body.sub_queue, None)
    try:
        await call.ask(control.Resubmit(path, (), to))  # refused if the destination is wrong
    except EntityNotFound as error:
        field = "to" if error.path == to else "entity"
        raise ControlError(404, "entity_not_found", str(error), field) from None
    if body.sequence_numbers is not None:
        await call.ask(control.FindMessages(path, body.sequence_numbers))
    return await _change(call, body, lambda path, part: control.Resubmit(path, part, to))


async def expire_locks(call: Call) -> Answer:
    """Ends locks as if their time had come."""
    body: ExpireLocksBody = call.body
    path = queue_path(body.entity, body.sub_queue)
    if body.session is not None and body.sequence_numbers is not None:
        raise ControlError(
            400, "invalid_request", "Name messages or a session, not both.", "session"
        )
    if body.session is not None or body.sequence_numbers is not None:
        operation = control.ExpireLocks(path, body.sequence_numbers, body.session)
        return {"count": await call.ask(operation)}
    count = 0
    selection = message_scan.Selection(path, State.LOCKED.value)
    async for part in _selected(call, selection):
        count += await _still_there(call, part, lambda one: control.ExpireLocks(path, one))
    return {"count": count}


async def purge(call: Call) -> Answer:
    """Deletes all messages of an entity or a sub-queue."""
    body: PurgeBody = call.body
    entity, named = split_queue_path(body.entity.strip("/"))
    if body.sub_queue is not None or named is not SubQueue.MAIN:
        path = queue_path(body.entity, body.sub_queue or SubQueue.MAIN)
        return {"count": await _purge(call, path)}
    state: control.EntityState = await call.ask(control.GetEntityState(entity))
    paths = [state.view.path]
    if state.view.subscription_count:
        paths += await _subscriptions(call, entity)
    count = 0
    for path in paths:
        for sub_queue in SubQueue:
            count += await _purge(call, queue_path(path, sub_queue))
    return {"count": count}


async def reset(call: Call) -> Answer:
    """Makes a namespace as it is declared."""
    call.services.faults.clear(call.namespace)
    definitions = call.services.declared(call.namespace)
    count = 0
    # First before session locks end, so that receivers which wait for a session do not get one whose messages go.
    for operation in (control.ListQueuesWithMessages(), control.ResetEntities(definitions)):
        for path in await call.ask(operation):
            with suppress(EntityNotFound):  # a client may have deleted it meanwhile
                count += await _purge(call, path)
    call.services.reports.begin(call.namespace, "reset")
    return {"purged": count}


# --- in parts ------------------------------------------------------------------------------------


async def _change(
    call: Call,
    body: MessageSelection,
    operation: Callable[[str, Sequence[int]], Any],
) -> Answer:
    """Carries out an operation on the selected messages. Those that are named by number are changed together."""
    path, state = selected_queue(body.entity, body.sub_queue, body.state)
    if body.sequence_numbers is not None:
        return {"count": await call.ask(operation(path, body.sequence_numbers))}
    expression = compiled(call, body.filter, "filter")
    selection = message_scan.Selection(path, state, body.session, expression)
    count = 0
    async for part in _selected(call, selection):
        count += await _still_there(call, part, lambda one: operation(path, one))
    return {"count": count}


async def _selected(call: Call, selection: message_scan.Selection) -> AsyncIterator[list[int]]:
    """Yields the numbers of the selected messages in parts. Messages that come meanwhile are left out."""
    while True:
        page = await message_scan.read_slice(call, selection, PART_MESSAGES, with_bodies=False)
        if selection.up_to is None:
            selection = message_scan.Selection(
                selection.path,
                selection.state,
                selection.session_id,
                selection.filter,
                up_to=page.last_sequence_number,
            )
        if page.messages:
            yield [view.message.sequence_number for view in page.messages]
        if page.next_after is None:
            return
        selection = message_scan.continued(selection, page.next_after)


async def _still_there(
    call: Call, numbers: Sequence[int], operation: Callable[[Sequence[int]], Any]
) -> int:
    """Carries out an operation on those of the messages that still exist. Returns how many it concerned."""
    try:
        count: int = await call.ask(operation(numbers))
    except (ArgumentError, MessageNotFound):
        if len(numbers) == 1:
            return 0
        middle = len(numbers) // 2
        first = await _still_there(call, numbers[:middle], operation)
        return first + await _still_there(call, numbers[middle:], operation)
    return count


async def _subscriptions(call: Call, topic: str) -> list[str]:
    """Returns the paths of all subscriptions of a topic."""
    below = f"{topic.lower()}/subscriptions/"
    paths: list[str] = []
    after = below
    while True:
        operation = control.ListEntityStates("subscription", after, PART_MESSAGES)
        page: list[control.EntityState] = await call.ask(operation)
        found = [one.view.path for one in page if one.view.path.lower().startswith(below)]
        paths += found
        if len(found) < PART_MESSAGES:
            return paths
        after = found[-1].lower()


async def _purge(call: Call, path: str) -> int:
    """Deletes the messages that a queue has now. Returns their number."""
    count = 0
    up_to: int | None = None
    pace = Pace(call)
    while True:
        try:
            done: control.PurgedPart = await call.ask(control.PurgePart(path, up_to))
        except EntityNotFound:
            if up_to is None:
                raise
            return count  # it was deleted meanwhile
        count += done.count
        up_to = done.up_to
        if done.is_done:
            return count
        await pace.pause()


_REFUSALS = {403: "The entity that would get the messages is full."}

ROUTES = (
    Route(
        "POST",
        "/messages/delete",
        "deleteMessages",
        "Delete messages, whatever their state",
        delete,
        CountAnswer,
        body=RequiredSelection,
    ),
    Route(
        "POST",
        "/messages/dead-letter",
        "deadLetterMessages",
        "Dead-letter messages, whatever their state",
        dead_letter,
        CountAnswer,
        body=DeadLetterBody,
    ),
    Route(
        "POST",
        "/messages/release",
        "releaseMessages",
        "Make messages ready now: end locks without a failed delivery, return deferred ones, activate scheduled ones",
        release,
        CountAnswer,
        body=RequiredSelection,
    ),
    Route(
        "POST",
        "/resubmit",
        "resubmitMessages",
        "Move dead letters back to their entity, or to another queue or topic",
        resubmit,
        CountAnswer,
        body=ResubmitBody,
        refusals=_REFUSALS,
    ),
    Route(
        "POST",
        "/locks/expire",
        "expireLocks",
        "Expire locks now, as if their time had come",
        expire_locks,
        CountAnswer,
        body=ExpireLocksBody,
    ),
    Route(
        "POST",
        "/purge",
        "purgeEntity",
        "Delete all messages of an entity or a sub-queue",
        purge,
        CountAnswer,
        body=PurgeBody,
    ),
    Route(
        "POST",
        "/reset",
        "resetNamespace",
        "Make the namespace as it is declared, without messages",
        reset,
        ResetAnswer,
        body=ResetBody,
    ),
)
