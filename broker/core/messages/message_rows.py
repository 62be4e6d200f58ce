"""Converts messages to rows of the store and back.

The order of the columns is defined here. Queues decide when a row is written.
"""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING

from broker.core.contract.message import Message, MessageState
from broker.core.contract.message_changes import MessageChanges
from broker.core.contract.records import MessageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STATES = {int(state): state for state in MessageState}


def rows_of(messages: Iterable[Message]) -> list[MessageRow]:
    """Returns the row of each message, with its present queue."""
    make = tuple.__new__  # a NamedTuple's own constructor takes twice as long
    rows = []
    changes: MessageChanges | None = None
    changes_bytes: bytes | None = None
    for message in messages:
        queue = message.queue
        assert queue is not None
        if message.changes is not changes:  # messages that were moved together share theirs
            changes = message.changes
            changes_bytes = None if changes is None else changes.to_bytes()
        rows.append(
            make(
                MessageRow,
                (
                    message.id,
                    queue.entity_id,
                    queue.sub_queue,
                    message.sequence_number,
                    message.enqueue_sequence_number,
                    message.enqueued_time_ms,
                    message.time_to_live_ms,
                    message.expires_at_ms,
                    message.scheduled_enqueue_time_ms,
                    message.delivery_count,
                    message.state + 0,  # a plain int: not every database takes an enum
                    message.header,
                    message.size,
                    message.payload_id,
                    message.session_id,
                    changes_bytes,
                ),
            )
        )
    return rows


def rows_of_copies(
    message: Message, first_id: int, entity_ids: Sequence[int], sequence_numbers: Sequence[int]
) -> list[MessageRow]:
    """Returns the rows of copies of an active message, one in the main queue of each entity, with ids from `first_id` on.
    Takes a third of the time of `rows_of`."""
    changes = message.changes
    columns = zip(
        count(first_id),
        entity_ids,
        repeat(0),  # the main queue
        sequence_numbers,
        repeat(message.enqueue_sequence_number),
        repeat(message.enqueued_time_ms),
        repeat(message.time_to_live_ms),
        repeat(message.expires_at_ms),
        repeat(message.scheduled_enqueue_time_ms),
        repeat(message.delivery_count),
        repeat(0),  # active
        repeat(message.header),
        repeat(message.size),
        repeat(message.payload_id),
        repeat(message.session_id),
        repeat(None if changes is None else changes.to_bytes()),
        strict=False,
    )
    return list(map(tuple.__new__, repeat(MessageRow), columns))


def messages_from(rows: Iterable[MessageRow]) -> list[Message]:
    """Returns the messages of rows. They have no body and no queue yet."""
    new = Message.__new__
    active = MessageState.ACTIVE
    messages = []
    last_changes: bytes | None = None
    last: MessageChanges | None = None
    for row in rows:
        message = new(Message)
        (
            number,
            _,
            _,
            sequence_number,
            enqueue_sequence_number,
            message.enqueued_time_ms,
            message.time_to_live_ms,
            message.expires_at_ms,
            message.scheduled_enqueue_time_ms,
            message.delivery_count,
            state,
            message.header,
            message.size,
            payload_id,
            message.session_id,
            changes,
        ) = row
        message.id = number
        message.sequence_number = sequence_number
        # Equal numbers are kept as one object: there are millions of them.
        message.payload_id = number if payload_id == number else payload_id
        message.enqueue_sequence_number = (
            sequence_number
            if enqueue_sequence_number == sequence_number
            else enqueue_sequence_number
        )
        message.state = _STATES[state] if state else active
        if changes is None:
            message.changes = None
        else:
            if changes != last_changes:  # messages that were moved together share theirs
                last_changes, last = changes, MessageChanges.from_bytes(changes)
            message.changes = last
        message.body = None
        message.annotations = b""
        message.queue = None
        message.lock_token = message.lock_group = None
        message.locked_until_ms = 0
        messages.append(message)
    return messages
