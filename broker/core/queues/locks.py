"""The locks of one queue.

Messages that a receiver locks at once form a `LockGroup`: they have the same holder and the same end, so
one deadline is enough for all of them. A lock is booked in four places, and only `Locks` writes them: the
token, the end and the group on the message, the message by token here, the group at the holder
(`Receiver.lock_groups`), and the deadline. A message lock under a session lock has no deadline: it ends
with the session lock. `settlement.py` decides what happens to a message when its lock ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import MessageLockLost
from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.receiver import Receiver

SESSION_MESSAGE_LOCKED_UNTIL_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. The service sends it as the end of the lock of a session
message. If it sent the end of the session lock, the .NET SDK would forget the token of a deferred message
at that time, even if the session lock was renewed."""

_COMPACT_FROM = 16
_MESSAGE_LOCK = Due.MESSAGE_LOCK


class LockGroup:
    """Messages that one receiver has locked until one moment."""

    __slots__ = ("_count", "_messages", "holder", "until_ms")

    def __init__(self, holder: Receiver, until_ms: int, messages: Sequence[Message]) -> None:
        self.holder = holder
        self.until_ms = until_ms
        self._messages = messages
        """Includes messages whose locks have ended, but never more than those that are locked."""
        self._count = len(messages)

    def __iter__(self) -> Iterator[Message]:
        """Returns the messages that are still locked, in the order in which they were locked."""
        return iter([message for message in self._messages if message.lock_group is self])

    def leave(self, count: int) -> bool:
        """So many messages are not in this group any more. Returns whether none is left."""
        self._count -= count
        if self._count * 2 < len(self._messages) > _COMPACT_FROM:
            self._messages = list(self)
        return not self._count


class Locks(dict[bytes, "Message"]):
    """The locked messages by token. A dict, because every settlement looks up its tokens first."""

    __slots__ = ("_context",)

    def __init__(self, context: NamespaceContext) -> None:
        super().__init__()
        self._context = context

    def begin(
        self, holder: Receiver, messages: Sequence[Message], until_ms: int, *, expire: bool
    ) -> list[bytes]:
        """Lock unlocked messages. Returns their tokens, in order."""
        tokens = self._context.new_lock_tokens(len(messages))
        group = LockGroup(holder, until_ms, messages)
        for message, token in zip(messages, tokens, strict=True):
            message.lock_token = token
            message.locked_until_ms = until_ms
            message.lock_group = group
            self[token] = message
        holder.lock_groups[group] = None
        if expire:
            self._context.deadlines.add(_MESSAGE_LOCK, until_ms, (group,))
        return tokens

    def messages(self, tokens: Iterable[bytes]) -> list[Message]:
        """Returns the messages with these tokens. Raises `MessageLockLost` if one is not locked."""
        messages = []
        for token in tokens:
            message = self.get(token)
            if message is None:
                raise MessageLockLost
            messages.append(message)
        return messages

    def extend(self, messages: Iterable[Message], until_ms: int) -> None:
        """Move the end of locks."""
        by_holder: dict[Receiver, list[Message]] = {}
        for message in dict.fromkeys(messages):
            group = group_of(message)
            self._leave(group, 1)
            by_holder.setdefault(group.holder, []).append(message)
        for holder, renewed in by_holder.items():
            group = LockGroup(holder, until_ms, renewed)
            for message in renewed:
                message.locked_until_ms = until_ms
                message.lock_group = group
            holder.lock_groups[group] = None
            self._context.deadlines.add(_MESSAGE_LOCK, until_ms, (group,))

    def end(self, tokens: Iterable[bytes]) -> list[Message]:
        """Unlock messages and return them. Each token must be locked."""
        pop = self.pop
        messages = [pop(token) for token in tokens]
        self._leave_groups(messages)
        return messages

    def end_all(self, tokens: Sequence[bytes]) -> list[Message] | None:
        """Unlock messages and return them. Returns None and unlocks nothing if a token is not locked or
        comes twice."""
        pop = self.pop
        if len(tokens) == 1:
            only = pop(tokens[0], None)
            if only is None:
                return None
            group = only.lock_group
            only.lock_token = only.lock_group = None
            self._leave(group, 1)
            return [only]
        found = [pop(token, None) for token in tokens]
        messages = [message for message in found if message is not None]
        if len(messages) < len(tokens):
            self.update({one: m for one, m in zip(tokens, found, strict=True) if m is not None})
            return None
        self._leave_groups(messages)
        return messages

    def _leave_groups(self, messages: Sequence[Message]) -> None:
        """Unlock messages that are not here any more."""
        group: object = None
        count = 0
        for message in messages:
            if message.lock_group is not group:
                self._leave(group, count)
                group, count = message.lock_group, 0
            count += 1
            message.lock_token = message.lock_group = None
        self._leave(group, count)

    def _leave(self, group: object, count: int) -> None:
        """Remove so many messages from a group, and the group if it is empty."""
        if isinstance(group, LockGroup) and group.leave(count):
            del group.holder.lock_groups[group]
            self._context.deadlines.discard(_MESSAGE_LOCK, group.until_ms, (group,))


def group_of(message: Message) -> LockGroup:
    """Returns the group of a locked message."""
    group = message.lock_group
    assert isinstance(group, LockGroup)
    return group
