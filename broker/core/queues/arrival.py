"""Messages arrive in a queue: new ones, scheduled ones that become active, and dead letters.

Assigns ids, sequence numbers and times. What a queue does with its messages afterwards is in `queue.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.contract.records import MessagesStored, MessagesUpdated, PayloadRow
from broker.core.contract.sent_rows import SentPayloads, SentRows
from broker.core.messages.message_rows import rows_of, rows_of_copies
from broker.core.queues.message_deadlines import watch_expiry, watch_schedule
from config.model.definitions import UNLIMITED_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.records import MessageRow
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue

_ACTIVE = MessageState.ACTIVE


def store(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Store new messages."""
    count = len(messages)
    message_id = first_id = queue.context.ids.take_messages(count)
    number = first_number = queue.last_sequence_number + 1
    expires = queue.default_time_to_live_ms < UNLIMITED_MS
    expiring: list[Message] = []
    scheduled: list[Message] = []
    has_numbers = has_times = False
    for message in messages:
        message.id = message.payload_id = message_id
        message.queue = queue
        message.sequence_number = number
        if message.enqueue_sequence_number:
            has_numbers = True
        else:
            message.enqueue_sequence_number = number
        message.enqueued_time_ms = now_ms
        if message.scheduled_enqueue_time_ms:
            has_times = True
        if message.scheduled_enqueue_time_ms > now_ms:
            scheduled.append(message)
        elif expires or message.time_to_live_ms is not None:
            expiring.append(message)
        message_id += 1
        number += 1
    sizes = [messages[0].size] if count == 1 else [message.size for message in messages]
    size_bytes = sum(sizes)
    queue.context.payloads.add_bodies(size_bytes)
    _enter(queue, first_number, messages, size_bytes, expiring, scheduled, now_ms)
    if (
        not has_times  # also not in the past: receivers see the time
        and (not expiring or _have_one_expiry(messages))
        and (not has_numbers or _have_consecutive_numbers(messages))
    ):
        turn.records.append(_sent(queue, messages, first_id, sizes))
    else:
        _record_stored(messages, turn)


def store_copies(
    message: Message, queues: Sequence[Queue], first_id: int, now_ms: int
) -> list[MessageRow]:
    """Add a copy of an active message to each of several queues without sessions, with ids from `first_id` on. The
    message itself is the first copy. Returns the rows of the copies. The caller records them.

    Does for each queue what `enqueue` does. A message to thousands of subscriptions is added in one piece, and others
    wait for it, so this is done in one loop, and rows are made from columns."""
    size = message.size
    copies: list[Message] = []
    numbers: list[int] = []
    message.enqueued_time_ms = now_ms
    limit_ms = queues[0].default_time_to_live_ms
    expire_alike = all(queue.default_time_to_live_ms == limit_ms for queue in queues)
    if expire_alike:
        _limit_time_to_live(message, limit_ms, now_ms)  # the copies get its times
    copy = message
    for message_id, queue in enumerate(queues, first_id):
        if message_id > first_id:
            copy = message.copy()
        copy.id = message_id
        copy.queue = queue
        copy.sequence_number = number = queue.last_sequence_number + 1
        queue.last_sequence_number = number
        queue.index.add_one(number, copy)
        queue.count += 1
        queue.size_bytes += size
        queue.usage.size_bytes += size
        queue.dispatcher.ready.add_one(copy)
        queue.dispatcher.touch()
        copies.append(copy)
        numbers.append(number)
    context = queues[0].context
    context.payloads.add_messages(len(copies))
    if context.payloads.over_budget:
        context.arrived += copies
    if not expire_alike:
        for copy, queue in zip(copies, queues, strict=True):
            _set_expiry(queue, (copy,), now_ms)
        return rows_of(copies)
    if message.expires_at_ms:
        watch_expiry(context.deadlines, copies)
    return rows_of_copies(message, first_id, [queue.entity_id for queue in queues], numbers)


def store_as_dead_letters(queue: Queue, messages: Sequence[Message], turn: Turn) -> None:
    """Store new messages in this dead-letter queue."""
    number = queue.context.ids.take_messages(len(messages))
    for message in messages:
        message.id = message.payload_id = number
        number += 1
    queue.context.payloads.add_bodies(sum([message.size for message in messages]))
    enqueue_dead_letters(queue, messages)
    _record_stored(messages, turn)


def enqueue(queue: Queue, messages: Sequence[Message], now_ms: int) -> None:
    """Add messages and assign their sequence numbers. The caller records them."""
    number = first_number = queue.last_sequence_number + 1
    expires = queue.default_time_to_live_ms < UNLIMITED_MS
    expiring: list[Message] = []
    scheduled: list[Message] = []
    for message in messages:
        message.queue = queue
        message.sequence_number = number
        if not message.enqueue_sequence_number:
            message.enqueue_sequence_number = number
        message.enqueued_time_ms = now_ms
        number += 1
        if message.scheduled_enqueue_time_ms > now_ms:
            scheduled.append(message)
        elif expires or message.time_to_live_ms is not None:
            expiring.append(message)
    size_bytes = sum([message.size for message in messages])
    _enter(queue, first_number, messages, size_bytes, expiring, scheduled, now_ms)


