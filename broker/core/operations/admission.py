"""Checks messages before an entity accepts them, from a sender or from another entity.

Checks size, room, session id and duplicates. A refused message has changed nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.errors import ArgumentError, BrokerError, NotAllowed, UndecodableMessage
from broker.core.contract.records import MessagesDeleted
from broker.core.contract.storage_room import needed_bytes
from broker.core.messages.session_ids import session_key
from broker.core.queues.queue import queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.queues.namespace_context import NamespaceContext

_ACCEPTED = Outcome.ACCEPTED
_NO_REFUSALS: Mapping[int, BrokerError] = {}


class Admission:
    """Checks and accepts messages."""

    __slots__ = ("_context", "_directory")

    def __init__(self, context: NamespaceContext, directory: Directory) -> None:
        self._context = context
        self._directory = directory

    def refusals(self, entity: Entity, messages: Sequence[Message]) -> Mapping[int, BrokerError]:
        """Returns the errors of messages that cannot be accepted, by position."""
        if len(messages) == 1:
            largest = size_bytes = messages[0].size
        elif messages:
            sizes = [message.size for message in messages]
            largest, size_bytes = max(sizes), sum(sizes)
        else:
            return _NO_REFUSALS
        fit = entity.has_room_for(size_bytes, largest)
        if fit and self._context.room.is_scarce:
            fit = self._context.room.has(_needed_bytes(entity, len(messages), size_bytes))
        if largest > entity.azure_message_max_bytes and fit:
            self._note_large_messages(entity, messages, largest)
        if fit and entity.is_plain:
            return _NO_REFUSALS
        entity.begin_screening()
        if fit and entity.needs_only_session_ids:
            return self._identify_sessions(entity, messages)
        refused: dict[int, BrokerError] = {}
        taken_bytes = taken_count = 0
        for position, message in enumerate(messages):
            error = None
            if not fit:
                error = entity.size_error(message.size, taken_bytes) or self._room_error(
                    entity, taken_count + 1, taken_bytes + message.size, message
                )
            if error is None and not entity.is_plain:
                error = self._identify(entity, message)
            if error is None:
                taken_bytes += message.size
                taken_count += 1
            else:
                refused[position] = error
        return refused

    def _room_error(
        self, entity: Entity, count: int, size_bytes: int, last: Message
    ) -> BrokerError | None:
        """Returns the error for the last of several messages if the store has no room for all of them, or None."""
        room = self._context.room
        has_room = not room.is_scarce or room.has(_needed_bytes(entity, count, size_bytes))
        return None if has_room else room.error(last.size)

    def _note_large_messages(
        self, entity: Entity, messages: Sequence[Message], largest: int
    ) -> None:
        most = entity.azure_message_max_bytes
        large = [message for message in messages if message.size > most]
        self._context.observations.note_over_quota(
            "message_max_bytes", entity.path, largest, large, len(large), most
        )

    def observe_batch(
        self, path: str, messages: Sequence[Message], count: int, size_bytes: int
    ) -> None:
        """Compares a batch with what Azure allows."""
        observations = self._context.observations
        if count > observations.azure.batch_max_messages:
            observations.note_over_quota("batch_max_messages", path, count, messages)
        if size_bytes > observations.azure.batch_max_bytes:
            observations.note_over_quota("batch_max_bytes", path, size_bytes, messages)

    def check(self, entity: Entity, messages: Sequence[Message]) -> None:
        """Raises if one of the messages cannot be accepted."""
        entity.check_sending()
        for error in self.refusals(entity, messages).values():
            raise error

    def accept(self, entity: Entity, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Accept new messages that passed `refusals`."""
        entity.record_access(now_ms)
        turn.count(entity.main.counts, _ACCEPTED, len(messages))
        self.take_room(entity, messages, turn)
        if entity.duplicates is not None:
            messages = self._without_duplicates(entity, messages, now_ms, turn)
        if messages:
            entity.accept(messages, now_ms, turn)

    def take_room(self, entity: Entity, messages: Sequence[Message], turn: Turn) -> None:
        """Count new messages that passed `refusals`, so that later ones of this turn and the next do not get their
        room. Nothing is counted while there is much."""
        room = self._context.room
        if room.is_scarce:
            size_bytes = sum([message.size for message in messages])
            room.take(_needed_bytes(entity, len(messages), size_bytes), turn)

    def accept_forwarded(
        self, entity: Entity, messages: Sequence[Message], now_ms: int, turn: Turn
    ) -> None:
        """Accept forwarded messages, which are stored already and in no queue now."""
        if entity.duplicates is not None:
            kept = self._without_duplicates(entity, messages, now_ms, turn)
            known = set(kept)
            repeated = [message for message in messages if message not in known]
            if repeated:
                unreferenced = self._context.payloads.release(repeated)
                turn.records.append(MessagesDeleted([m.id for m in repeated], unreferenced))
            messages = kept
        if messages:
            entity.republish(messages, now_ms, turn)

    def activate(self, messages: Iterable[Message], now_ms: int, turn: Turn) -> None:
        """Activate scheduled messages of one queue that are due."""
        due = sorted(messages, key=lambda message: message.sequence_number)
        queue = queue_of(due[0])
        assert queue is not None
        self._directory.entity_of(queue).activate(due, now_ms, turn)

    def _identify_sessions(
        self, entity: Entity, messages: Sequence[Message]
    ) -> dict[int, BrokerError]:
        """A fast path for queues with sessions and without duplicate detection."""
        session_ids = self._context.reader.session_ids([message.body for message in messages])
        max_characters = self._context.limits.session_id_max_characters
        refused: dict[int, BrokerError] = {}
        for position, message in enumerate(messages):
            session_id = message.session_id = session_ids[position]
            if session_id is None or message.annotations or len(session_id) > max_characters:
                refusal = self._identify(entity, message)
                if refusal is not None:
                    refused[position] = refusal
        return refused

    def _identify(self, entity: Entity, message: Message) -> BrokerError | None:
        """Read the session id and the message id, as needed. Returns the error of the message, or
        None."""
        reader = self._context.reader
        limits = self._context.limits
        body = message.body or b""
        try:
            session_id = None
            if entity.needs_session_ids:
                session_id = message.session_id = reader.session_id(body)
            if entity.main.delivery.requires_sessions:
                if session_id is None:
                    return NotAllowed(
                        "The SessionId was not set on a message, and it cannot be sent to the "
                        "entity. Entities that have session support enabled can only receive "
                        "messages that have the SessionId set to a valid value."
                    )
                if message.annotations:
                    partition_key = reader.partition_key(message.annotations)
                    if partition_key is not None and not _keys_match(partition_key, session_id):
                        return NotAllowed(
                            f"The PartitionKey '{partition_key}' and the SessionId "
                            f"'{session_id}' of a message must be the same when both are set."
                        )
            message_id = None
            if entity.duplicates is not None:
                message_id = reader.message_id(body)
                if entity.is_partitioned:
                    self._within_partition(message, message_id)
            entity.screen(message)
        except UndecodableMessage as error:
            return error
        if session_id is not None and len(session_id) > limits.session_id_max_characters:
            return ArgumentError(
                f"A SessionId has at most {limits.session_id_max_characters} characters."
            )
        if message_id is not None and len(message_id) > limits.message_id_max_characters:
            return ArgumentError(
                f"A MessageId has at most {limits.message_id_max_characters} characters."
            )
        return None

    def duplicate_key(self, entity: Entity, message: Message) -> str | None:
        """Returns the text by which an entity that detects duplicates recognizes a message, or None if it has no
        message id. Raises `UndecodableMessage` if it cannot be read."""
        message_id = self._context.reader.message_id(message.body or b"")
        return self._within_partition(message, message_id) if entity.is_partitioned else message_id

    def _without_duplicates(
        self, entity: Entity, messages: Sequence[Message], now_ms: int, turn: Turn
    ) -> list[Message]:
        """Returns the messages whose message id was not seen within the window."""
        assert entity.duplicates is not None
        message_ids = [self.duplicate_key(entity, message) for message in messages]
        fresh = entity.duplicates.filter_new(message_ids, now_ms, turn)
        new = [message for message, is_new in zip(messages, fresh, strict=True) if is_new]
        if repeated := len(messages) - len(new):
            turn.count(entity.main.counts, Outcome.DEDUPLICATED, repeated)
            if self._context.history is not None:
                dropped = [m for m, is_new in zip(messages, fresh, strict=True) if not is_new]
                self._context.history.deduplicated(entity.main, dropped, turn)
        return new

    def _within_partition(self, message: Message, message_id: str | None) -> str | None:
        """Returns the message id together with the partition key: in a partitioned entity ids are
        unique only within a partition."""
        key = None if message.session_id is None else session_key(message.session_id)
        if not key and message.annotations:
            key = self._context.reader.partition_key(message.annotations)
        return message_id if not key or message_id is None else f"{key}\0{message_id}"


def _needed_bytes(entity: Entity, count: int, size_bytes: int) -> int:
    """Returns how much of the store's room messages to an entity need."""
    return needed_bytes(size_bytes, count, count * entity.copies_per_message)


def _keys_match(partition_key: str, session_id: str) -> bool:
    """Returns whether a partition key and a session id can be used together.

    An empty value of either counts as not set, as in the service.
    """
    if not partition_key or not session_id:
        return True
    return session_key(partition_key) == session_key(session_id)
