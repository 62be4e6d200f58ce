"""Dead-lettering: moves messages of a queue to its dead-letter queue, counts and reports them.

`queue.py` removes and adds the messages. Receivers, delivery counts, expiry, forwarding and filters decide
which messages are dead-lettered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message_changes import EMPTY
from broker.core.contract.records import MessagesUpdated
from broker.core.contract.transitions import TransitionKind
from broker.core.contract.turn import DeadLetter, DeadLettered
from broker.core.messages.message_rows import rows_of
from broker.core.queues.arrival import enqueue_dead_letters, store_as_dead_letters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.message_changes import MessageChanges
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue

DEAD_LETTERS_LOGGED_MAX = 20
"""How many of the messages that are dead-lettered at once the log describes one by one."""


def dead_letter(
    queue: Queue,
    messages: Sequence[Message],
    reason: str | None,
    description: str | None,
    turn: Turn,
    cause: DeadLetterCause,
) -> None:
    """Move messages to the dead-letter queue, with the reason."""
    assert queue.dead_letters is not None
    count_dead_letters(queue, messages, reason, turn, cause)
    queue.remove(messages)
    moved = []
    before: MessageChanges | None = None
    after = replace(EMPTY, dead_letter_reason=reason, dead_letter_description=description)
    for message in messages:
        if message.changes is not before:
            before = message.changes
            after = replace(
                before or EMPTY, dead_letter_reason=reason, dead_letter_description=description
            )
        copy = message.copy()
        copy.changes = after
        moved.append(copy)
    enqueue_dead_letters(queue.dead_letters, moved)
    turn.records.append(MessagesUpdated(rows_of(moved)))
    if queue.context.history is not None:
        queue.context.history.moved(
            TransitionKind.DEAD_LETTERED,
            queue,
            [message.sequence_number for message in messages],
            queue.dead_letters,
            moved,
            turn,
            reason=reason,
            description=description,
        )


def store_dead_letters(
    queue: Queue,
    messages: Sequence[Message],
    reason: str,
    description: str,
    now_ms: int,
    turn: Turn,
) -> None:
    """Store new messages in this dead-letter queue, with the reason."""
    changes = replace(EMPTY, dead_letter_reason=reason, dead_letter_description=description)
    for message in messages:
        message.enqueued_time_ms = now_ms
        message.changes = changes
    store_as_dead_letters(queue, messages, turn)


def count_dead_letters(
    queue: Queue,
    messages: Sequence[Message],
    reason: str | None,
    turn: Turn,
    cause: DeadLetterCause,
) -> None:
    """Count messages that become dead letters under this queue, and report them to the log."""
    count = len(messages)
    turn.count(queue.counts, Outcome.DEAD_LETTERED, count)
    turn.count(queue.counts, cause, count)
    history = queue.context.history
    traces = history is not None and history.traces
    first = [
        DeadLetter(
            _message_id(queue, message),
            message.sequence_number,
            message.delivery_count,
            _trace_id(queue, message) if traces else None,
        )
        for message in messages[:DEAD_LETTERS_LOGGED_MAX]
    ]
    turn.dead_lettered.append(
        DeadLettered(queue.context.namespace, queue.path, reason, count, first)
    )


def expire(queue: Queue, messages: Sequence[Message], turn: Turn) -> None:
    """Dead-letter or delete messages whose time to live has ended."""
    turn.count(queue.counts, Outcome.EXPIRED, len(messages))
    if queue.context.history is not None:
        queue.context.history.record(TransitionKind.EXPIRED, queue, messages, turn)
    if queue.dead_letters_expired:
        description = "The message expired and was dead lettered."
        cause = DeadLetterCause.TIME_TO_LIVE
        dead_letter(queue, messages, "TTLExpiredException", description, turn, cause)
    else:
        queue.delete(messages, turn)
    queue.discard_ready(messages)


def _message_id(queue: Queue, message: Message) -> str | None:
    """Returns the message id that the sender set, or None if its body is not in memory or has none."""
    if message.body is None:
        return None
    try:
        return queue.context.reader.message_id(message.body)
    except UndecodableMessage:
        return None


def _trace_id(queue: Queue, message: Message) -> str | None:
    """Returns the trace id that the sender set, or None."""
    reader = queue.context.reader
    (head,) = reader.heads([message.body])
    parent = None if head is None else reader.trace_parent(head)
    return None if parent is None else parent.split("-")[1]
