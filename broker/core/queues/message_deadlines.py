"""The deadlines of waiting messages: when they expire and when they become active.

A deadline is added for many messages at once, because most messages of a batch have the same. Packed
messages have one deadline, at their earliest expiry or at their earliest scheduled time.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.deadlines import Deadlines
    from broker.core.queues.packed_messages import PackedMessages

_EXPIRY = attrgetter("expires_at_ms")
_SCHEDULED_TIME = attrgetter("scheduled_enqueue_time_ms")
Waiting = TypeVar("Waiting", "Message", "Message | PackedMessages")


def watch_expiry(deadlines: Deadlines, messages: Sequence[Message | PackedMessages]) -> None:
    """Adds the deadlines at which messages expire."""
    for at_ms, alike in _group_by(messages, _EXPIRY).items():
        deadlines.add(Due.TIME_TO_LIVE, at_ms, alike)


def forget_expiry(deadlines: Deadlines, messages: Sequence[Message | PackedMessages]) -> None:
    """Removes the deadlines at which messages expire."""
    for at_ms, alike in _group_by(messages, _EXPIRY).items():
        deadlines.discard(Due.TIME_TO_LIVE, at_ms, alike)


def watch_schedule(deadlines: Deadlines, messages: Sequence[Message | PackedMessages]) -> None:
    """Adds the deadlines at which scheduled messages become active."""
    for at_ms, alike in _group_by(messages, _SCHEDULED_TIME).items():
        deadlines.add(Due.SCHEDULED, at_ms, alike)


def forget_schedule(deadlines: Deadlines, message: Message) -> None:
    """Removes the deadline at which a scheduled message becomes active."""
    deadlines.discard(Due.SCHEDULED, message.scheduled_enqueue_time_ms, (message,))


def forget_schedules(deadlines: Deadlines, messages: Sequence[Message | PackedMessages]) -> None:
    """Removes the deadlines at which scheduled messages become active."""
    for at_ms, alike in _group_by(messages, _SCHEDULED_TIME).items():
        deadlines.discard(Due.SCHEDULED, at_ms, alike)


def are_due(deadlines: Deadlines, messages: Sequence[Message]) -> bool:
    """Whether the deadline of one of these scheduled messages has passed. Then it waits for its activation."""
    first = min(messages, key=_SCHEDULED_TIME)
    return not deadlines.has(Due.SCHEDULED, first.scheduled_enqueue_time_ms, first)


def _group_by(
    messages: Sequence[Waiting], moment_of: Callable[[Waiting], int]
) -> Mapping[int, Sequence[Waiting]]:
    """Returns messages by one of their times."""
    if len(set(map(moment_of, messages))) == 1:
        return {moment_of(messages[0]): messages}
    moments: dict[int, list[Waiting]] = {}
    for message in messages:
        moments.setdefault(moment_of(message), []).append(message)
    return moments
