"""The locks of one queue, by token.

Owns who holds which message and until when; what becomes of a message when its lock ends is the
queue's. A lock under a session's has no deadline of its own: the session's is its.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import MessageLockLost
from broker.core.queues.deadlines import Due

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.message import Message
    from broker.core.queues.dispatcher import Receiver
    from broker.core.queues.environment import Environment


SESSION_MESSAGE_LOCKED_UNTIL_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, which the service sends as the end of a session message's
own lock. Were it the session's, the .NET SDK would forget the token of a deferred message at that
time, however often the session is renewed."""


class Locks(dict[bytes, "Message"]):
    """What is locked. A mapping, because every settlement begins with looking up its tokens."""

    __slots__ = ("_environment",)

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self._environment = environment

    def begin(
        self, holder: Receiver, messages: Sequence[Message], until_ms: int, *, expire: bool
    ) -> list[bytes]:
        """Lock messages that nobody holds; their tokens, in order."""
        new_lock_token = self._environment.new_lock_token
        tokens = [new_lock_token() for _ in messages]
        for message, token in zip(messages, tokens, strict=True):
            message.lock_token = token
            message.locked_until_ms = until_ms
            message.lock_holder = holder
        self.update(zip(tokens, messages, strict=True))
        holder.held.update(dict.fromkeys(messages))
        if expire:
            self._environment.deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)
        return tokens

    def of(self, tokens: Iterable[bytes]) -> list[Message]:
        """The messages locked under these tokens. Raises if one is lost."""
        messages = []
        for token in tokens:
            message = self.get(token)
            if message is None:
                raise MessageLockLost
            messages.append(message)
        return messages

    def extend(self, messages: Sequence[Message], until_ms: int) -> None:
        """Move the end of locks."""
        deadlines = self._environment.deadlines
        for message in messages:
            deadlines.discard(Due.MESSAGE_LOCK, message.locked_until_ms, (message,))
            message.locked_until_ms = until_ms
        deadlines.add(Due.MESSAGE_LOCK, until_ms, messages)

    def end(self, tokens: Iterable[bytes]) -> list[Message]:
        """Unlock the messages of these tokens, every one of which must be here."""
        pop = self.pop
        messages = [pop(token) for token in tokens]
        until_ms = 0
        holder: Receiver | None = None
        alike: list[Message] = []
        for message in messages:
            if message.locked_until_ms != until_ms or message.lock_holder is not holder:
                self._forget_locks(holder, until_ms, alike)
                until_ms, holder, alike = message.locked_until_ms, message.lock_holder, []
            alike.append(message)
            message.lock_token = message.lock_holder = None
        self._forget_locks(holder, until_ms, alike)
        return messages

    def _forget_locks(
        self, holder: Receiver | None, until_ms: int, messages: Sequence[Message]
    ) -> None:
        """Remove locks with the same holder and end. One call to the deadlines removes them all."""
        if holder is not None:
            held = holder.held
            for message in messages:
                held.pop(message, None)
            self._environment.deadlines.discard(Due.MESSAGE_LOCK, until_ms, messages)
