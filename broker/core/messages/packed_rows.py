"""Encodes rows of messages as few bytes. Stores keep them in this form, and so does a queue with very many messages.

Few rows are encoded one by one, because that takes less time; more rows as columns (`packed_columns.py`). The first byte
says which, so that the format can change:

| first byte | content |
|---|---|
| 1 | uint32 number of rows; each row as `_ROW`, its session id and its changes |
| 2 | uint32 number of rows; the columns of `MessageRow` in order |

In a row, -1 stands for no time to live; the last two numbers are the lengths of the session id and the changes, plus
one, and 0 if there are none.
"""

from __future__ import annotations

from itertools import chain, pairwise, repeat
from struct import Struct, error
from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.contract.records import MessageRow
from broker.core.messages.packed_columns import (
    Column,
    TextColumn,
    consecutive_column,
    equal_column,
    packed_byte_strings,
    packed_column,
    packed_texts,
    unset_positions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.sent_rows import SentRows

SentPiece = tuple["SentRows", int, int]
"""Sent messages from one position to another."""
_ONE_BY_ONE, _COLUMNS = 1, 2
FEW_ROWS = 4
"""Up to this many rows are encoded one by one."""
_HEAD = Struct("<BI")
_ONE_ROW_HEAD = _HEAD.pack(_ONE_BY_ONE, 1)
_ROW = Struct("<qqBqqqqqqqBqqqII")
_NUMBERS = MessageRow._fields.index("session_id")
"""How many columns are numbers: all but the last two."""
_NO_TIME_TO_LIVE = -1
_NO_TEXTS = packed_texts((None,))
_THREE_ZEROS = equal_column(0) * 3
(
    _ID,
    _ENTITY_ID,
    _SUB_QUEUE,
    _SEQUENCE_NUMBER,
    _ENQUEUE_SEQUENCE_NUMBER,
    _ENQUEUED_TIME,
    _TIME_TO_LIVE,
    _EXPIRES_AT,
    _SCHEDULED_ENQUEUE_TIME,
    _,
    _STATE,
    _,
    _SIZE,
    _PAYLOAD_ID,
    _,
    _,
) = range(len(MessageRow._fields))


def pack_rows(rows: Sequence[MessageRow]) -> bytes:
    """Returns rows as bytes. Raises `OverflowError` for a number of more than 64 bits, and `UnicodeEncodeError`."""
    if len(rows) <= FEW_ROWS:
        return _pack_one_by_one(rows)
    *numbers, session_ids, changes = zip(*rows, strict=True)
    return b"".join(
        [
            _HEAD.pack(_COLUMNS, len(rows)),
            *map(packed_column, numbers),
            packed_texts(session_ids),
            packed_byte_strings(changes),
        ]
    )


def pack_sent_rows(pieces: Sequence[SentPiece]) -> bytes:
    """Does the same as `pack_rows` for messages of one queue that were sent together, without making their rows."""
    count = sum([stop - start for _, start, stop in pieces])
    if count == 1:
        return pack_sent_row(*pieces[0][:2])
    if count <= FEW_ROWS:
        return _pack_one_by_one([row for rows, start, stop in pieces for row in rows[start:stop]])
    first = pieces[0][0]
    ids = _numbers([(rows.first_id, start, stop) for rows, start, stop in pieces])
    numbers = [(rows.first_sequence_number, start, stop) for rows, start, stop in pieces]
    enqueued = [(rows.first_enqueue_sequence_number, start, stop) for rows, start, stop in pieces]
    session_ids = _NO_TEXTS
    if any(rows.session_ids is not None for rows, _, _ in pieces):
        texts: list[str | None] = []
        for rows, start, stop in pieces:
            texts += (rows.session_ids or [None] * len(rows))[start:stop]
        session_ids = packed_texts(texts)
    return b"".join(
        [
            _HEAD.pack(_COLUMNS, count),
            ids,
            equal_column(first.entity_id),
            equal_column(first.sub_queue),
            _numbers(numbers),
            _numbers(enqueued),
            _repeated([(rows.enqueued_time_ms, stop - start) for rows, start, stop in pieces]),
            _repeated([(rows.time_to_live_ms, stop - start) for rows, start, stop in pieces]),
            _repeated([(rows.expires_at_ms, stop - start) for rows, start, stop in pieces]),
            _THREE_ZEROS,  # scheduled_enqueue_time_ms, delivery_count, state
            packed_column(_joined([rows.headers[start:stop] for rows, start, stop in pieces])),
            packed_column(_joined([rows.sizes[start:stop] for rows, start, stop in pieces])),
            ids,  # of the payloads
            session_ids,
            _NO_TEXTS,  # changes
        ]
    )


def pack_sent_row(rows: SentRows, position: int) -> bytes:
    """Most messages are sent alone, so this is worth a function of its own."""
    session_id = None if rows.session_ids is None else rows.session_ids[position]
    text = b"" if session_id is None else session_id.encode()
    message_id = rows.first_id + position
    live_ms = rows.time_to_live_ms
    try:
        row = _ROW.pack(
            message_id,
            rows.entity_id,
            rows.sub_queue,
            rows.first_sequence_number + position,
            rows.first_enqueue_sequence_number + position,
            rows.enqueued_time_ms,
            _NO_TIME_TO_LIVE if live_ms is None else live_ms,
            rows.expires_at_ms,
            0,
            0,
            0,
            rows.headers[position],
            rows.sizes[position],
            message_id,
            0 if session_id is None else len(text) + 1,
            0,
        )
    except error as failure:
        raise OverflowError(str(failure)) from failure
    return _ONE_ROW_HEAD + row + text


def _numbers(runs: Sequence[tuple[int, int, int]]) -> bytes:
    """Returns a column of numbers that rise from a first one, each from one position to another."""
    ranges = [range(first + start, first + stop) for first, start, stop in runs]
    if all(before.stop == after.start for before, after in pairwise(ranges)):
        return consecutive_column(ranges[0].start)
    return packed_column(tuple(chain.from_iterable(ranges)))


def _repeated(values: Sequence[tuple[int | None, int]]) -> bytes:
    """Returns a column of values, each as often as its number says."""
    first = values[0][0]
    if all(value == first for value, _ in values):
        return equal_column(first)
    return packed_column(tuple(chain.from_iterable([repeat(*value) for value in values])))


def _joined(parts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(parts[0]) if len(parts) == 1 else tuple(chain.from_iterable(parts))


def _pack_one_by_one(rows: Sequence[MessageRow]) -> bytes:
    parts = [_HEAD.pack(_ONE_BY_ONE, len(rows))]
    try:
        for row in rows:
            *numbers, session_id, changes = row
            if numbers[_TIME_TO_LIVE] is None:
                numbers[_TIME_TO_LIVE] = _NO_TIME_TO_LIVE
            if session_id is None and changes is None:
                parts.append(_ROW.pack(*numbers, 0, 0))
                continue
            text = b"" if session_id is None else session_id.encode()
            parts += (
                _ROW.pack(
                    *numbers,
                    0 if session_id is None else len(text) + 1,
                    0 if changes is None else len(changes) + 1,
                ),
                text,
                changes or b"",
            )
    except error as failure:
        raise OverflowError(str(failure)) from failure
    return b"".join(parts)


class PackedRows:
    """Rows inside of some bytes. Unpacks them, or a part of them."""

    __slots__ = (
        "_changes",
        "_columns",
        "_rows",
        "_session_ids",
        "count",
        "data",
        "end",
        "position",
    )

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        """Where the rows begin in the bytes."""
        self.count: int
        kind, self.count = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        self._rows: list[MessageRow] | None = None
        self._columns: list[Column] = []
        if kind == _ONE_BY_ONE:
            self._rows, self.end = _unpack_one_by_one(data, position, self.count)
            return
        if kind != _COLUMNS:
            raise ValueError(f"rows of the unknown format {kind}")
        for _ in range(_NUMBERS):
            column = Column(data, position, self.count)
            self._columns.append(column)
            position = column.end
        self._session_ids = TextColumn(data, position, self.count)
        self._changes = TextColumn(data, self._session_ids.end, self.count)
        self.end = self._changes.end
        """The position after the rows."""

    def rows(self, start: int, stop: int) -> list[MessageRow]:
        """Returns the rows from one position to another."""
        if self._rows is not None:
            return self._rows[start:stop]
        session_ids: Iterable[str | None]
        if self._session_ids.is_none:
            session_ids = repeat(None, stop - start)
        else:
            texts = self._session_ids.values(start, stop)
            session_ids = [None if text is None else text.decode() for text in texts]
        columns = [column.values(start, stop) for column in self._columns]
        values = zip(*columns, session_ids, self._changes.values(start, stop), strict=True)
        return list(map(tuple.__new__, repeat(MessageRow), values))

    def live_rows(self, dead: int) -> list[MessageRow]:
        """Returns the rows whose bit in `dead` is not set."""
        rows = self.rows(0, self.count)
        return [rows[position] for position in unset_positions(dead, self.count)] if dead else rows

    def ids(self) -> Sequence[int]:
        """Returns the ids of the messages: a range if they are consecutive."""
        if self._rows is not None:
            return [row.id for row in self._rows]
        return _range_or_list(_integers(self._columns[_ID], 0, self.count))

    # --- what is known without unpacking the rows ----------------------------------------------

    @property
    def queue(self) -> tuple[int, int] | None:
        """Entity id and sub-queue, if they are known to be the same for all rows."""
        if self._rows is not None:
            return None
        entity_id, sub_queue = self._columns[_ENTITY_ID], self._columns[_SUB_QUEUE]
        if not entity_id.is_equal or not sub_queue.is_equal:
            return None
        return entity_id.first, sub_queue.first

    def session_ids(self, start: int, stop: int) -> list[str]:
        """Returns the session ids of some messages, all of which belong to a session."""
        return [text.decode() for text in self._session_ids.values(start, stop) if text is not None]

    def waiting_runs(self, *, with_sessions: bool) -> list[tuple[int, int, int]]:
        """Returns the runs of consecutive sequence numbers: the first number, and from which position to which. Returns
        none if the messages are not all active or all scheduled. With `with_sessions`, also none if one has no session id;
        without it, none if one has a session id."""
        if self._rows is not None:
            return []
        if not (self._session_ids.has_all if with_sessions else self._session_ids.is_none):
            return []
        if not self._columns[_STATE].is_zero_or_none and not self.are_scheduled:
            return []
        column = self._columns[_SEQUENCE_NUMBER]
        if column.is_consecutive:
            return [(column.first, 0, self.count)]
        numbers = list(_integers(column, 0, self.count))
        breaks = [at for at in range(1, self.count) if numbers[at] != numbers[at - 1] + 1]
        bounds = pairwise([0, *breaks, self.count])
        return [(numbers[start], start, stop) for start, stop in bounds]

    @property
    def are_scheduled(self) -> bool:
        """Whether all messages are scheduled."""
        state = self._columns[_STATE]
        return state.is_equal and state.first == MessageState.SCHEDULED

    def scheduled_ms(self, start: int, stop: int) -> tuple[int, int]:
        """When the first and the last of some scheduled messages become active."""
        column = self._columns[_SCHEDULED_ENQUEUE_TIME]
        if column.is_equal:
            return column.first, column.first
        times_ms = list(_integers(column, start, stop))
        return min(times_ms), max(times_ms)

    @property
    def earliest_ms(self) -> int:
        """A time that is not later than the time at which any of the messages was enqueued."""
        return self._columns[_ENQUEUED_TIME].least

    @property
    def last_enqueue_sequence_number(self) -> int:
        """The highest enqueue sequence number."""
        column = self._columns[_ENQUEUE_SEQUENCE_NUMBER]
        if column.is_consecutive:
            return column.first + self.count - 1
        return max(_integers(column, 0, self.count))

    def earliest_expiry_ms(self, start: int, stop: int) -> int | None:
        """When the first of some messages expires; 0 if none does, None if only some do."""
        column = self._columns[_EXPIRES_AT]
        if column.is_zero_or_none:
            return 0
        earliest_ms: int = column.first if column.is_equal else min(_integers(column, start, stop))
        return earliest_ms or None

    def size_bytes(self, start: int, stop: int) -> int:
        """The size of some messages."""
        column = self._columns[_SIZE]
        if column.is_equal:
            return column.first * (stop - start)
        return sum(_integers(column, start, stop))

    def shared_payload_ids(self, start: int, stop: int) -> list[int]:
        """The payload ids of some messages, of those that differ from the id of the message."""
        ids, payload_ids = self._columns[_ID], self._columns[_PAYLOAD_ID]
        if ids.is_consecutive and payload_ids.is_consecutive and ids.first == payload_ids.first:
            return []
        pairs = zip(_integers(ids, start, stop), _integers(payload_ids, start, stop), strict=True)
        return [payload_id for message_id, payload_id in pairs if payload_id != message_id]


def read_ids(data: bytes, position: int) -> Sequence[int]:
    """Returns the same as `PackedRows.ids`, in a fraction of the time: a start does it for every block."""
    kind, count = _HEAD.unpack_from(data, position)
    if kind != _COLUMNS:
        return PackedRows(data, position).ids()
    return _range_or_list(_integers(Column(data, position + _HEAD.size, count), 0, count))


def _range_or_list(numbers: Iterable[int]) -> Sequence[int]:
    return numbers if isinstance(numbers, range) else list(numbers)


def _integers(column: Column, start: int, stop: int) -> Iterable[int]:
    """Returns values of a column that has no None."""
    return column.values(start, stop)  # type: ignore[return-value]


def _unpack_one_by_one(data: bytes, position: int, count: int) -> tuple[list[MessageRow], int]:
    rows = []
    for _ in range(count):
        *values, session_length, changes_length = _ROW.unpack_from(data, position)
        position += _ROW.size
        session_id = changes = None
        if session_length:
            session_id = data[position : position + session_length - 1].decode()
            position += session_length - 1
        if changes_length:
            changes = data[position : position + changes_length - 1]
            position += changes_length - 1
        if values[_TIME_TO_LIVE] == _NO_TIME_TO_LIVE:
            values[_TIME_TO_LIVE] = None
        rows.append(MessageRow._make((*values, session_id, changes)))
    return rows, position
