"""Waiting messages in a small form: many of one queue together, a few bytes each.

Owns the form and the way back; the queue decides when. A `Message` with its numbers takes about three
hundred bytes, and a queue may have millions that only wait. Of messages that came one after the other
most fields are equal or rise evenly, so a block of them is kept as columns. Their bodies are in the store.
"""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.core.contract.message import Message, MessageState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.queues.queue import Queue

Column = Any
"""A range, a tuple of the least value and an array of what is to be added to it, or else one value that
all of them have."""

_COLUMNS = (
    "id",
    "payload_id",
    "enqueue_sequence_number",
    "enqueued_time_ms",
    "size",
    "header",
    "delivery_count",
    "time_to_live_ms",
    "scheduled_enqueue_time_ms",
    "changes",
)
_VALUES = attrgetter(*_COLUMNS)
_UINT32_END = 1 << 32


class PackedMessages:
    """Messages with consecutive sequence numbers that wait for their first delivery.

    It stands in the place of each of them where messages wait, as a message whose body is not in
    memory: see `ReadyMessages`.
    """

    __slots__ = ("_columns", "count", "queue", "sequence_number")

    body = None

    def __init__(self, queue: Queue, messages: Sequence[Message], columns: list[Column]) -> None:
        self.queue = queue
        self.sequence_number = messages[0].sequence_number
        """Of the first."""
        self.count = len(messages)
        self._columns = columns

    def unpack(self) -> list[Message]:
        """The messages."""
        new = Message.__new__
        active = MessageState.ACTIVE
        queue = self.queue
        messages = []
        number = self.sequence_number
        for values in zip(
            *[_expanded(column, self.count) for column in self._columns], strict=True
        ):
            message = new(Message)
            (
                message.id,
                message.payload_id,
                message.enqueue_sequence_number,
                message.enqueued_time_ms,
                message.size,
                message.header,
                message.delivery_count,
                message.time_to_live_ms,
                message.scheduled_enqueue_time_ms,
                message.changes,
            ) = values
            message.sequence_number = number
            number += 1
            message.queue = queue
            message.state = active
            message.expires_at_ms = 0
            message.session_id = None
            message.body = None
            message.annotations = b""
            message.lock_token = None
            message.locked_until_ms = 0
            messages.append(message)
        return messages


def pack(queue: Queue, messages: Sequence[Message]) -> PackedMessages | None:
    """The small form of messages that wait in this queue under consecutive numbers; None if one of
    them is not as most are: is locked, expires or belongs to a session, or was changed."""
    for message in messages:
        if (
            message.lock_token is not None
            or message.state
            or message.expires_at_ms
            or message.session_id is not None
            or message.locked_until_ms
        ):
            return None
    columns = []
    for values in zip(*map(_VALUES, messages), strict=True):
        column = _packed(values)
        if column is None:
            return None
        columns.append(column[0])
    return PackedMessages(queue, messages, columns)


def _packed(values: tuple[Any, ...]) -> tuple[Column] | None:
    """A column for these values; None if there is none that is small."""
    first = values[0]
    count = len(values)
    if values.count(first) == count:
        return (first,)
    if not all(type(value) is int for value in values):
        return None
    step = values[1] - first
    if step:
        steps = range(first, first + step * count, step)
        if values == tuple(steps):
            return (steps,)
    least = min(values)
    if max(values) - least >= _UINT32_END:
        return None
    return ((least, array("I", [value - least for value in values])),)


def _expanded(column: Column, count: int) -> Sequence[Any]:
    if type(column) is range:
        return column
    if type(column) is tuple:
        least, offsets = column
        return [least + offset for offset in offsets]
    return [column] * count
