"""Restores the state of namespaces from the store at start.

Bodies stay in the store until they are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from broker.core.contract.records import EntityDeleted, MessageRow, MessagesDeleted, SentRow
from broker.core.entities.topic import Topic
from broker.core.messages.message_rows import messages_as_sent, messages_from
from broker.core.queues.packed_messages import pack_rows, pack_rows_as_sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from broker.core.contract.message import Message
    from broker.core.contract.records import EntityStored, RuleRow, SessionStateSet
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.queue import Queue

Row = TypeVar("Row", MessageRow, SentRow)
RowsToMessages = Callable[[list[Row]], "list[Message]"]
RowsToPacked = Callable[["Queue", list[Row]], "PackedMessages | None"]

CHUNK_ROWS = 4_096
_QUEUE_KEY = itemgetter(1, 2)
"""Entity id and sub-queue of a row."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class StoredState(Protocol):
    """The state that the store loads at start. `storage.contract.Snapshot` implements it."""

    @property
    def entities(self) -> Sequence[EntityStored]:
        """All entities of all namespaces."""

    @property
    def rules(self) -> Sequence[RuleRow]:
        """All rules of all subscriptions, in any order."""

    @property
    def sequence_numbers(self) -> Mapping[tuple[int, int], int]:
        """The highest sequence number ever stored, by entity id and sub-queue."""

    @property
    def highest_message_id(self) -> int:
        """The highest message id ever stored."""

    @property
    def messages(self) -> Iterable[MessageRow]:
        """Messages in any order. Read once."""

    @property
    def messages_as_sent(self) -> Iterable[SentRow]:
        """More messages, unchanged since they were sent. Read once."""

    @property
    def session_states(self) -> Sequence[SessionStateSet]:
        """Session states that are set."""

    @property
    def message_ids(self) -> Iterable[tuple[int, str, int]]:
        """Seen message ids: entity id, message id, until ms."""