def enqueue_dead_letters(queue: Queue, messages: Sequence[Message]) -> None:
    """Add dead letters. They get new sequence numbers and keep their other fields."""
    number = first_number = queue.last_sequence_number + 1
    for message in messages:
        message.queue = queue
        message.sequence_number = number
        if not message.enqueue_sequence_number:
            message.enqueue_sequence_number = number
        message.expires_at_ms = 0
        message.state = _ACTIVE
        number += 1
    queue.enter(first_number, messages, sum([message.size for message in messages]))
    queue.offer_for_eviction(messages)
    queue.delivery.add_ready(messages)


def activate(queue: Queue, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
    """Activate scheduled messages. They get new sequence numbers, as if they were sent now."""
    queue.remove(messages)
    for message in messages:
        message.state = _ACTIVE
        message.enqueue_sequence_number = 0
    enqueue(queue, messages, now_ms)
    turn.records.append(MessagesUpdated(rows_of(messages)))


def renumber(queue: Queue, numbers: Mapping[Message, int], turn: Turn) -> None:
    """Give scheduled messages their reserved sequence numbers."""
    changed = [message for message in numbers if message.queue is queue]
    queue.remove(changed)
    for message in changed:
        message.queue = queue
        message.sequence_number = message.enqueue_sequence_number = numbers[message]
        queue.index.add_late(message)
    schedule(queue, changed)
    queue.change_size(len(changed), sum([message.size for message in changed]))
    queue.delivery.enter_late(changed)
    turn.records.append(MessagesUpdated(rows_of(changed)))


def schedule(queue: Queue, messages: Sequence[Message]) -> None:
    """Let messages wait for their scheduled times."""
    queue.scheduled_count += len(messages)
    for message in messages:
        message.state = MessageState.SCHEDULED
    watch_schedule(queue.context.deadlines, messages)


def _enter(
    queue: Queue,
    first_number: int,
    messages: Sequence[Message],
    size_bytes: int,
    expiring: Sequence[Message],
    scheduled: Sequence[Message],
    now_ms: int,
) -> None:
    """Add messages that have their numbers and times."""
    queue.enter(first_number, messages, size_bytes)
    if expiring:
        _set_expiry(queue, expiring, now_ms)
    queue.offer_for_eviction(messages)
    if scheduled:
        schedule(queue, scheduled)
        messages = [message for message in messages if message.state is _ACTIVE]
    queue.delivery.add_ready(messages)


def _set_expiry(queue: Queue, messages: Sequence[Message], now_ms: int) -> None:
    """Set when messages expire, and add the deadlines."""
    limit_ms = queue.default_time_to_live_ms
    for message in messages:
        _limit_time_to_live(message, limit_ms, now_ms)
    watch_expiry(
        queue.context.deadlines, [message for message in messages if message.expires_at_ms]
    )


def _limit_time_to_live(message: Message, limit_ms: int, now_ms: int) -> None:
    """Set when a message expires: after the shorter time to live of the message and its queue. The message shows the
    shorter one. If neither has one, nothing is set."""
    live_ms = message.time_to_live_ms
    if live_ms is None and limit_ms >= UNLIMITED_MS:
        return
    if live_ms is None or live_ms > limit_ms:
        message.time_to_live_ms = live_ms = limit_ms
    message.expires_at_ms = now_ms + live_ms if live_ms < UNLIMITED_MS else 0


def _have_one_expiry(messages: Sequence[Message]) -> bool:
    """Whether messages that were enqueued at the same time have the same time to live."""
    return len({message.time_to_live_ms for message in messages}) == 1


def _have_consecutive_numbers(messages: Sequence[Message]) -> bool:
    """Whether the numbers that messages got from the entity that accepted them are consecutive."""
    first = messages[0].enqueue_sequence_number
    numbers = [message.enqueue_sequence_number for message in messages]
    return numbers == list(range(first, first + len(numbers)))


def _sent(
    queue: Queue, messages: Sequence[Message], first_id: int, sizes: Sequence[int]
) -> MessagesStored:
    """Returns the record of new messages that differ only in header, size, session and payload. All have
    their bodies."""
    first = messages[0]
    count = len(messages)
    if count == 1:
        headers, session_ids = [first.header], [first.session_id]
        bodies, annotations = [first.body], [first.annotations]
    else:
        headers = [message.header for message in messages]
        session_ids = [message.session_id for message in messages]
        bodies = [message.body for message in messages]
        annotations = [message.annotations for message in messages]
    return MessagesStored(
        SentRows(
            first_id,
            queue.entity_id,
            queue.sub_queue,
            first.sequence_number,
            first.enqueue_sequence_number,
            first.enqueued_time_ms,
            first.time_to_live_ms,
            first.expires_at_ms,
            headers,
            sizes,
            None if session_ids.count(None) == count else session_ids,
        ),
        SentPayloads(
            first_id,
            bodies,  # type: ignore[arg-type]
            None if annotations.count(b"") == count else annotations,
        ),
    )


def _record_stored(messages: Sequence[Message], turn: Turn) -> None:
    make = tuple.__new__  # see `rows_of`
    payloads = [make(PayloadRow, (m.id, m.body, m.annotations)) for m in messages]
    turn.records.append(MessagesStored(rows_of(messages), payloads))
