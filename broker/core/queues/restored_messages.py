"""Collects the stored messages of one queue at start, and adds them to the queue.

Messages that only wait, and scheduled ones, stay packed, in the bytes that the store has read: with millions of them, unpacking each would take
longer than everything else. Others become messages.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.messages.message_rows import messages_from
from broker.core.queues.arrival import schedule
from broker.core.queues.message_deadlines import watch_expiry, watch_schedule
from broker.core.queues.packed_messages import PackedMessages, is_active

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.records import MessageRow
    from broker.core.messages.packed_rows import PackedRows
    from broker.core.queues.packed_messages import Piece
    from broker.core.queues.queue import Queue

SHORT_RUN_ROWS = 32
"""If runs of consecutive numbers are shorter than this on average, all messages are unpacked at once."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class RestoredMessages:
    """The stored messages of one queue, in any order. `queue` is None if its entity is deleted."""

    __slots__ = (
        "_next_number",
        "_packed",
        "_packed_bytes",
        "_pieces",
        "last_enqueue_sequence_number",
        "messages",
        "queue",
    )

    def __init__(self, queue: Queue | None) -> None:
        self.queue = queue
        self.messages: list[Message] = []
        self.last_enqueue_sequence_number = 0
        self._packed: list[PackedMessages] = []
        self._packed_bytes = 0
        self._pieces: list[tuple[PackedRows, int, int]] = []
        """The first messages of a block that is not complete yet: rows, first and last position."""
        self._next_number = 0
        """The sequence number after these."""

    @property
    def may_pack(self) -> bool:
        """Whether messages of this queue can be packed."""
        queue = self.queue
        if queue is None or not queue.context.payloads.may_pack:
            return False
        return not (queue.delivery.requires_sessions and queue.is_forwarding)

    def add(self, rows: Sequence[MessageRow]) -> None:
        """Add rows as messages."""
        messages = messages_from(rows)
        self.messages += messages
        self._note_number(max([message.enqueue_sequence_number for message in messages], default=0))
        if self.queue is None:
            return
        payloads = self.queue.context.payloads
        for payload_id in [one.payload_id for one in messages if one.payload_id != one.id]:
            payloads.share(payload_id, 1)

    def add_packed(self, rows: PackedRows, dead: int) -> None:
        """Add the rows of this queue that are not set in `dead`. Full blocks stay packed."""
        runs = _live_runs(self._waiting_runs(rows), dead, rows.count)
        if not runs or (len(runs) > 1 and len(runs) * SHORT_RUN_ROWS > rows.count):
            self.add(rows.live_rows(dead))
            return
        assert self.queue is not None
        size = self.queue.index.block_size
        for first_number, start, stop in runs:
            number = first_number
            while start < stop:
                offset = number & (size - 1)
                end = min(stop, start + size - offset)
                if end - start == size:
                    self._pack(number, [(rows, start, end)])
                else:
                    self._add_piece(number, offset, (rows, start, end))
                number += end - start
                start = end

    def _waiting_runs(self, rows: PackedRows) -> list[tuple[int, int, int]]:
        if self.queue is None or not self.may_pack:
            return []
        return rows.waiting_runs(with_sessions=self.queue.delivery.requires_sessions)

    def _add_piece(self, number: int, offset: int, piece: tuple[PackedRows, int, int]) -> None:
        assert self.queue is not None
        if self._pieces and (
            self._next_number != number
            or self._pieces[0][0].are_scheduled != piece[0].are_scheduled
        ):
            self.end_block()
        if offset and not self._pieces:
            self._unpack([piece])  # the block does not begin with its first number
            return
        self._pieces.append(piece)
        _, start, stop = piece
        self._next_number = number + stop - start
        if self.queue.index.ends_block(self._next_number - 1):
            pieces, self._pieces = self._pieces, []
            self._pack(self._next_number - self.queue.index.block_size, pieces)

    def _pack(self, number: int, pieces: list[tuple[PackedRows, int, int]]) -> None:
        """Add a full block."""
        assert self.queue is not None
        payloads = self.queue.context.payloads
        expiries = [rows.earliest_expiry_ms(start, stop) for rows, start, stop in pieces]
        earliest_expiry_ms = min([expiry_ms or 0 for expiry_ms in expiries])
        if any(
            expiry_ms is None or (expiry_ms and not earliest_expiry_ms) for expiry_ms in expiries
        ):
            self._unpack(pieces)  # few: most queues limit the time of all messages or of none
            return
        kept: list[Piece] = []
        for rows, start, stop in pieces:
            kept.append((rows.data, rows.position, start, stop))
            self._packed_bytes += rows.size_bytes(start, stop)
            for payload_id in rows.shared_payload_ids(start, stop):
                payloads.share(payload_id, 1)
            self._note_number(rows.last_enqueue_sequence_number)
        self._packed.append(
            PackedMessages(
                self.queue,
                number,
                self.queue.index.block_size,
                tuple(kept),
                min([rows.earliest_ms for rows, _, _ in pieces]),
                earliest_expiry_ms,
                _scheduled_ms(pieces) if pieces[0][0].are_scheduled else None,
            )
        )

    def _note_number(self, enqueue_sequence_number: int) -> None:
        self.last_enqueue_sequence_number = max(
            self.last_enqueue_sequence_number, enqueue_sequence_number
        )

    def _unpack(self, pieces: list[tuple[PackedRows, int, int]]) -> None:
        for rows, start, stop in pieces:
            self.add(rows.rows(start, stop))

    def end_block(self) -> None:
        """Add the messages of a block that is not complete."""
        pieces, self._pieces = self._pieces, []
        self._unpack(pieces)

    def restore(self) -> None:
        """Fill the queue."""
        self.end_block()
        queue, messages = self.queue, self.messages
        assert queue is not None
        queue.context.payloads.any_paged = True
        messages.sort(key=_SEQUENCE_NUMBER)  # nearly always in order already
        self._packed.sort(key=_SEQUENCE_NUMBER)
        _fill(queue, messages, self._packed, self._packed_bytes)


