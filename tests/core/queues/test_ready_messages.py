"""Messages ready for delivery: their order, and which bodies are read back for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker.core.contract.message import Message
from broker.core.queues.ready_messages import (
    READ_AHEAD_MAX_BYTES,
    READ_AHEAD_MESSAGES,
    ReadyMessages,
)

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue


def waiting(number: int, *, paged: bool = False) -> Message:
    message = Message(b"body")
    message.queue = cast("Queue", object())
    message.sequence_number = number
    if paged:
        message.body = None
    return message


def test_a_body_is_read_though_what_was_given_back_before_it_is_in_memory():
    """A dead letter that cannot be forwarded is taken and given back again and again: the one
    behind it must not wait for its body forever."""
    stays, paged = waiting(1), waiting(2, paged=True)
    ready = ReadyMessages()
    ready.add([stays])
    ready.put_back(ready.take(9, 100))
    ready.add([paged])
    ready.put_back(ready.take(9, 100))
    assert ready.blocked
    assert [paged] == ready.to_read_ahead()


def test_all_can_be_taken_in_order_whether_or_not_in_memory():
    """What was given back comes first, and what has left its queue is not among them."""
    first, gone, paged = waiting(1), waiting(2), waiting(3, paged=True)
    ready = ReadyMessages()
    ready.add([first, gone, paged])
    ready.put_back(ready.take(1, 100))
    gone.queue = None
    assert [first, paged] == ready.take_all()
    assert (0, []) == (len(ready), ready.take(9, 100))


def test_no_more_bytes_are_read_ahead_than_wait_to_be_delivered():
    """Large messages are read a few at a time, however often the dispatcher asks."""
    size = READ_AHEAD_MAX_BYTES // 4
    messages = [waiting(number, paged=True) for number in range(1, 41)]
    for message in messages:
        message.size = size
    ready = ReadyMessages()
    ready.add(messages)
    assert [] == ready.take(1, 100)
    asked = [ready.to_read_ahead()]
    ready.blocked = False
    asked += [ready.to_read_ahead() for _ in range(5)]
    assert [4, 0, 0, 0, 0, 0] == [len(one) for one in asked]
    for message in messages[:4]:
        message.body = b"body"
    assert messages[:2] == ready.take(2, 100 * size)
    assert messages[4:6] == ready.to_read_ahead()


def test_messages_that_have_left_are_removed_though_nobody_receives():
    """Otherwise a queue without receivers whose messages expire would grow forever."""
    ready = ReadyMessages()
    numbers = iter(range(1, 100_000))
    for _ in range(20):
        messages = [waiting(next(numbers)) for _ in range(1_000)]
        ready.add(messages)
        for message in messages:
            message.queue = None
        ready.discard(len(messages))
    assert len(ready) < 3_000


def test_the_others_stay_in_order_when_messages_are_removed():
    """Whether they were given back, or their bodies are read, or nothing has happened to them."""
    messages = [waiting(number, paged=number > 3_000) for number in range(1, 9_001)]
    ready = ReadyMessages()
    ready.add(messages)
    taken = ready.take(1_000, 1 << 30)
    ready.put_back(reversed(taken))
    read = ready.to_read_ahead()
    assert messages[3_000 : 1_000 + READ_AHEAD_MESSAGES] == read
    left = [message for message in messages if message.sequence_number % 4]
    for message in left:
        message.queue = None
    ready.discard(len(left))
    stayed = messages[3::4]
    assert len(stayed) == len(ready)
    for message in stayed:
        message.body = b"body"
    assert [] == [message for message in ready.to_read_ahead() if message in read]
    assert stayed == ready.take(9_000, 1 << 30)


def test_an_empty_list_waits_for_no_body():
    """Nothing is taken from it, so nothing else would find out, and a receiver that drains would wait forever."""
    for discards in (True, False):
        ready = ReadyMessages()
        messages = [waiting(number, paged=True) for number in range(1, 1_100)]
        ready.add(messages)
        assert ([], True) == (ready.take(9, 100), ready.blocked)
        for message in messages:
            message.queue = None
        if discards:
            ready.discard(len(messages))
        assert ready.first is None
        assert (0, False) == (len(ready), ready.blocked)


def test_discarding_some_keeps_what_is_known_about_the_others():
    """The first of the others has no body either."""
    ready = ReadyMessages()
    messages = [waiting(number, paged=True) for number in range(1, 1_100)]
    ready.add(messages)
    ready.take(9, 100)
    for message in messages[:-1]:
        message.queue = None
    ready.discard(len(messages) - 1)
    assert (1, True) == (len(ready), ready.blocked)
