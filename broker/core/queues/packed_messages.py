"""Packed messages: blocks of waiting messages as columns of numbers, a few bytes for each message.

A `Message` takes about three hundred bytes, and a queue may have millions that wait. Most fields of
consecutive messages are equal or rise evenly, so a block is kept in the form of stores (`packed_rows.py`).
The bodies are in the store. `block_packing.py` packs the blocks of a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.messages.message_rows import messages_from, rows_of
from broker.core.messages.packed_rows import PackedRows, pack_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.queue import Queue

Piece = tuple[bytes, int, int, int]
"""Packed rows: the bytes, the position at which they begin there, and the first and the last row (not included)."""


class PackedMessages:
    """Messages with consecutive sequence numbers that wait for their first delivery.

    `ReadyMessages` has it at the place of each of its messages, as a message without a body.
    """

    __slots__ = (
        "_pieces",
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
        pieces: Sequence[Piece],
        enqueued_time_ms: int,
        expires_at_ms: int,
    ) -> None:
        self.queue = queue
        self.sequence_number = sequence_number
        """The number of the first message."""
        self.count = count
        self.enqueued_time_ms = enqueued_time_ms
        """None was enqueued earlier."""
        self.expires_at_ms = expires_at_ms
        """None expires earlier; 0 for never."""
        self._pieces = pieces

    def unpack(self) -> list[Message]:
        """Returns the messages."""
        messages: list[Message] = []
        for data, position, start, stop in self._pieces:
            messages += messages_from(PackedRows(data, position).rows(start, stop))
        queue = self.queue
        for message in messages:
            message.queue = queue
        return messages


def pack(queue: Queue, messages: Sequence[Message]) -> PackedMessages | None:
    """Returns the packed form of waiting messages with consecutive numbers. Returns None if one of
    them is locked or belongs to a session, or only some of them expire."""
    for message in messages:
        if (
            message.lock_token is not None
            or message.state
            or message.session_id is not None
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
    )