def _fill(
    queue: Queue,
    messages: Sequence[Message],
    packed: Sequence[PackedMessages],
    packed_bytes: int,
) -> None:
    """Add messages and packed blocks from the store, both in the order of their numbers.
    `packed_bytes` is the size of the packed messages."""
    size = packed_bytes
    packed_count = sum([block.count for block in packed])
    if messages:
        queue.index.add_rising(messages)
        queue.skip_numbers(messages[-1].sequence_number)
    if packed:
        queue.index.add_packed(packed)
        queue.skip_numbers(packed[-1].sequence_number + packed[-1].count - 1)
    for message in messages:
        message.queue = queue
    size += sum([message.size for message in messages])
    active = [message for message in messages if message.state is MessageState.ACTIVE]
    if len(active) < len(messages):
        scheduled = [message for message in messages if message.state is MessageState.SCHEDULED]
        queue.deferred_count += len(messages) - len(active) - len(scheduled)
        schedule(queue, scheduled)
    deadlines = queue.context.deadlines
    scheduled_blocks = [block for block in packed if block.is_scheduled]
    if scheduled_blocks:
        queue.scheduled_count += sum([block.count for block in scheduled_blocks])
        watch_schedule(deadlines, scheduled_blocks)
    watch_expiry(deadlines, [message for message in active if message.expires_at_ms])
    watch_expiry(deadlines, [block for block in packed if block.expires_at_ms and is_active(block)])
    queue.change_size(len(messages) + packed_count, size)
    queue.context.payloads.add_messages(-packed_count)
    if packed:
        queue.delivery.restore(sorted([*messages, *packed], key=_SEQUENCE_NUMBER))
    else:
        queue.delivery.enter(messages)
        queue.delivery.add_ready(active)


def _scheduled_ms(pieces: Sequence[tuple[PackedRows, int, int]]) -> tuple[int, int]:
    """Returns when the first and the last of scheduled messages become active."""
    times_ms = [rows.scheduled_ms(start, stop) for rows, start, stop in pieces]
    return min(times_ms)[0], max([latest_ms for _, latest_ms in times_ms])


def _live_runs(
    runs: Sequence[tuple[int, int, int]], dead: int, count: int
) -> list[tuple[int, int, int]]:
    """Returns the parts of runs whose bits are not set: the first number, and from which position to which."""
    if not dead or not runs:
        return list(runs)
    live = []
    ranges = list(_live_ranges(dead, count))
    position = 0
    for number, start, stop in runs:
        while position < len(ranges) and ranges[position][0] < stop:
            first, last = max(start, ranges[position][0]), min(stop, ranges[position][1])
            if first < last:
                live.append((number + first - start, first, last))
            if ranges[position][1] > stop:
                break  # the next run has the rest of it
            position += 1
    return live


def _live_ranges(dead: int, count: int) -> Iterator[tuple[int, int]]:
    """Returns the ranges of positions whose bits are not set."""
    start = 0
    while start < count:
        dead_count = (
            ~dead & (dead + 1)
        ).bit_length() - 1  # how many bits are set before the first that is not
        start += dead_count
        dead >>= dead_count
        live_count = (dead & -dead).bit_length() - 1 if dead else count - start
        if live_count > 0:
            yield start, start + live_count
        start += live_count
        dead >>= live_count
