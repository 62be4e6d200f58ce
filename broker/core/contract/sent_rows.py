"""The rows and payloads of messages that were sent together, as columns.

Most fields of such messages are equal or consecutive. So columns are made in a fraction of the time that a
row for each message takes, and a store that can use them never makes the rows. Any other store reads them as
sequences of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, overload

from broker.core.contract.records import MessageRow, PayloadRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.contract.records import MessagesStored


class SentRows(Sequence[MessageRow]):
    """The rows of new messages of one queue. Their ids and both their numbers are consecutive, the times are the
    same, and nothing has changed since they were sent."""

    __slots__ = (
        "_rows",
        "enqueued_time_ms",
        "entity_id",
        "expires_at_ms",
        "first_enqueue_sequence_number",
        "first_id",
        "first_sequence_number",
        "headers",
        "session_ids",
        "sizes",
        "sub_queue",
        "time_to_live_ms",
    )

    def __init__(
        self,
        first_id: int,
        entity_id: int,
        sub_queue: int,
        first_sequence_number: int,
        first_enqueue_sequence_number: int,
        enqueued_time_ms: int,
        time_to_live_ms: int | None,
        expires_at_ms: int,
        headers: Sequence[int],
        sizes: Sequence[int],
        session_ids: Sequence[str | None] | None,
    ) -> None:
        self.first_id = first_id
        """The id of the first message, and of its payload."""
        self.entity_id = entity_id
        self.sub_queue = sub_queue
        self.first_sequence_number = first_sequence_number
        self.first_enqueue_sequence_number = first_enqueue_sequence_number
        """Differs from the number in the queue if the messages were sent to a topic, or through another entity."""
        self.enqueued_time_ms = enqueued_time_ms
        self.time_to_live_ms = time_to_live_ms
        self.expires_at_ms = expires_at_ms
        self.headers = headers
        self.sizes = sizes
        self.session_ids = session_ids
        """None if no message has a session."""
        self._rows: list[MessageRow] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def ids(self) -> range:
        """Returns the ids of the messages."""
        return range(self.first_id, self.first_id + len(self.sizes))

    @property
    def last_sequence_number(self) -> int:
        """Returns the number of the last message."""
        return self.first_sequence_number + len(self.sizes) - 1

    def part(self, start: int, stop: int) -> SentRows:
        """Returns the rows from one position to another."""
        sessions = self.session_ids
        return SentRows(
            self.first_id + start,
            self.entity_id,
            self.sub_queue,
            self.first_sequence_number + start,
            self.first_enqueue_sequence_number + start,
            self.enqueued_time_ms,
            self.time_to_live_ms,
            self.expires_at_ms,
            self.headers[start:stop],
            self.sizes[start:stop],
            None if sessions is None else sessions[start:stop],
        )

    @overload
    def __getitem__(self, index: int) -> MessageRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[MessageRow]: ...
    def __getitem__(self, index: int | slice) -> MessageRow | list[MessageRow]:
        return self.rows()[index]

    def __iter__(self) -> Iterator[MessageRow]:
        return iter(self.rows())

    def rows(self) -> list[MessageRow]:
        """Returns the rows. They are made once."""
        if self._rows is None and len(self.sizes) == 1:
            self._rows = [self._only_row()]
        if self._rows is None:
            numbers = count(self.first_sequence_number)
            columns = zip(
                self.ids,
                repeat(self.entity_id),
                repeat(self.sub_queue),
                numbers,
                count(self.first_enqueue_sequence_number),
                repeat(self.enqueued_time_ms),
                repeat(self.time_to_live_ms),
                repeat(self.expires_at_ms),
                repeat(0),  # scheduled_enqueue_time_ms
                repeat(0),  # delivery_count
                repeat(0),  # state
                self.headers,
                self.sizes,
                self.ids,  # of the payloads
                repeat(None) if self.session_ids is None else self.session_ids,
                repeat(None),  # changes
                strict=False,
            )
            self._rows = list(map(tuple.__new__, repeat(MessageRow), columns))
        return self._rows

    def _only_row(self) -> MessageRow:
        """Returns the row of a single message. Making columns for it takes several times as long."""
        return MessageRow(
            self.first_id,
            self.entity_id,
            self.sub_queue,
            self.first_sequence_number,
            self.first_enqueue_sequence_number,
            self.enqueued_time_ms,
            self.time_to_live_ms,
            self.expires_at_ms,
            0,  # scheduled_enqueue_time_ms
            0,  # delivery_count
            0,  # state
            self.headers[0],
            self.sizes[0],
            self.first_id,  # of the payload
            None if self.session_ids is None else self.session_ids[0],
            None,  # changes
        )


class SentPayloads(Sequence[PayloadRow]):
    """The payloads of new messages. Their ids are consecutive."""

    __slots__ = ("annotations", "bodies", "first_id")

    def __init__(
        self, first_id: int, bodies: Sequence[bytes], annotations: Sequence[bytes] | None
    ) -> None:
        self.first_id = first_id
        self.bodies = bodies
        self.annotations = annotations
        """None if no message has annotations."""

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def ids(self) -> range:
        """Returns the ids of the payloads."""
        return range(self.first_id, self.first_id + len(self.bodies))

    def part(self, start: int, stop: int) -> SentPayloads:
        """Returns the payloads from one position to another."""
        annotations = self.annotations
        return SentPayloads(
            self.first_id + start,
            self.bodies[start:stop],
            None if annotations is None else annotations[start:stop],
        )

    @overload
    def __getitem__(self, index: int) -> PayloadRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[PayloadRow]: ...
    def __getitem__(self, index: int | slice) -> PayloadRow | list[PayloadRow]:
        if isinstance(index, slice):
            return list(self)[index]
        annotations = b"" if self.annotations is None else self.annotations[index]
        return PayloadRow(self.ids[index], self.bodies[index], annotations)

    def __iter__(self) -> Iterator[PayloadRow]:
        annotations = repeat(b"") if self.annotations is None else self.annotations
        columns = zip(self.ids, self.bodies, annotations, strict=False)
        return map(tuple.__new__, repeat(PayloadRow), columns)


def columns_of(record: MessagesStored) -> tuple[SentRows, SentPayloads] | None:
    """Returns the rows and the payloads of a record as columns, or None if it has no columns, or if they do not belong
    to the same messages."""
    rows, payloads = record
    if (
        type(rows) is SentRows
        and type(payloads) is SentPayloads
        and rows.first_id == payloads.first_id
        and len(rows.sizes) == len(payloads.bodies)
    ):
        return rows, payloads
    return None


def payload_bytes(payloads: Sequence[PayloadRow]) -> int:
    """Returns the size of all bodies and annotations."""
    if isinstance(payloads, SentPayloads):  # nearly all; no rows have to be made
        return sum(map(len, payloads.bodies)) + sum(map(len, payloads.annotations or ()))
    return sum([len(body) + len(annotations) for _, body, annotations in payloads])
