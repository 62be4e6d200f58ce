"""Messages that are ready for delivery, in the order of their sequence numbers.

Messages that were put back have lower numbers and come before messages that were never delivered.
Also decides which bodies are read from the store ahead of delivery.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from broker.core.contract.message import Message
from broker.core.queues.block_packing import unpack_block
from broker.core.queues.packed_messages import PackedMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

READ_AHEAD_MESSAGES = 4_096
READ_AHEAD_MAX_BYTES = 8 * 1024 * 1024
UNPACKED_MAX = 32
"""How many packed blocks are unpacked at once. In a queue with many sessions, a block may have only one message of the
session that is read."""

_GONE = Message(b"")
"""Replaces a message that was taken. It is in no queue, so it is skipped."""
_COMPACT_FROM = 4_096
_DISCARD_FROM = 1_024
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class ReadyMessages:
    """A list with a moving start for new messages, and a heap for messages that were put back.

    A message that leaves its queue is not removed from here at once. It has no queue then, and is
    skipped. `discard` removes such messages when they are many.
    """

    __slots__ = (
        "_ahead_bytes",
        "_fresh",
        "_head",
        "_in_packed",
        "_left_count",
        "_read_ahead_to",
        "_returned",
        "blocked",
        "taken_bytes",
    )

    def __init__(self) -> None:
        self._fresh: list[Message] = []
        """New messages in the order of their numbers. A `PackedMessages` is at the place of all its
        messages, as one message without a body."""
        self._in_packed = 0
        """How many more messages there are in `PackedMessages` than these take places."""
        self._head = 0
        """The position of the next message in `_fresh`."""
        self._read_ahead_to = 0
        """The position in `_fresh` up to which bodies are in memory or requested."""
        self._ahead_bytes = 0
        """The size of the messages up to that position. Some of them may have left."""
        self._returned: list[tuple[int, Message]] = []
        self._left_count = 0
        """How many messages have left their queue from here since they were last removed. Some of
        them may have been skipped since."""
        self.blocked = False
        """Whether the last `take` ended at a message whose body is not in memory."""
        self.taken_bytes = 0
        """The size of the messages that the last `take` returned."""

    def __len__(self) -> int:
        """Returns how many messages are here, including those that have left their queue."""
        return len(self._fresh) - self._head + self._in_packed + len(self._returned)

    @property
    def first(self) -> Message | None:
        """Returns the next message, or None."""
        returned = self._returned
        while returned:
            if returned[0][1].queue is not None:
                return returned[0][1]
            heappop(returned)
        fresh = self._fresh
        while self._head < len(fresh):
            if fresh[self._head].queue is not None:
                return fresh[self._head]
            self._head += 1
        self._compact()
        self.blocked = False
        return None

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages with higher numbers than all here."""
        self._fresh += messages

    def add_one(self, message: Message) -> None:
        """Add a message with a higher number than all here."""
        self._fresh.append(message)

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put back messages that were taken, each at its old place."""
        returned = self._returned
        for message in messages:
            heappush(returned, (message.sequence_number, message))

    def discard(self, count: int) -> None:
        """So many messages have left their queue without being taken. If nobody receives, nothing
        skips them, so they are removed when they are half of all."""
        self._left_count += count
        places = len(self._fresh) - self._head + len(self._returned)
        if self._left_count < _DISCARD_FROM or self._left_count * 2 < places:
            return
        self._left_count = 0
        self._returned = [one for one in self._returned if one[1].queue is not None]
        heapify(self._returned)
        ahead = self._fresh[self._head : self._read_ahead_to]
        ahead = [message for message in ahead if message.queue is not None]
        behind = self._fresh[max(self._head, self._read_ahead_to) :]
        self._fresh = ahead + [message for message in behind if message.queue is not None]
        self._head = 0
        self._read_ahead_to = len(ahead)
        self._ahead_bytes = sum([message.size for message in ahead])
        if not self._fresh and not self._returned:
            self.blocked = False  # nobody takes from an empty list, so `take` would not reset it

    def take(self, count: int, max_bytes: int) -> list[Message]:
        """Remove and return the next messages, up to a number and size, or up to a message without
        a body."""
        self.blocked = False
        returned = self._returned
        if not returned:
            first = self._take_first(count, max_bytes)
            if first is not None:
                return first
        taken: list[Message] = []
        size = 0
        while returned and len(taken) < count and size < max_bytes:
            message = returned[0][1]
            if message.queue is not None:
                if message.body is None:
                    self.blocked = True
                    self.taken_bytes = size
                    return taken
                taken.append(message)
                size += message.size
            heappop(returned)
        fresh = self._fresh
        start = position = self._head
        size_before = size
        end = min(len(fresh), start + count - len(taken))
        while position < end and size < max_bytes:
            message = fresh[position]
            if message.queue is None:
                end = min(len(fresh), end + 1)
            elif message.body is None:
                self.blocked = True
                break
            else:
                taken.append(message)
                size += message.size
            position += 1
        if position > start:
            fresh[start:position] = [_GONE] * (position - start)
            self._head = position
            self._ahead_bytes -= size - size_before
            self._compact()
        self.taken_bytes = size
        return taken

    def _take_first(self, count: int, max_bytes: int) -> list[Message] | None:
        """Remove and return new messages if all of them can be taken, as nearly always. Returns None and
        removes nothing otherwise."""
        start = self._head
        taken = self._fresh[start : start + count]
        if len(taken) == 1:
            message = taken[0]
            if message.queue is None or message.body is None:
                return None
            size = message.size
        elif [message for message in taken if message.queue is None or message.body is None]:
            return None
        else:
            size = sum([message.size for message in taken])
        if size >= max_bytes:
            return None
        end = start + len(taken)
        self._fresh[start:end] = [_GONE] * (end - start)
        self._head = end
        self._ahead_bytes -= size
        self._compact()
        self.taken_bytes = size
        return taken

    def take_all(self) -> list[Message]:
        """Remove and return all messages, with or without a body."""
        fresh_and_packed = cast("list[object]", self._fresh)
        for packed in [one for one in fresh_and_packed if isinstance(one, PackedMessages)]:
            unpack_block(packed)
        fresh = self._fresh[self._head :]
        waiting = [message for _, message in sorted(self._returned)] + fresh
        self._fresh.clear()
        self._returned.clear()
        self._head = self._read_ahead_to = self._ahead_bytes = 0
        self.blocked = False
        return [message for message in waiting if message.queue is not None]

    @property
    def read_ahead(self) -> tuple[int, int]:
        """Number and size of the messages whose bodies are in memory or requested."""
        return max(0, self._read_ahead_to - self._head), self._ahead_bytes

    def to_read_ahead(self) -> list[Message]:
        """Returns the messages whose bodies should be read from the store now."""
        if self.blocked and self._returned and (wanted := self._returned_to_read()):
            return wanted
        if self.blocked or self._read_ahead_to <= self._head:
            self._read_ahead_to = self._head
            self._ahead_bytes = 0
        start = self._read_ahead_to
        size = self._ahead_bytes
        if start - self._head >= READ_AHEAD_MESSAGES or size >= READ_AHEAD_MAX_BYTES:
            return []
        fresh = self._fresh
        end = min(len(fresh), start + READ_AHEAD_MESSAGES)
        wanted = []
        unpacked = 0
        while start < end and size < READ_AHEAD_MAX_BYTES:
            message = fresh[start]
            if message.body is None and message.queue is not None:
                if type(message) is not Message:
                    unpacked += 1
                    if unpacked > UNPACKED_MAX:
                        break
                    packed = cast("PackedMessages", message)
                    unpack_block(packed)
                    message = fresh[start]
                    end = min(len(fresh), self._read_ahead_to + READ_AHEAD_MESSAGES)
                wanted.append(message)
            size += message.size
            start += 1
        self._read_ahead_to = start
        self._ahead_bytes = size
        return wanted

    # --- packed messages ------------------------------------------------------------------------

    def may_pack(self, messages: Sequence[Message]) -> bool:
        """Returns whether these messages all wait here for their first delivery, one after the other, and no body is
        requested."""
        start = self._position(messages[0].sequence_number)
        waiting = self._fresh[start : start + len(messages)]
        return start >= self._read_ahead_to and waiting == messages

    def pack(self, messages: Sequence[Message], packed: PackedMessages) -> None:
        """Replace messages by the packed block that contains them. It may also contain messages of other sessions."""
        start = self._position(messages[0].sequence_number)
        self._fresh[start : start + len(messages)] = cast("list[Message]", [packed])
        self._in_packed += len(messages) - 1

    def add_packed(self, packed: PackedMessages, count: int) -> None:
        """Add a packed block with higher numbers than all here. `count` of its messages are ready here."""
        self._fresh.append(packed)  # type: ignore[arg-type]  # a cast would take as long as this
        self._in_packed += count - 1

    def restore(self, waiting: Sequence[Message | PackedMessages]) -> None:
        """Add messages and packed blocks with higher numbers than all here. All messages of a block are ready here."""
        self._fresh += cast("Sequence[Message]", waiting)
        self._in_packed += sum(
            [one.count - 1 for one in waiting if isinstance(one, PackedMessages)]
        )

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """Replace a packed block by those of its messages that are ready here."""
        start = self._position(packed.sequence_number)
        self._fresh[start : start + 1] = messages
        self._in_packed -= len(messages) - 1

    def _position(self, number: int) -> int:
        return bisect_left(self._fresh, number, self._head, key=_SEQUENCE_NUMBER)

    def _returned_to_read(self) -> list[Message]:
        """Returns messages near the start of the heap that have no body. The first is the next
        message."""
        wanted: list[Message] = []
        size = 0
        for _, message in islice(self._returned, READ_AHEAD_MESSAGES):
            if message.queue is not None:
                size += message.size
                if message.body is None:
                    wanted.append(message)
            if size >= READ_AHEAD_MAX_BYTES:
                break
        return wanted

    def _compact(self) -> None:
        head = self._head
        if head == len(self._fresh):
            self._fresh.clear()
        elif head < _COMPACT_FROM or head * 2 < len(self._fresh):
            return
        else:
            del self._fresh[:head]
        self._head = 0
        self._read_ahead_to = max(0, self._read_ahead_to - head)
