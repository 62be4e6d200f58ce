"""Requests about the messages and sessions of an entity: what `$management` offers.

Owns the rules of each request; each returns the value of its reply, or raises the refusal before
anything has changed. Some must wait until bodies have been read back: those are asked again.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.errors import (
    ArgumentOutOfRange,
    MessageLockLost,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    PartitionMismatch,
    QuotaExceeded,
)
from broker.core.contract.message import MessageState
from broker.core.contract.settlement import ReceiveMode
from broker.core.messages.session_ids import session_key
from broker.core.operations.link_operations import receivable, sendable
from broker.core.operations.partition_keys import partition_keys
from broker.core.operations.send_and_settle import give_up_mismatched
from broker.core.queues.settlement import check_settlement, settle_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract import commands as ask
    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.admission import Admission
    from broker.core.operations.link_operations import LinkOperations
    from broker.core.operations.send_and_settle import Traffic
    from broker.core.operations.transactions import Transactions
    from broker.core.queues.environment import Environment
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver
    from broker.core.queues.sessions import Sessions

PEEK_MAX_BYTES = 1024 * 1024
"""A peek shows at least one message, and no more than fit into one reply."""


class BodiesAwaited(Exception):
    """Not a refusal: the request is asked again once these messages have their bodies."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__()
        self.messages = messages