class OrphanedMessages:
    """Messages of deleted entities, and of copies of a namespace that were not finished. The broker
    stopped before it had deleted all of them. They are deleted in parts."""

    ends_with_namespace = False

    __slots__ = ("_deleted_shared", "_ids", "_payload_ids", "entity_ids")

    def __init__(self) -> None:
        self._ids: array[int] = array("q")
        self._payload_ids: array[int] = array("q")
        self._deleted_shared: set[int] = set()
        """Shared payloads that are deleted already."""
        self.entity_ids: set[int] = set()
        """Ids of deleted entities. A new entity with one of these ids would get the messages at the
        next start."""

    def __bool__(self) -> bool:
        return bool(self.entity_ids)

    def add(self, entity_id: int, messages: Sequence[Message]) -> None:
        """Add messages of a deleted entity."""
        self.entity_ids.add(entity_id)
        self._ids.extend([message.id for message in messages])
        self._payload_ids.extend([message.payload_id for message in messages])

    def keep_payloads(self, entities: Iterable[Entity]) -> None:
        """Keep payloads that copies on other entities share."""
        all_payloads = {entity.context.payloads for entity in entities}
        alive: set[int] = set().union(*[payloads.references for payloads in all_payloads])
        for position, payload_id in enumerate(self._payload_ids):
            if payload_id in alive:
                self._payload_ids[position] = 0

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `backlog.Work`."""
        payload_ids = {payload_id for payload_id in self._payload_ids[-count:] if payload_id}
        payload_ids -= self._deleted_shared
        self._deleted_shared |= payload_ids.difference(self._ids[-count:])
        if self._ids:
            turn.records.append(MessagesDeleted(self._ids[-count:].tolist(), sorted(payload_ids)))
        del self._ids[-count:], self._payload_ids[-count:]
        if self._ids:
            return True
        # What else the store has of these entities: sequence numbers and seen message ids.
        turn.records += [EntityDeleted(entity_id) for entity_id in sorted(self.entity_ids)]
        return False


def restore_messages(by_id: Mapping[int, Entity], stored_state: StoredState) -> OrphanedMessages:
    """Restore the messages and the duplicate windows of entities. Returns the messages of no
    entity."""
    orphans = OrphanedMessages()
    for (entity_id, sub_queue), number in stored_state.sequence_numbers.items():
        if entity_id in by_id:
            by_id[entity_id].queues[sub_queue].skip_numbers(number)
        else:
            orphans.entity_ids.add(entity_id)
    by_queue: dict[tuple[int, int], _QueueRows[Any]] = {}
    _collect_rows(
        by_queue, by_id, stored_state.messages_as_sent, messages_as_sent, pack_rows_as_sent
    )
    _collect_rows(by_queue, by_id, stored_state.messages, messages_from, pack_rows)
    topics = {entity.usage: entity for entity in by_id.values() if isinstance(entity, Topic)}
    for (entity_id, _), queue_rows in by_queue.items():
        if queue_rows.queue is None:
            orphans.add(entity_id, queue_rows.messages)
            continue
        queue_rows.restore()
        topic = topics.get(queue_rows.queue.usage)
        if topic is not None and topic.id != entity_id:
            # A topic stores no messages: its numbers continue from those of the copies.
            topic.main.skip_numbers(queue_rows.last_enqueue_sequence_number)
    for entity_id, message_id, until_ms in sorted(
        stored_state.message_ids, key=lambda seen: seen[2]
    ):
        entity = by_id.get(entity_id)
        if entity is not None and entity.duplicates is not None:
            entity.duplicates.restore(message_id, until_ms)
    if orphans:
        orphans.keep_payloads(by_id.values())
    return orphans


class _QueueRows(Generic[Row]):
    """The stored messages of one queue, collected row by row."""

    __slots__ = (
        "_packed",
        "_packed_bytes",
        "_rows",
        "last_enqueue_sequence_number",
        "messages",
        "queue",
    )

    def __init__(self, queue: Queue | None) -> None:
        self.queue = queue
        self.messages: list[Message] = []
        self.last_enqueue_sequence_number = 0
        self._rows: list[Row] = []
        """The first rows of a block that is packed when it is full."""
        self._packed: list[PackedMessages] = []
        self._packed_bytes = 0

    @property
    def may_pack(self) -> bool:
        """Whether there are too many messages in memory, and messages of this queue can be packed."""
        queue = self.queue
        return (
            queue is not None
            and not queue.delivery.requires_sessions
            and queue.context.payloads.packs
        )

    def add(self, rows: list[Row], to_messages: RowsToMessages[Row]) -> None:
        """Convert rows to messages."""
        messages = to_messages(rows)
        self.messages += messages
        if self.queue is None:
            return
        payloads = self.queue.context.payloads
        payloads.add_messages(len(messages))
        for message in messages:
            if message.payload_id != message.id:
                payloads.share(message.payload_id, 1)

    def add_to_blocks(
        self, rows: list[Row], to_messages: RowsToMessages[Row], to_packed: RowsToPacked[Row]
    ) -> None:
        """Convert rows to packed blocks where the rows of a block are consecutive, and others to
        messages."""
        assert self.queue is not None
        size = self.queue.index.block_size
        begun = self._rows
        for row in rows:
            number = row.sequence_number
            offset = number & (size - 1)
            if offset != len(begun) or (begun and begun[0].sequence_number + offset != number):
                self.end_block(to_messages)
                begun = self._rows
            if offset != len(begun):
                self.add([row], to_messages)
                continue
            begun.append(row)
            if len(begun) == size:
                packed = to_packed(self.queue, begun)
                if packed is None:
                    self.end_block(to_messages)
                else:
                    self._note_packed(begun, packed)
                begun = self._rows = []

    def _note_packed(self, rows: Sequence[Row], packed: PackedMessages) -> None:
        assert self.queue is not None
        self._packed.append(packed)
        if not isinstance(rows[0], MessageRow):
            self._packed_bytes += sum([row.size for row in rows])
            last_number = packed.sequence_number + packed.count - 1
            self.last_enqueue_sequence_number = max(self.last_enqueue_sequence_number, last_number)
            return
        for row in rows:
            self._packed_bytes += row.size
            if row.payload_id != row.id:
                self.queue.context.payloads.share(row.payload_id, 1)
            self.last_enqueue_sequence_number = max(
                self.last_enqueue_sequence_number, row.enqueue_sequence_number
            )

    def end_block(self, to_messages: RowsToMessages[Row]) -> None:
        """A block is not full: its rows become messages."""
        rows, self._rows = self._rows, []
        if rows:
            self.add(rows, to_messages)

    def restore(self) -> None:
        """Fill the queue."""
        queue, messages = self.queue, self.messages
        assert queue is not None
        queue.context.payloads.any_paged = True
        queue.context.payloads.add_messages(-len(messages))  # the queue counts them again
        messages.sort(key=_SEQUENCE_NUMBER)  # nearly always in order already
        self._packed.sort(key=_SEQUENCE_NUMBER)
        for message in messages:
            self.last_enqueue_sequence_number = max(
                self.last_enqueue_sequence_number, message.enqueue_sequence_number
            )
        queue.restore(messages, self._packed, self._packed_bytes)


def _collect_rows(
    by_queue: dict[tuple[int, int], _QueueRows[Any]],
    by_id: Mapping[int, Entity],
    rows: Iterable[Row],
    to_messages: RowsToMessages[Row],
    to_packed: RowsToPacked[Row],
) -> None:
    """Convert rows to messages in chunks, because rows take more memory than messages."""
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        remaining = iter(chunk)
        for key, same_queue in groupby(map(_QUEUE_KEY, chunk)):
            queue_rows = by_queue.get(key)
            if queue_rows is None:
                entity_id, sub_queue = key
                entity = by_id.get(entity_id)
                queue = None if entity is None else entity.queues[sub_queue]
                queue_rows = by_queue[key] = _QueueRows(queue)
            run = list(islice(remaining, len(list(same_queue))))
            if queue_rows.may_pack:
                queue_rows.add_to_blocks(run, to_messages, to_packed)
            else:
                queue_rows.add(run, to_messages)
    for queue_rows in by_queue.values():
        queue_rows.end_block(to_messages)


def restore_session_states(by_id: Mapping[int, Entity], states: Iterable[SessionStateSet]) -> None:
    """Restore the states of sessions."""
    for stored in sorted(states, key=attrgetter("updated_time_ms")):
        entity = by_id.get(stored.entity_id)
        if entity is not None and entity.main.sessions is not None:
            entity.main.sessions.restore_state(stored)
