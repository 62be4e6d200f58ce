"""Requests about the messages of an entity: renew locks, settle by token, peek, receive deferred,
delete.

Each request returns the value of its reply, or raises the refusal before anything has changed. A
request that needs bodies from the store is repeated when they are loaded.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.core.contract.commands import DeleteMessages, RequestOrigin
from broker.core.contract.counting import Outcome
from broker.core.contract.errors import (
    ArgumentOutOfRange,
    MessageLockLost,
    MessageNotFound,
    PartitionMismatch,
)
from broker.core.contract.message import MessageState
from broker.core.contract.settlement_values import ReceiveMode
from broker.core.contract.transitions import TransitionKind
from broker.core.messages.session_ids import session_key
from broker.core.operations.link_operations import receivable
from broker.core.operations.settle import return_mismatched
from broker.core.queues.dead_lettering import expire
from broker.core.queues.settlement import check_settlement, settle_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract import commands as ask
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.link_operations import LinkOperations
    from broker.core.operations.settle import SettleHandler
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver

PEEK_MAX_BYTES = 1024 * 1024
"""The most that one reply to a peek contains. It contains at least one message."""


class BodiesAwaited(Exception):
    """Not an error: the request is repeated when these messages have their bodies."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__()
        self.messages = messages


class MessageRequests:
    """Answers requests about messages."""

    __slots__ = ("_context", "_directory", "_links", "_settlements")

    def __init__(
        self,
        context: NamespaceContext,
        directory: Directory,
        links: LinkOperations,
        settlements: SettleHandler,
    ) -> None:
        self._context = context
        self._directory = directory
        self._links = links
        self._settlements = settlements

    # --- locks ------------------------------------------------------------------------------

    def renew_locks(self, command: ask.RenewLocks, now_ms: int, turn: Turn) -> list[int]:
        """Renew message locks. Returns their new ends."""
        _, queue = self._receivable(command.path, now_ms)
        ends_ms = queue.renew(command.tokens, now_ms)
        if self._context.history is not None and ends_ms:
            messages = queue.locks.messages(command.tokens)
            kind = TransitionKind.LOCK_RENEWED
            batch = self._context.history.record(kind, queue, messages, turn)
            if batch is not None:
                batch.locked_until_ms = ends_ms[0]
        return ends_ms

    def settle_by_token(self, command: ask.SettleByToken, now_ms: int, turn: Turn) -> None:
        """Settle messages that were locked through any link."""
        _, queue = self._receivable(command.path, now_ms)
        check_settlement(queue, command.settlement)
        tokens = list(dict.fromkeys(command.tokens))
        if any(token not in queue.locks for token in tokens):
            if command.session_id is not None:
                origin = RequestOrigin(command.connection, command.link_name)
                queue.delivery.check_session_held(command.session_id, origin)
            raise MessageLockLost
        if command.transaction_id is not None:
            try:
                self._settlements.hold_by_token(command, queue, tokens)
            except PartitionMismatch:
                return_mismatched(queue, tokens, now_ms, turn)
                raise
        elif tokens:
            settle_locked(queue, tokens, command.settlement, now_ms, turn)

    # --- looking and fetching ---------------------------------------------------------------

    def peek(self, command: ask.Peek, now_ms: int, turn: Turn) -> list[Message]:
        """Returns copies of messages, with the end of their latest lock if they had one."""
        queue = self._directory.queue(command.path)
        entity = self._directory.entity_of(queue)
        entity.check_receiving()
        entity.record_access(now_ms)
        count = min(command.count, self._context.limits.peek_max_messages)
        found: list[Message] = []
        size = 0
        for message in islice(_walk(queue, command), max(count, 0)):
            if found and size + message.size > PEEK_MAX_BYTES:
                break
            found.append(message)
            size += message.size
        self._need_bodies(found, turn)
        return _copies_as_now(found)

    def receive_deferred(
        self, command: ask.ReceiveDeferred, now_ms: int, turn: Turn
    ) -> list[tuple[Message, bytes | None]]:
        """Receive deferred messages by number, all or none. Returns copies, as `peek` does."""
        entity, queue = self._receivable(command.path, now_ms)
        entity.check_receiving()
        limit = self._context.limits.receive_deferred_max_messages
        if len(command.sequence_numbers) > limit:
            raise ArgumentOutOfRange(f"At most {limit} messages can be fetched at once.")
        messages = [
            self._deferred(queue, number, command.session_id)
            for number in dict.fromkeys(command.sequence_numbers)
        ]
        if not messages:
            return []
        limit_bytes = self._context.limits.receive_deferred_max_bytes
        if len(messages) > 1 and sum(message.size for message in messages) > limit_bytes:
            raise ArgumentOutOfRange(
                f"The messages are larger than {limit_bytes} bytes together: fetch fewer at once."
            )
        holder = self._holder(command, queue, messages)
        expired = [message for message in messages if 0 < message.expires_at_ms <= now_ms]
        if expired:
            expire(queue, expired, turn)  # a deferred message expires when it is received
            raise _not_found()
        self._need_bodies(messages, turn)
        turn.count(queue.counts, Outcome.DELIVERED, len(messages))
        history = self._context.history
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            if history is not None:
                history.record(TransitionKind.RECEIVED, queue, messages, turn)
            queue.delete(messages, turn)
            return [(message, None) for message in messages]
        tokens = queue.lock(holder, messages, now_ms)
        if history is not None:
            history.delivered(queue, holder, messages, turn)
        return list(zip(_copies_as_now(messages), tokens, strict=True))

    @staticmethod
    def _deferred(queue: Queue, number: int, session_id: str | None) -> Message:
        message = queue.index.get(number)
        if (
            message is None
            or message.state is not MessageState.DEFERRED
            or message.lock_token is not None
            or (session_id is not None and not _is_of(message, session_key(session_id)))
        ):
            raise _not_found()
        return message

    def _holder(
        self, command: ask.ReceiveDeferred, queue: Queue, messages: Sequence[Message]
    ) -> Receiver:
        """Returns the receiver that gets the locks: the holder of the session, or one for the peer."""
        if queue.sessions is None:
            return self._links.deferred_receiver(command.peer, queue)
        sessions = [queue.sessions.of(message) for message in messages]
        if not sessions or any(session is not sessions[0] for session in sessions):
            raise _not_found()
        holder = queue.sessions.held(sessions[0].id, command.origin).holder
        assert holder is not None
        return holder

    def delete_messages(self, command: DeleteMessages, now_ms: int, turn: Turn) -> int:
        """Delete the oldest unlocked messages. Returns their number."""
        entity, queue = self._receivable(command.path, now_ms)
        entity.check_receiving()
        limit = self._context.limits.delete_max_messages
        if not 0 < command.count <= limit:
            raise ArgumentOutOfRange(f"The number of messages to delete must be 1 to {limit}.")
        observations = self._context.observations
        if command.count > observations.azure.delete_max_messages:
            observations.note_over_quota("delete_max_messages", entity.path, command.count)
        chosen = list(
            islice(
                (
                    message
                    for message in _walk(queue, command)
                    if message.waits and message.enqueued_time_ms < command.before_ms
                ),
                command.count,
            )
        )
        if chosen:
            queue.delivery.touch_for(chosen)
            if self._context.history is not None:
                self._context.history.record(TransitionKind.DELETED, queue, chosen, turn)
            queue.delete(chosen, turn)
            queue.discard_ready(chosen)
            turn.count(queue.counts, Outcome.DELETED, len(chosen))
        return len(chosen)

    def _need_bodies(self, messages: Iterable[Message], turn: Turn) -> None:
        missing = [message for message in messages if message.body is None]
        if missing:
            self._context.payloads.request(missing, turn)
            raise BodiesAwaited(missing)

    def _receivable(self, path: str, now_ms: int) -> tuple[Entity, Queue]:
        entity, queue = receivable(self._directory, path)
        entity.record_access(now_ms)
        return entity, queue


def _copies_as_now(messages: Iterable[Message]) -> list[Message]:
    """Returns copies with the end of the latest lock. A commit may hold the answer back, and later
    changes must not show in it."""
    shown = []
    for message in messages:
        copy = message.copy()
        copy.locked_until_ms = message.locked_until_ms
        shown.append(copy)
    return shown


def _walk(queue: Queue, command: ask.Peek | DeleteMessages) -> Iterator[Message]:
    """Returns the messages of a queue, or of one of its sessions, in order."""
    if command.session_id is not None:
        from_number = getattr(command, "from_sequence_number", 0)
        return queue.delivery.walk_session(command.session_id, from_number)
    if isinstance(command, DeleteMessages):
        before_ms = command.before_ms
        return queue.index.walk(
            skips=lambda packed: packed.is_scheduled or packed.enqueued_time_ms >= before_ms
        )
    return queue.index.walk(command.from_sequence_number)


def _is_of(message: Message, key: str) -> bool:
    """Returns whether a message belongs to the session with this key."""
    return message.session_id is not None and session_key(message.session_id) == key


def _not_found() -> MessageNotFound:
    return MessageNotFound(
        "Failed to lock one or more specified messages. "
        "Either the message is already locked or does not exist."
    )
