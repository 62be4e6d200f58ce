"""The messages of one session, in any state, in the order of their sequence numbers.

Nearly all arrive at the end and leave from the beginning. So it is a list with a moving start, which takes a fifth of
the memory of a dict, and is quicker to fill if messages arrive for a thousand sessions in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from broker.core.contract.message import Message
from broker.core.queues.block_packing import unpack_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.queues.packed_messages import PackedMessages

_COMPACT_FROM = 64
_ONE_BY_ONE = 8
"""Up to so many messages that do not leave from the beginning are searched for."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class SessionMessages:
    """A sorted list of messages."""

    __slots__ = ("_head", "_in_packed", "_messages")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        """The messages before `_head` have left; they are None. A `PackedMessages` takes the place of all its
        messages that belong to this session."""
        self._head = 0
        self._in_packed = 0
        """How many more messages there are in `PackedMessages` than these take places."""

    def __len__(self) -> int:
        return len(self._messages) - self._head + self._in_packed

    def add(self, message: Message) -> None:
        """Add a message with a higher number than all here."""
        self._messages.append(message)

    def add_late(self, messages: Iterable[Message]) -> None:
        """Add messages with any numbers that are not here."""
        self._messages = sorted([*self._messages[self._head :], *messages], key=_SEQUENCE_NUMBER)
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

    def from_number(self, number: int) -> Iterator[Message]:
        """Returns the messages from a number on, in order. They must not change meanwhile. Packed blocks are unpacked when
        the first of their messages is asked for."""
        # The block with this number may begin with a lower one.
        position = max(self._head, self._position(number) - 1)
        while position < len(self._messages):
            message = self._messages[position]
            if type(message) is not Message:
                unpack_block(cast("PackedMessages", message))
                continue
            if message.sequence_number >= number:
                yield message
            position += 1

    # --- packed messages ------------------------------------------------------------------------

    def pack(self, messages: Sequence[Message], packed: PackedMessages) -> None:
        """Replace messages, one after the other, by the packed block that has them."""
        start = self._position(messages[0].sequence_number)
        self._messages[start : start + len(messages)] = cast("list[Message]", [packed])
        self._in_packed += len(messages) - 1

    def add_packed(self, packed: PackedMessages, count: int) -> None:
        """Add a packed block with higher numbers than all here. `count` of its messages belong to this session."""
        self._messages.append(packed)  # type: ignore[arg-type]  # a cast would take as long as this
        self._in_packed += count - 1

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """Replace a packed block by those of its messages that belong to this session."""
        start = self._position(packed.sequence_number)
        self._messages[start : start + 1] = messages
        self._in_packed -= len(messages) - 1

    def _position(self, number: int) -> int:
        return bisect_left(self._messages, number, self._head, key=_SEQUENCE_NUMBER)
