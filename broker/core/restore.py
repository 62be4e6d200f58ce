"""Restores the state of namespaces from the store at start.

Bodies stay in the store until they are needed.
"""

from __future__ import annotations

from array import array
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.records import EntityDeleted, MessagesDeleted
from broker.core.entities.topic import Topic
from broker.core.messages.packed_rows import FEW_ROWS, PackedRows, pack_rows
from broker.core.queues.duplicate_window import DeletedMessageIds
from broker.core.queues.restored_messages import RestoredMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.records import EntityStored, MessageRow, RuleRow, SessionStateSet
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity

CHUNK_ROWS = 4_096
_QUEUE_KEY = itemgetter(1, 2)
"""Entity id and sub-queue of a row."""


class StoredState(Protocol):
    """The state that the store loads at start. `storage.contract.StoreContent` implements it."""

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
    def packed_messages(self) -> Iterable[tuple[PackedRows, int]]:
        """More messages, with bits for the rows that are not stored any more. Read once."""

    @property
    def session_states(self) -> Sequence[SessionStateSet]:
        """Session states that are set."""

    @property
    def message_ids(self) -> Iterable[tuple[int, str, int]]:
        """Seen message ids: entity id, message id, until ms."""


class OrphanedMessages:
    """Messages and seen ids of deleted entities, and of copies of a namespace that were not finished.
    The broker stopped before it had deleted all of them. They are deleted in parts."""

    ends_with_namespace = False

    __slots__ = ("_deleted_shared", "_ids", "_message_ids", "_payload_ids", "entity_ids")

    def __init__(self) -> None:
        self._ids: array[int] = array("q")
        self._payload_ids: array[int] = array("q")
        self._message_ids = DeletedMessageIds()
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

    def add_message_ids(self, entity_id: int, message_ids: Sequence[str]) -> None:
        """Add ids that a deleted entity has seen."""
        self.entity_ids.add(entity_id)
        self._message_ids.add(entity_id, message_ids)

    def keep_payloads(self, entities: Iterable[Entity]) -> None:
        """Keep payloads that copies on other entities share."""
        all_payloads = {entity.context.payloads for entity in entities}
        alive: set[int] = set().union(*[payloads.references for payloads in all_payloads])
        for position, payload_id in enumerate(self._payload_ids):
            if payload_id in alive:
                self._payload_ids[position] = 0

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `backlog.Work`."""
        if self._ids:
            self._delete_messages(count, turn)
        elif self._message_ids:
            self._message_ids.do_part(count, turn)
        if self._ids or self._message_ids:
            return True
        # What else the store has of these entities: sequence numbers.
        turn.records += [EntityDeleted(entity_id) for entity_id in sorted(self.entity_ids)]
        return False

    def _delete_messages(self, count: int, turn: Turn) -> None:
        payload_ids = {payload_id for payload_id in self._payload_ids[-count:] if payload_id}
        payload_ids -= self._deleted_shared
        self._deleted_shared |= payload_ids.difference(self._ids[-count:])
        turn.records.append(MessagesDeleted(self._ids[-count:].tolist(), sorted(payload_ids)))
        del self._ids[-count:], self._payload_ids[-count:]


def restore_messages(by_id: Mapping[int, Entity], stored_state: StoredState) -> OrphanedMessages:
    """Restore the messages and the duplicate windows of entities. Returns the messages and message ids of no
    entity."""
    orphans = OrphanedMessages()
    for (entity_id, sub_queue), number in stored_state.sequence_numbers.items():
        if entity_id in by_id:
            by_id[entity_id].queues[sub_queue].skip_numbers(number)
        else:
            orphans.entity_ids.add(entity_id)
    collection = _Collection(by_id)
    for packed, dead in stored_state.packed_messages:
        collection.add_packed(packed, dead)
    rows = iter(stored_state.messages)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        collection.add(chunk)
    topics = {entity.usage: entity for entity in by_id.values() if isinstance(entity, Topic)}
    for (entity_id, _), restored in collection.by_queue.items():
        if restored.queue is None:
            orphans.add(entity_id, restored.messages)
            continue
        restored.restore()
        topic = topics.get(restored.queue.usage)
        if topic is not None and topic.id != entity_id:
            # A topic stores no messages: its numbers continue from those of the copies.
            topic.main.skip_numbers(restored.last_enqueue_sequence_number)
    for entity_id, message_id, until_ms in sorted(
        stored_state.message_ids, key=lambda seen: seen[2]
    ):
        entity = by_id.get(entity_id)
        if entity is None:
            orphans.add_message_ids(entity_id, [message_id])
        elif entity.duplicates is not None:
            entity.duplicates.restore(message_id, until_ms)
    if orphans:
        orphans.keep_payloads(by_id.values())
    return orphans


class _Collection:
    """The stored messages of all queues."""

    __slots__ = ("_by_id", "by_queue")

    def __init__(self, by_id: Mapping[int, Entity]) -> None:
        self._by_id = by_id
        self.by_queue: dict[tuple[int, int], RestoredMessages] = {}
        """By entity id and sub-queue."""

    def add_packed(self, rows: PackedRows, dead: int) -> None:
        """Add rows, without those that are set in `dead`."""
        if rows.queue is None:
            self.add(rows.live_rows(dead))
        else:
            self._of(rows.queue).add_packed(rows, dead)

    def add(self, rows: Sequence[MessageRow]) -> None:
        """Add rows of any queues."""
        remaining = iter(rows)
        for queue, same_queue in groupby(map(_QUEUE_KEY, rows)):
            run = list(islice(remaining, len(list(same_queue))))
            of_queue = self._of(queue)
            if len(run) > FEW_ROWS and of_queue.may_pack:
                of_queue.add_packed(PackedRows(pack_rows(run)), 0)
            else:
                of_queue.add(run)

    def _of(self, queue: tuple[int, int]) -> RestoredMessages:
        collected = self.by_queue.get(queue)
        if collected is None:
            entity_id, sub_queue = queue
            entity = self._by_id.get(entity_id)
            collected = self.by_queue[queue] = RestoredMessages(
                None if entity is None else entity.queues[sub_queue]
            )
        return collected


def restore_session_states(by_id: Mapping[int, Entity], states: Iterable[SessionStateSet]) -> None:
    """Restore the states of sessions."""
    for stored in sorted(states, key=attrgetter("updated_time_ms")):
        entity = by_id.get(stored.entity_id)
        if entity is not None and entity.main.sessions is not None:
            entity.main.sessions.restore_state(stored)
