"""Reads messages in slices, so that others are served between them, with bodies from memory or the store.

Each slice is one operation in the core, in a turn of its own. Expressions are evaluated here, outside of turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.core.contract import control_operations as control
from protocol.http.control.pacing import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.http.control.expressions import MessageTest
    from protocol.http.control.routes import Call

SLICE_MESSAGES = 1_000
"""How many messages one turn looks at."""
FILTER_SLICE_MESSAGES = 500
"""The same, if messages are compared with an expression, which takes longer than looking at them."""
READ_MAX_BYTES = 2 * 1024 * 1024
"""How many bytes of bodies are read from the store at once."""
PAGE_MAX_BYTES = 8 * 1024 * 1024
"""The size of the messages of one answer, unless it has only one."""
SCAN_MAX_S = 5.0
"""How long one request searches for matching messages. Then it answers with what it has, and where to continue."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages are asked for."""

    path: str
    state: str | None = None
    session_id: str | None = None
    filter: MessageTest | None = None
    after: int = 0
    up_to: int | None = None
    """Only messages with this number or a lower one."""


@dataclass(frozen=True, slots=True)
class Page:
    """Messages, and where to continue."""

    messages: Sequence[control.MessageView]
    next_after: int | None
    last_sequence_number: int


async def read_slice(
    call: Call, selection: Selection, limit: int, *, with_bodies: bool = True
) -> Page:
    """Returns the messages of one slice that are selected: perhaps none, although more follow."""
    examine = SLICE_MESSAGES if selection.filter is None else FILTER_SLICE_MESSAGES
    read: control.MessagesRead = await call.ask(
        control.ReadMessages(
            selection.path,
            selection.after,
            examine,
            limit if selection.filter is None else examine,
            selection.state,
            selection.session_id,
        )
    )
    views: Sequence[control.MessageView] = read.messages
    next_after = read.next_after
    up_to = selection.up_to
    if up_to is not None:
        within = [view for view in views if view.message.sequence_number <= up_to]
        if len(within) < len(views) or (next_after is not None and next_after >= up_to):
            next_after = None
        views = within
    if selection.filter is None and len(views) > 1:
        views, next_after = _within_bytes(views, next_after)
    if selection.filter is not None or with_bodies:
        views = await load_bodies(call, views)
    if selection.filter is not None:
        matching = await _matching(call, views, selection.filter)
        if len(matching) > limit:
            matching = matching[:limit]
            next_after = matching[-1].message.sequence_number
        views, next_after = _within_bytes(matching, next_after)
    return Page(views, next_after, read.last_sequence_number)


async def read_page(
    call: Call, selection: Selection, limit: int, *, with_bodies: bool = True
) -> Page:
    """Returns up to `limit` selected messages."""
    stopwatch_s = call.services.sources.stopwatch_s
    ends_s = stopwatch_s() + SCAN_MAX_S
    found: list[control.MessageView] = []
    size = 0
    while True:
        page = await read_slice(call, selection, limit - len(found), with_bodies=with_bodies)
        found += page.messages
        size += sum(view.message.size for view in page.messages)
        if (
            page.next_after is None
            or len(found) >= limit
            or size >= PAGE_MAX_BYTES
            or stopwatch_s() > ends_s
        ):
            return Page(found, page.next_after, page.last_sequence_number)
        selection = continued(selection, page.next_after)


async def _matching(
    call: Call, views: Sequence[control.MessageView], expression: MessageTest
) -> list[control.MessageView]:
    pace = Pace(call)
    matching = []
    for view in views:
        if expression.matches(view.message):
            matching.append(view)
        await pace.pause()
    return matching


def continued(selection: Selection, after: int) -> Selection:
    """Returns the selection of the messages that follow."""
    return Selection(
        selection.path,
        selection.state,
        selection.session_id,
        selection.filter,
        after,
        selection.up_to,
    )


def _within_bytes(
    views: Sequence[control.MessageView], next_after: int | None
) -> tuple[Sequence[control.MessageView], int | None]:
    """Returns the first messages that are not too large together, and where to continue."""
    size = 0
    for position, view in enumerate(views):
        size += view.message.size
        if size > PAGE_MAX_BYTES and position:
            return views[:position], views[position - 1].message.sequence_number
    return views, next_after


async def load_bodies(
    call: Call, views: Sequence[control.MessageView]
) -> Sequence[control.MessageView]:
    """Gives the messages the bodies that only the store has. Messages that were deleted meanwhile are left out."""
    missing = [view.message for view in views if view.message.body is None]
    if not missing:
        return views
    start = 0
    while start < len(missing):
        size, end = 0, start
        while end < len(missing) and (end == start or size + missing[end].size < READ_MAX_BYTES):
            size += missing[end].size
            end += 1
        part = missing[start:end]
        payloads = await call.services.read_payloads([message.payload_id for message in part])
        for message in part:
            payload = payloads.get(message.payload_id)
            if payload is not None:
                message.body, message.annotations = payload
        start = end
    return [view for view in views if view.message.body is not None]
