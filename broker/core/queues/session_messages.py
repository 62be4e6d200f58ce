"""The messages of one session, in any state, in the order of their sequence numbers.

Nearly all arrive at the end and leave from the beginning. So it is a list with a moving start, which takes a fifth of
the memory of a dict, and is quicker to fill if messages arrive for a thousand sessions in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.message import Message

_COMPACT_FROM = 64
_ONE_BY_ONE = 8
"""Up to so many messages that do not leave from the beginning are searched for."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class SessionMessages:
    """A sorted list of messages."""

    __slots__ = ("_head", "_messages")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        """The messages before `_head` have left; they are None."""
        self._head = 0

    def __len__(self) -> int:
        return len(self._messages) - self._head

    def __iter__(self) -> Iterator[Message]:
        """Returns the messages, in order. They must not change meanwhile."""
        return iter(self._messages[self._head :])

    def add(self, message: Message) -> None:
        """Add a message with a higher number than all here."""
        self._messages.append(message)

    def add_late(self, messages: Iterable[Message]) -> None:
        """Add messages with any numbers that are not here."""
        self._messages = sorted([*self, *messages], key=_SEQUENCE_NUMBER)
        self._head = 0

    def remove(self, messages: Sequence[Message]) -> None:
        """Remove messages that are here."""
        ours, head, count = self._messages, self._head, len(messages)
        end = head + count
        if ours[head:end] == messages:
            if end == len(ours) or (end > _COMPACT_FROM and end * 2 > len(ours)):
                del ours[:end]
                self._head = 0
            else:
                ours[head:end] = [None] * count  # type: ignore[list-item]
                self._head = end
        elif count <= _ONE_BY_ONE:
            for message in messages:
                del ours[self._position(message.sequence_number)]
        else:
            gone = set(messages)
            ours[head:] = [message for message in ours[head:] if message not in gone]

    def from_number(self, number: int) -> list[Message]:
        """Returns the messages from a number on, in order."""
        return self._messages[self._position(number) :]

    def _position(self, number: int) -> int:
        return bisect_left(self._messages, number, self._head, key=_SEQUENCE_NUMBER)
