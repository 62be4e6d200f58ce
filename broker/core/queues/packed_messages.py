"""Packed messages: blocks of waiting or scheduled messages as columns of numbers, a few bytes for each message.

A `Message` takes about three hundred bytes, and a queue may have millions that wait. Most fields of
consecutive messages are equal or rise evenly, so a block is kept in the form of stores (`packed_rows.py`).
The bodies are in the store. `block_packing.py` packs the blocks of a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.messages.message_rows import messages_from, rows_of
from broker.core.messages.packed_rows import PackedRows, pack_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.queue import Queue

Piece = tuple[bytes, int, int, int]
"""Packed rows: the bytes, the position at which they begin there, and the first and the last row (not included)."""


class PackedMessages:
    """Messages with consecutive sequence numbers that wait for their first delivery, or for their scheduled times.

    `ReadyMessages` has it at the place of each of its messages, as a message without a body. In a queue with sessions,
    it takes the place of their messages in each of their sessions. If they are scheduled, only the deadlines, the index
    and the sessions have it.
    """

    __slots__ = (
        "are_due_together",
        "count",
        "enqueued_time_ms",
        "expires_at_ms",
        "pieces",
        "queue",
        "scheduled_enqueue_time_ms",
        "sequence_number",
    )

    body = None

    def __init__(
        self,
        queue: Queue,
        sequence_number: int,
        count: int,
        pieces: Sequence[Piece],
        enqueued_time_ms: int,
        expires_at_ms: int,
        scheduled_ms: tuple[int, int] | None = None,
    ) -> None:
        self.queue = queue
        self.sequence_number = sequence_number
        """The number of the first message."""
        self.count = count
        self.enqueued_time_ms = enqueued_time_ms
        """None was enqueued earlier."""
        self.expires_at_ms = expires_at_ms
        """None expires earlier; 0 for never."""
        earliest_ms, latest_ms = scheduled_ms or (0, 0)
        self.scheduled_enqueue_time_ms = earliest_ms
        """None becomes active earlier; 0 if they are active."""
        self.are_due_together = earliest_ms == latest_ms
        """Whether all of them have the same scheduled time."""
        self.pieces = pieces

    @property
    def id(self) -> int:
        """The id of the first message."""
        data, position, start, _ = self.pieces[0]
        return PackedRows(data, position).rows(start, start + 1)[0].id

    @property
    def is_scheduled(self) -> bool:
        """Whether they wait for their scheduled times."""
        return self.scheduled_enqueue_time_ms > 0

    def unpack(self) -> list[Message]:
        """Returns the messages."""
        messages: list[Message] = []
        for data, position, start, stop in self.pieces:
            messages += messages_from(PackedRows(data, position).rows(start, stop))
        queue = self.queue
        for message in messages:
            message.queue = queue
        return messages


def is_active(one: Message | PackedMessages) -> bool:
    """Returns whether a message is active, or all messages of a block."""
    if isinstance(one, PackedMessages):
        return not one.is_scheduled
    return one.state is MessageState.ACTIVE


def session_ids_of(blocks: Iterable[PackedMessages]) -> Iterator[list[str]]:
    """Returns the session ids of each block. Blocks that a store has kept together are read together."""
    last: tuple[bytes, int] = b"", 0
    rows: PackedRows | None = None
    for block in blocks:
        session_ids: list[str] = []
        for data, position, start, stop in block.pieces:
            if rows is None or data is not last[0] or position != last[1]:
                rows, last = PackedRows(data, position), (data, position)
            session_ids += rows.session_ids(start, stop)
        yield session_ids


def pack(queue: Queue, messages: Sequence[Message]) -> PackedMessages | None:
    """Returns the packed form of messages with consecutive numbers that all wait, or are all scheduled. Returns
    None if one of them is locked, if only some of them expire, or if one has a session id and the queue has no
    sessions."""
    state = messages[0].state
    if state is MessageState.DEFERRED:
        return None
    has_sessions = queue.delivery.requires_sessions
    for message in messages:
        if (
            message.lock_token is not None
            or message.state is not state
            or (message.session_id is not None and not has_sessions)
            or message.locked_until_ms
        ):
            return None
    rows = rows_of(messages)
    earliest_expiry_ms = min([row.expires_at_ms for row in rows])
    if not earliest_expiry_ms and any(row.expires_at_ms for row in rows):
        return None  # few: most queues limit the time of all or of none
    return PackedMessages(
        queue,
        messages[0].sequence_number,
        len(messages),
        ((pack_rows(rows), 0, 0, len(rows)),),
        min([row.enqueued_time_ms for row in rows]),
        earliest_expiry_ms,
        _scheduled_ms(messages) if state is MessageState.SCHEDULED else None,
    )


def _scheduled_ms(messages: Sequence[Message]) -> tuple[int, int]:
    """Returns when the first and the last of scheduled messages become active."""
    times_ms = [message.scheduled_enqueue_time_ms for message in messages]
    return min(times_ms), max(times_ms)