class MessageRequests:
    """Answers requests about messages and sessions."""

    __slots__ = ("_arrivals", "_directory", "_environment", "_links", "_traffic", "_transactions")

    def __init__(
        self,
        environment: Environment,
        directory: Directory,
        links: LinkOperations,
        arrivals: Admission,
        traffic: Traffic,
        transactions: Transactions,
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._links = links
        self._arrivals = arrivals
        self._traffic = traffic
        self._transactions = transactions

    # --- locks ------------------------------------------------------------------------------

    def renew_locks(self, command: ask.RenewLocks, now_ms: int, turn: Turn) -> list[int]:
        """Extend message locks."""
        del turn
        _, queue = self._receivable(command.path, now_ms)
        return queue.renew(command.tokens, now_ms)

    def settle_by_token(self, command: ask.SettleByToken, now_ms: int, turn: Turn) -> None:
        """Settle messages, whichever link they were locked through."""
        _, queue = self._receivable(command.path, now_ms)
        check_settlement(queue, command.settlement)
        tokens = list(dict.fromkeys(command.tokens))
        if any(token not in queue.locks for token in tokens):
            if command.session_id is not None:
                queue.delivery.check_session_held(command.session_id)
            raise MessageLockLost
        if command.transaction_id is not None:
            try:
                self._traffic.hold_by_token(command, queue, tokens)
            except PartitionMismatch:
                give_up_mismatched(queue, tokens, now_ms, turn)
                raise
        elif tokens:
            settle_locked(queue, tokens, command.settlement, now_ms, turn)

    # --- looking and fetching ---------------------------------------------------------------

    def peek(self, command: ask.Peek, now_ms: int, turn: Turn) -> list[Message]:
        """Show messages as they are, with the end of their latest lock if they ever had one.

        Copies: nothing that happens later shows in them.
        """
        queue = self._directory.queue(command.path)
        entity = self._directory.entity_of(queue)
        entity.check_receiving()
        entity.record_access(now_ms)
        count = min(command.count, self._environment.limits.peek_max_messages)
        found: list[Message] = []
        size = 0
        for message in islice(_walk(queue, command), max(count, 0)):
            if found and size + message.size > PEEK_MAX_BYTES:
                break
            found.append(message)
            size += message.size
        self._need_bodies(found, turn)
        return _as_now(found)

    def receive_deferred(
        self, command: ask.ReceiveDeferred, now_ms: int, turn: Turn
    ) -> list[tuple[Message, bytes | None]]:
        """Fetch deferred messages by number, all or none. Copies, as in `peek`."""
        entity, queue = self._receivable(command.path, now_ms)
        entity.check_receiving()
        limit = self._environment.limits.receive_deferred_max_messages
        if len(command.sequence_numbers) > limit:
            raise ArgumentOutOfRange(f"At most {limit} messages can be fetched at once.")
        messages = [
            self._deferred(queue, number, command.session_id)
            for number in dict.fromkeys(command.sequence_numbers)
        ]
        limit_bytes = self._environment.limits.receive_deferred_max_bytes
        if len(messages) > 1 and sum(message.size for message in messages) > limit_bytes:
            raise ArgumentOutOfRange(
                f"The messages are larger than {limit_bytes} bytes together: fetch fewer at once."
            )
        holder = self._holder(command.peer, queue, messages)
        expired = [message for message in messages if 0 < message.expires_at_ms <= now_ms]
        if expired:
            queue.expire(expired, turn)  # until it is asked for, it outlives its time
            raise _not_found()
        self._need_bodies(messages, turn)
        turn.count(queue.counts, Outcome.DELIVERED, len(messages))
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            queue.delete(messages, turn)
            return [(message, None) for message in messages]
        tokens = queue.lock(holder, messages, now_ms)
        return list(zip(_as_now(messages), tokens, strict=True))

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

    def _holder(self, peer: Peer, queue: Queue, messages: Sequence[Message]) -> Receiver:
        """Who gets the locks: the session's holder, or whoever asks."""
        if queue.sessions is None:
            return self._links.fetcher(peer, queue)
        sessions = [queue.sessions.of(message) for message in messages]
        if not sessions or any(session is not sessions[0] for session in sessions):
            raise _not_found()
        holder = queue.sessions.held(sessions[0].id).holder
        assert holder is not None
        return holder

    def delete_messages(self, command: ask.DeleteMessages, now_ms: int, turn: Turn) -> int:
        """Delete the oldest messages nobody has locked."""
        entity, queue = self._receivable(command.path, now_ms)
        entity.check_receiving()
        limit = self._environment.limits.delete_max_messages
        if not 0 < command.count <= limit:
            raise ArgumentOutOfRange(f"The number of messages to delete must be 1 to {limit}.")
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
            queue.delete(chosen, turn)
            turn.count(queue.counts, Outcome.DELETED, len(chosen))
        return len(chosen)

    def _need_bodies(self, messages: Iterable[Message], turn: Turn) -> None:
        missing = [message for message in messages if message.body is None]
        if missing:
            self._environment.payloads.request(missing, turn)
            raise BodiesAwaited(missing)

    # --- scheduling -------------------------------------------------------------------------

    def schedule(self, command: ask.Schedule, now_ms: int, turn: Turn) -> list[int]:
        """Take in messages for later, all or none; their numbers until then."""
        entity, queue = sendable(self._directory, command.path)
        self._arrivals.check(entity, command.messages)
        if command.transaction_id is not None:
            step = ScheduledLater(entity, command.messages, self._arrivals)
            self._transactions.hold(command.transaction_id, command.connection, step)
            return step.reserve()
        self._arrivals.accept(entity, command.messages, now_ms, turn)
        return [
            # A duplicate is dropped in silence: it gets a number that leads nowhere.
            message.enqueue_sequence_number or queue.reserve_number()
            for message in command.messages
        ]

    def cancel_scheduled(self, command: ask.CancelScheduled, now_ms: int, turn: Turn) -> None:
        """Delete messages whose time has not come, all or none."""
        entity, queue = sendable(self._directory, command.path)
        entity.record_access(now_ms)
        step = CancelledLater(queue, list(dict.fromkeys(command.sequence_numbers)))
        step.check()
        if command.transaction_id is not None:
            self._transactions.hold(command.transaction_id, command.connection, step)
        else:
            step.run(now_ms, turn)

    # --- sessions ---------------------------------------------------------------------------

    def renew_session_lock(self, command: ask.RenewSessionLock, now_ms: int, turn: Turn) -> int:
        """Extend a session's lock."""
        del turn
        sessions = self._sessions(command.path, now_ms)
        return sessions.renew(sessions.held(command.session_id), now_ms)

    def set_session_state(self, command: ask.SetSessionState, now_ms: int, turn: Turn) -> None:
        """Keep or clear the state of a session."""
        sessions = self._sessions(command.path, now_ms)
        session = sessions.held(command.session_id)
        entity = self._directory.entity_of(session.queue)
        limits = self._environment.limits
        grows_by = len(command.state or b"") - len(session.state or b"")
        most_bytes = min(limits.session_state_max_bytes, entity.max_message_bytes)
        if len(command.state or b"") > most_bytes:
            raise MessageSizeExceeded(
                f"A session state is no larger than a message: it has at most {most_bytes} bytes."
            )
        is_new = command.state is not None and session.state is None
        if is_new and sessions.state_count >= limits.session_states_per_entity_max:
            raise QuotaExceeded(
                f"An entity keeps at most {limits.session_states_per_entity_max} session states."
            )
        all_bytes = self._environment.session_state_bytes + grows_by
        if grows_by > 0 and all_bytes > limits.session_states_max_bytes:
            raise QuotaExceeded(
                "The states of all sessions of a namespace have at most "
                f"{limits.session_states_max_bytes} bytes together."
            )
        if grows_by > 0 and (error := entity.refuses_size(0, grows_by)) is not None:
            raise error
        turn.records += sessions.set_state(session, command.state, now_ms)

    def get_session_state(
        self, command: ask.GetSessionState, now_ms: int, turn: Turn
    ) -> bytes | None:
        """The state of a session."""
        del turn
        return self._sessions(command.path, now_ms).held(command.session_id).state

    def list_sessions(self, command: ask.ListSessions, now_ms: int, turn: Turn) -> list[str]:
        """The ids of sessions."""
        del turn
        sessions = self._sessions(command.path, now_ms)
        return sessions.list_ids(
            command.updated_since_ms, command.after_session_id, command.skip, command.top
        )

    def _sessions(self, path: str, now_ms: int) -> Sessions:
        _, queue = self._receivable(path, now_ms)
        if queue.sessions is None:
            raise NotAllowed(f"The entity '{queue.path}' does not require sessions, and has none.")
        return queue.sessions

    def _receivable(self, path: str, now_ms: int) -> tuple[Entity, Queue]:
        entity, queue = receivable(self._directory, path)
        entity.record_access(now_ms)
        return entity, queue


class ScheduledLater:
    """Messages scheduled under a transaction: they have their numbers before they are there."""

    __slots__ = ("_arrivals", "_entity", "_messages", "operations", "partition_keys", "size_bytes")

    def __init__(self, entity: Entity, messages: Sequence[Message], arrivals: Admission) -> None:
        self._entity = entity
        self._messages = messages
        self._arrivals = arrivals
        self.operations = len(messages)
        self.size_bytes = sum(message.size for message in messages)
        self.partition_keys = partition_keys(entity, messages)

    def reserve(self) -> list[int]:
        """Numbers by which the messages will be known until their time comes."""
        for message in self._messages:
            message.sequence_number = self._entity.main.reserve_number()
        return [message.sequence_number for message in self._messages]

    def check(self) -> None:
        """Raises if they cannot be taken any more."""
        self._arrivals.check(self._entity, self._messages)

    def run(self, now_ms: int, turn: Turn) -> None:
        """Take them in under the numbers they were promised."""
        numbers = [message.sequence_number for message in self._messages]
        self._arrivals.accept(self._entity, self._messages, now_ms, turn)
        promised = dict(zip(self._messages, numbers, strict=True))
        self._entity.main.renumber(
            {m: n for m, n in promised.items() if m.state is MessageState.SCHEDULED}, turn
        )

    def undo(self, now_ms: int, turn: Turn) -> None:
        """Their numbers lead nowhere."""


class CancelledLater:
    """Scheduled messages to delete: under a transaction they stay until it is discharged."""

    __slots__ = ("_numbers", "_queue", "operations", "partition_keys", "size_bytes")

    def __init__(self, queue: Queue, numbers: Sequence[int]) -> None:
        self._queue = queue
        self._numbers = numbers
        self.operations = len(numbers)
        self.size_bytes = 0
        self.partition_keys: Sequence[tuple[int, str]] = ()

    def check(self) -> None:
        """Raises if one of them is gone, or its time has come."""
        for number in self._numbers:
            if self._scheduled(number) is None:
                raise MessageNotFound(
                    f"No scheduled message with the sequence number {number} was found."
                )

    def run(self, now_ms: int, turn: Turn) -> None:
        """Delete them, but for those that an earlier step has deleted."""
        del now_ms
        found = [self._scheduled(number) for number in self._numbers]
        messages = [message for message in found if message is not None]
        if messages:
            self._queue.delete(messages, turn)
            turn.count(self._queue.counts, Outcome.CANCELLED, len(messages))

    def undo(self, now_ms: int, turn: Turn) -> None:
        """They are still there."""

    def _scheduled(self, number: int) -> Message | None:
        message = self._queue.index.get(number)
        is_scheduled = message is not None and message.state is MessageState.SCHEDULED
        return message if is_scheduled else None


def _as_now(messages: Iterable[Message]) -> list[Message]:
    """Copies with the end of the latest lock: the answer may be held back by a long commit, and
    nothing that happens meanwhile shows in it."""
    shown = []
    for message in messages:
        twin = message.copy()
        twin.locked_until_ms = message.locked_until_ms
        shown.append(twin)
    return shown


def _walk(queue: Queue, command: ask.Peek | ask.DeleteMessages) -> Iterator[Message]:
    """The messages of a queue, or of one session of it, in order."""
    from_number = getattr(command, "from_sequence_number", 0)
    if command.session_id is None:
        return queue.index.walk(from_number)
    return queue.delivery.walk_session(command.session_id, from_number)


def _is_of(message: Message, key: str) -> bool:
    """Whether a message is of the session with this key."""
    return message.session_id is not None and session_key(message.session_id) == key


def _not_found() -> MessageNotFound:
    return MessageNotFound(
        "Failed to lock one or more specified messages. "
        "Either the message is already locked or does not exist."
    )
