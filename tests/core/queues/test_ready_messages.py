"""Messages ready for delivery: their order, and which bodies are read back for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker.core.contract.message import Message
from broker.core.queues.ready_messages import ReadyMessages

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
    ready.arrive([stays])
    ready.give_back(ready.take(9, 100))
    ready.arrive([paged])
    ready.give_back(ready.take(9, 100))
    assert ready.blocked
    assert [paged] == ready.to_read_ahead()


def test_all_can_be_taken_in_order_whether_or_not_in_memory():
    """What was given back comes first, and what has left its queue is not among them."""
    first, gone, paged = waiting(1), waiting(2), waiting(3, paged=True)
    ready = ReadyMessages()
    ready.arrive([first, gone, paged])
    ready.give_back(ready.take(1, 100))
    gone.queue = None
    assert [first, paged] == ready.take_all()
    assert (0, []) == (len(ready), ready.take(9, 100))
