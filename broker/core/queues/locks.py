"""The locks of one queue.

A lock is booked in four places, and only `Locks` writes them: the token and the end of the lock on the
message, the holder by token here, the message by token at the holder (`Receiver.locked`), and the
deadline. A message lock under a session lock has no deadline: it ends with the session lock.
`settlement.py` decides what happens to a message when its lock ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import MessageLockLost
from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.receiver import Receiver


SESSION_MESSAGE_LOCKED_UNTIL_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. The service sends it as the end of the lock of a session
message. If it sent the end of the session lock, the .NET SDK would forget the token of a deferred message
at that time, even if the session lock was renewed."""


class Locks(dict[bytes, "Receiver"]):
    """The holders of locks by token. A dict, because every settlement looks up its tokens first."""

    __slots__ = ("_context",)

    def __init__(self, context: NamespaceContext) -> None:
        super().__init__()
        self._context = context

    def begin(
        self, holder: Receiver, messages: Sequence[Message], until_ms: int, *, expire: bool
    ) -> list[bytes]:
        """Lock unlocked messages. Returns their tokens, in order."""
        new_lock_token = self._context.new_lock_token
        tokens = [new_lock_token() for _ in messages]
        for message, token in zip(messages, tokens, strict=True):
            message.lock_token = token
            message.locked_until_ms = until_ms
        self.update(dict.fromkeys(tokens, holder))
        holder.locked.update(zip(tokens, messages, strict=True))
        if expire:
            self._context.deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)
        return tokens

    def messages(self, tokens: Iterable[bytes]) -> list[Message]:
        """Returns the messages with these tokens. Raises `MessageLockLost` if one is not locked."""
        messages = []
        for token in tokens:
            holder = self.get(token)
            if holder is None:
                raise MessageLockLost
            messages.append(holder.locked[token])
        return messages

    def extend(self, messages: Sequence[Message], until_ms: int) -> None:
        """Move the end of locks."""
        deadlines = self._context.deadlines
        for message in messages:
            deadlines.discard(Due.MESSAGE_LOCK, message.locked_until_ms, (message,))
            message.locked_until_ms = until_ms
        deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)

    def end(self, tokens: Iterable[bytes]) -> list[Message]:
        """Unlock messages and return them. Each token must be locked."""
        pop = self.pop
        discard = self._context.deadlines.discard
        messages: list[Message] = []
        until_ms = 0
        alike: list[Message] = []
        """Messages in a row whose locks end at the same time: one call removes their deadlines."""
        for token in tokens:
            message = pop(token).locked.pop(token)
            if message.locked_until_ms != until_ms:
                discard(Due.MESSAGE_LOCK, until_ms, alike)
                until_ms, alike = message.locked_until_ms, []
            alike.append(message)
            message.lock_token = None
            messages.append(message)
        discard(Due.MESSAGE_LOCK, until_ms, alike)
        return messages
