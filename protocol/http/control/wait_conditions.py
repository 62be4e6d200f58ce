"""The conditions of a wait: on counts, or on messages that match an expression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from broker.core.contract import control_operations as control
from protocol.http.control import message_scan
from protocol.http.control.expressions import TEXT_MAX_CHARACTERS
from protocol.http.control.message_json import BodyFormat, MessageAnswer, write_message
from protocol.http.control.messages_resource import State, compiled, selected_queue
from protocol.http.control.request_models import (
    AnswerModel,
    QueuePath,
    RequestModel,
    SubQueue,
    split_queue_path,
)

if TYPE_CHECKING:
    from protocol.http.control.expressions import MessageFilter
    from protocol.http.control.routes import Call

COUNT_MAX = 1_000_000_000
SHOWN_MAX = 10
"""How many of the matching messages an answer contains."""


class Settledness(StrEnum):
    """What an entity, or the whole namespace, is to be."""

    SETTLED = "settled"
    """No message is active, locked or deferred. Scheduled messages and dead letters do not count."""
    UNLOCKED = "unlocked"
    """No message is locked, not even in a sub-queue, and no session is held."""
    EMPTY = "empty"
    """There is no message, not even a scheduled one. Dead letters do not count."""


class Condition(RequestModel):
    """A number of messages, or `is`."""

    entity: QueuePath | None = Field(
        None, description="required unless `is` is about all entities of the namespace"
    )
    is_: Settledness | None = Field(
        None,
        alias="is",
        description="settled: nothing is active, locked or deferred; unlocked: no message or session is locked; "
        "empty: there are no messages. A topic includes its subscriptions",
    )
    sub_queue: SubQueue = SubQueue.MAIN
    state: State | None = Field(None, description="count only messages in this state")
    session: str | None = Field(None, max_length=1000, description="count only this session")
    filter: str | None = Field(
        None,
        max_length=TEXT_MAX_CHARACTERS,
        description="count only messages for which this SQL expression is true",
        examples=["reason = 'Bad'"],
    )
    at_least: int | None = Field(None, ge=0, le=COUNT_MAX, description="1 if nothing else is set")
    at_most: int | None = Field(None, ge=0, le=COUNT_MAX)
    equals: int | None = Field(None, ge=0, le=COUNT_MAX)

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        counted = [self.state, self.session, self.filter, self.at_least, self.at_most, self.equals]
        has_count = any(one is not None for one in counted) or self.sub_queue is not SubQueue.MAIN
        if self.is_ is not None and has_count:
            raise ValueError("'is' can be combined with entity only")
        if self.is_ is None and self.entity is None:
            raise ValueError("the field 'entity' is required, unless 'is' is set")
        if self.equals is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("'equals' cannot be combined with at_least or at_most")
        return self

    def is_met_by(self, count: int) -> bool:
        """Whether so many messages are as many as wanted."""
        if self.equals is not None:
            return count == self.equals
        if self.at_least is None and self.at_most is None:
            return count >= 1
        return (self.at_least or 0) <= count and (self.at_most is None or count <= self.at_most)

    @property
    def enough(self) -> int:
        """Returns the number of messages after which more make no difference."""
        if self.equals is not None:
            return self.equals + 1
        if self.at_most is not None:
            return self.at_most + 1
        return self.at_least if self.at_least is not None else 1


class SeenAnswer(AnswerModel):
    """What was seen of one condition."""

    holds: bool
    count: int = Field(
        description="matching messages; counting ends where more make no difference. For `is`: what is in the way"
    )
    messages: list[MessageAnswer] = Field(
        description=f"the first {SHOWN_MAX} matching messages, of a condition with a filter or a session"
    )


@dataclass(frozen=True, slots=True)
class Watched:
    """A condition and the queue that it is about."""

    condition: Condition
    path: str | None
    """The path of a queue, or of an entity for `is`. None: all entities."""
    state: str | None
    filter: MessageFilter | None

    @property
    def watched_path(self) -> str | None:
        """Returns the path of the queue whose changes matter. None: of any queue. A topic includes its
        subscriptions, and `unlocked` includes sub-queues."""
        return None if self.condition.is_ is not None else self.path

    @property
    def is_scanned(self) -> bool:
        """Whether messages have to be looked at. Otherwise counts are enough."""
        return self.filter is not None or self.condition.session is not None


def watched(call: Call, condition: Condition, field: str) -> Watched:
    """Returns a condition with its queue and its compiled expression. Raises `ControlError`."""
    if condition.entity is None:
        return Watched(condition, None, None, None)
    path, state = selected_queue(condition.entity, condition.sub_queue, condition.state)
    expression = compiled(call, condition.filter, f"{field}.filter")
    return Watched(condition, path, state, expression)


async def look(call: Call, conditions: list[Watched], seen: list[dict[str, Any]]) -> None:
    """Looks at each condition, and puts what is seen at its position in `seen`. All counts are of one moment."""
    counted = [one for one in conditions if not one.is_scanned and one.condition.is_ is None]
    totalled = [one for one in conditions if one.condition.is_ is not None]
    read = control.TotalsRead((), ())
    if counted or totalled:
        paths = [one.path or "" for one in counted]
        read = await call.ask(control.ReadTotals(paths, [one.path for one in totalled]))
    counts = dict(zip(map(id, counted), read.queues, strict=True))
    totals = dict(zip(map(id, totalled), read.entities, strict=True))
    for position, one in enumerate(conditions):
        if id(one) in counts:
            found = counts[id(one)]
            count = found.total if one.state is None else getattr(found, one.state)
            seen[position] = _seen(one.condition.is_met_by(count), count)
        elif id(one) in totals:
            count = _in_the_way(one.condition.is_, totals[id(one)])
            seen[position] = _seen(count == 0, count)
    for position, one in enumerate(conditions):
        if one.is_scanned:
            seen[position] = await _scan(call, one)


NOT_SEEN: dict[str, Any] = {"holds": False, "count": 0, "messages": []}
"""Of a condition that there was no time to look at."""


def _in_the_way(wanted: Settledness | None, totals: control.Totals) -> int:
    main = totals.main
    match wanted:
        case Settledness.SETTLED:
            return main.active + main.locked + main.deferred
        case Settledness.UNLOCKED:
            return totals.locked + totals.session_locks
        case _:
            return main.total


async def _scan(call: Call, one: Watched) -> dict[str, Any]:
    """Counts matching messages, until more make no difference."""
    condition = one.condition
    assert one.path is not None
    _, sub_queue = split_queue_path(one.path)
    selection = message_scan.Selection(one.path, one.state, condition.session, one.filter)
    count = 0
    shown: list[dict[str, Any]] = []
    holder_of = call.services.holder_of
    while True:
        wanted = max(1, condition.enough - count)
        page = await message_scan.read_slice(call, selection, wanted)
        count += len(page.messages)
        shown += [
            write_message(view, sub_queue, BodyFormat.AUTO, holder_of)
            for view in page.messages[: SHOWN_MAX - len(shown)]
        ]
        if page.next_after is None or count >= condition.enough:
            return _seen(condition.is_met_by(count), count, shown)
        selection = message_scan.continued(selection, page.next_after)


def _seen(
    holds: bool,  # noqa: FBT001  what the name says
    count: int,
    messages: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {"holds": holds, "count": count, "messages": messages or []}
