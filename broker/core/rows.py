"""Messages as rows of the store, and back.

Owns the order of the columns; the queue decides when a row is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.message import Message, MessageState
from broker.core.overlay import Overlay
from broker.core.records import MessageRow

if TYPE_CHECKING:
    from collections.abc import Iterable

_STATES = {int(state): state for state in MessageState}


def rows_of(messages: Iterable[Message]) -> list[MessageRow]:
    """One row a message, as it is now, in the queue it is in now."""
    make = tuple.__new__  # a NamedTuple's own constructor takes twice as long
    rows = []
    for message in messages:
        queue = message.queue
        assert queue is not None
        overlay = message.overlay
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
                    None if overlay is None else overlay.to_bytes(),
                ),
            )
        )
    return rows


def message_from(row: MessageRow) -> Message:
    """The message a row remembers; its body stays in the store, its queue is up to the caller."""
    message = Message.__new__(Message)
    (
        message.id,
        _,
        _,
        message.sequence_number,
        message.enqueue_sequence_number,
        message.enqueued_time_ms,
        message.time_to_live_ms,
        message.expires_at_ms,
        message.scheduled_enqueue_time_ms,
        message.delivery_count,
        state,
        message.header,
        message.size,
        message.payload_id,
        message.session_id,
        overlay,
    ) = row
    message.state = _STATES[state]
    message.overlay = None if overlay is None else Overlay.from_bytes(overlay)
    message.body = None
    message.annotations = b""
    message.queue = None
    message.lock_token = None
    message.locked_until_ms = 0
    message.lock_holder = None
    if message.payload_id == message.id:
        message.payload_id = message.id  # one int object instead of two equal ones
    if message.enqueue_sequence_number == message.sequence_number:
        message.enqueue_sequence_number = message.sequence_number
    return message
