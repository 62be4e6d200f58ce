"""Packed messages: blocks of waiting messages as columns of numbers, a few bytes for each message.

A `Message` takes about three hundred bytes, and a queue may have millions that wait. Most fields of
consecutive messages are equal or rise evenly, so a block is kept as columns. The bodies are in the
store. `queue.py` decides when a block is packed.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract.message import Message, MessageState
from broker.core.contract.message_changes import MessageChanges
from broker.core.contract.records import MessageRow, SentRow
from broker.core.messages.packed_columns import Column, packed_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.queues.queue import Queue

_FIELDS = (
    "id",
    "payload_id",
    "enqueue_sequence_number",
    "enqueued_time_ms",
    "size",
    "header",
    "delivery_count",
    "time_to_live_ms",
    "scheduled_enqueue_time_ms",
    "expires_at_ms",
)
"""Of the last, the column has how long after the enqueued time it is."""
_VALUES = attrgetter(*_FIELDS)
_ROW_VALUES = tuple(map(MessageRow._fields.index, _FIELDS))
_STATE, _SESSION_ID, _CHANGES, _SEQUENCE_NUMBER = map(
    MessageRow._fields.index, ("state", "session_id", "changes", "sequence_number")
)


class PackedMessages:
    """Messages with consecutive sequence numbers that wait for their first delivery.

    `ReadyMessages` has it at the place of each of its messages, as a message without a body.
    """

    __slots__ = (
        "_changes",
        "_columns",
        "count",
        "enqueued_time_ms",
        "expires_at_ms",
        "queue",
        "sequence_number",
    )

    body = None

    def __init__(
        self,
        queue: Queue,
        sequence_number: int,
        count: int,
        columns: bytes,
        enqueued_time_ms: int,
        expires_at_ms: int,
        changes: MessageChanges | None,
    ) -> None:
        self.queue = queue
        self.sequence_number = sequence_number
        """The number of the first message."""
        self.count = count
        self.enqueued_time_ms = enqueued_time_ms
        """The earliest."""
        self.expires_at_ms = expires_at_ms
        """The earliest; 0 for never."""
        self._columns = columns
        self._changes = changes

    def unpack(self) -> list[Message]:
        """Returns the messages."""
        new = Message.__new__
        active = MessageState.ACTIVE
        queue = self.queue
        changes = self._changes
        messages = []
        number = self.sequence_number
        columns: list[Iterable[int]] = []
        position = 0
        for _ in _FIELDS:
            column = Column(self._columns, position, self.count)
            columns.append(column.values(0, self.count))  # type: ignore[arg-type]
            position = column.end
        for (
            message_id,
            payload_id,
            enqueue_sequence_number,
            enqueued_time_ms,
            size,
            header,
            delivery_count,
            time_to_live_ms,
            scheduled_enqueue_time_ms,
            live_ms,
        ) in zip(*columns, strict=True):
            message = new(Message)
            message.id = message_id
            # Equal numbers are kept as one object: there may be many of them.
            message.payload_id = message_id if payload_id == message_id else payload_id
            message.sequence_number = number
            message.enqueue_sequence_number = (
                number if enqueue_sequence_number == number else enqueue_sequence_number
            )
            message.enqueued_time_ms = enqueued_time_ms
            message.size = size
            message.header = header
            message.delivery_count = delivery_count
            message.time_to_live_ms = time_to_live_ms
            message.scheduled_enqueue_time_ms = scheduled_enqueue_time_ms
            message.expires_at_ms = enqueued_time_ms + live_ms if live_ms else 0
            number += 1
            message.queue = queue
            message.state = active
            message.changes = changes
            message.session_id = None
            message.body = None
            message.annotations = b""
            message.lock_token = message.lock_group = None
            message.locked_until_ms = 0
            messages.append(message)
        return messages


def pack(queue: Queue, messages: Sequence[Message]) -> PackedMessages | None:
    """Returns the packed form of waiting messages with consecutive numbers. Returns None if one of
    them is locked, expires, belongs to a session, or has unusual values."""
    changes = messages[0].changes
    for message in messages:
        if (
            message.lock_token is not None
            or message.state
            or message.session_id is not None
            or message.locked_until_ms
            or message.changes != changes
        ):
            return None
    columns = list(zip(*map(_VALUES, messages), strict=True))
    return _packed(queue, messages[0].sequence_number, columns, changes)


def pack_rows(queue: Queue, rows: Sequence[MessageRow]) -> PackedMessages | None:
    """Does the same as `pack` for the rows of stored messages."""
    columns = list(zip(*rows, strict=True))
    changes = columns[_CHANGES][0]
    if any(columns[_STATE]) or columns[_SESSION_ID].count(None) < len(rows):
        return None
    if columns[_CHANGES].count(changes) < len(rows):
        return None
    return _packed(
        queue,
        columns[_SEQUENCE_NUMBER][0],
        [columns[position] for position in _ROW_VALUES],
        None if changes is None else MessageChanges.from_bytes(changes),
    )


def pack_rows_as_sent(queue: Queue, rows: Sequence[SentRow]) -> PackedMessages | None:
    """As `pack_rows`, of messages to which nothing has happened."""
    ids, _, _, numbers, times, headers, sizes = zip(*rows, strict=True)
    none = (0,) * len(rows)
    columns = [ids, ids, numbers, times, sizes, headers, none, (None,) * len(rows), none, none]
    return _packed(queue, numbers[0], columns, None)


def _packed(
    queue: Queue,
    sequence_number: int,
    columns: list[tuple[int, ...]],
    changes: MessageChanges | None,
) -> PackedMessages | None:
    times = columns[_FIELDS.index("enqueued_time_ms")]
    expiry = columns[-1]
    earliest_ms = min(expiry)
    if earliest_ms or max(expiry):
        lives = [until and until - since for until, since in zip(expiry, times, strict=True)]
        if earliest_ms == 0 or min(lives) <= 0:
            return None  # few: most queues limit the time of all or of none
        columns[-1] = tuple(lives)
    packed = b"".join(map(packed_column, columns))
    count = len(columns[0])
    return PackedMessages(queue, sequence_number, count, packed, min(times), earliest_ms, changes)
