"""What the store remembers becomes live again.

Owns the way from rows to queues at start; the store owns the rows. Bodies stay where they are until
somebody asks for them.
"""

from __future__ import annotations

from array import array
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.core.contract.records import MessagesDeleted
from broker.core.entities.topic import Topic
from broker.core.messages.message_rows import messages_as_sent, messages_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.records import (
        EntityStored,
        MessageRow,
        RuleRow,
        SentRow,
        SessionStateSet,
    )
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity

Row = TypeVar("Row", "MessageRow", "SentRow")

CHUNK_ROWS = 4_096
_PLACE = itemgetter(1, 2)
"""Entity id and sub-queue of a row."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class StoredState(Protocol):
    """What a store gives back at start: see `storage.contract.Snapshot`."""

    @property
    def entities(self) -> Sequence[EntityStored]:
        """All entities of all namespaces."""

    @property
    def rules(self) -> Sequence[RuleRow]:
        """All rules of all subscriptions, in any order."""

    @property
    def sequence_numbers(self) -> Mapping[tuple[int, int], int]:
        """Highest number ever stored, by entity id and sub-queue."""

    @property
    def highest_message_id(self) -> int:
        """Highest id ever stored."""

    @property
    def messages(self) -> Iterable[MessageRow]:
        """In any order; read once."""

    @property
    def messages_as_sent(self) -> Iterable[SentRow]:
        """More of them; read once."""

    @property
    def session_states(self) -> Sequence[SessionStateSet]:
        """States that are not null."""

    @property
    def message_ids(self) -> Iterable[tuple[int, str, int]]:
        """Duplicate detection: entity id, message id, until ms."""


class OrphanedMessages:
    """Messages of entities that are deleted: the broker stopped before all of them were. They are
    deleted in parts, and never come back."""

    __slots__ = ("_deleted_shared", "_ids", "_payload_ids", "entity_ids")

    def __init__(self) -> None:
        self._ids: array[int] = array("q")
        self._payload_ids: array[int] = array("q")
        self._deleted_shared: set[int] = set()
        """Bodies of several copies that are deleted already."""
        self.entity_ids: set[int] = set()
        """No new entity may get one of these, or it would get the messages at the next start."""

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, entity_id: int, messages: Sequence[Message]) -> None:
        """Messages of an entity that is not there."""
        self.entity_ids.add(entity_id)
        self._ids.extend([message.id for message in messages])
        self._payload_ids.extend([message.payload_id for message in messages])

    def keep_payloads(self, entities: Iterable[Entity]) -> None:
        """Copies of these messages may be alive elsewhere: their bodies stay."""
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
        turn.records.append(MessagesDeleted(self._ids[-count:].tolist(), sorted(payload_ids)))
        del self._ids[-count:], self._payload_ids[-count:]
        return bool(self._ids)


def restore_messages(by_id: Mapping[int, Entity], remembered: StoredState) -> OrphanedMessages:
    """Fill the queues of entities, and the duplicate windows; what belongs to no entity is left."""
    orphans = OrphanedMessages()
    for (entity_id, sub_queue), number in remembered.sequence_numbers.items():
        if entity_id in by_id:
            by_id[entity_id].queues[sub_queue].skip_numbers(number)
    topics = {entity.usage: entity for entity in by_id.values() if isinstance(entity, Topic)}
    for (entity_id, sub_queue), messages in _by_place(remembered).items():
        entity = by_id.get(entity_id)
        if entity is None:
            orphans.add(entity_id, messages)
            continue
        messages.sort(key=_SEQUENCE_NUMBER)  # nearly always they came in order
        entity.queues[sub_queue].restore(messages)
        payloads = entity.context.payloads
        payloads.any_paged = True
        for message in messages:
            if message.payload_id != message.id:
                payloads.share(message.payload_id, 1)
        topic = topics.get(entity.usage)
        if topic is not None and topic is not entity:
            # A topic stores nothing of its own: its numbers go on from those of the copies.
            topic.main.skip_numbers(max(m.enqueue_sequence_number for m in messages))
    for entity_id, message_id, until_ms in sorted(remembered.message_ids, key=lambda seen: seen[2]):
        entity = by_id.get(entity_id)
        if entity is not None and entity.duplicates is not None:
            entity.duplicates.restore(message_id, until_ms)
    orphans.keep_payloads(by_id.values())
    return orphans


def _by_place(remembered: StoredState) -> dict[tuple[int, int], list[Message]]:
    """Messages by entity id and sub-queue."""
    places: dict[tuple[int, int], list[Message]] = {}
    _put(places, remembered.messages_as_sent, messages_as_sent)
    _put(places, remembered.messages, messages_from)
    return places


def _put(
    places: dict[tuple[int, int], list[Message]],
    rows: Iterable[Row],
    made_of: Callable[[list[Row]], list[Message]],
) -> None:
    """Rows are given up piece by piece: they take more room than the messages they become."""
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        messages = iter(made_of(chunk))
        for place, alike in groupby(map(_PLACE, chunk)):
            places.setdefault(place, []).extend(islice(messages, len(list(alike))))


def restore_session_states(by_id: Mapping[int, Entity], states: Iterable[SessionStateSet]) -> None:
    """Give sessions their states."""
    for stored in sorted(states, key=attrgetter("updated_time_ms")):
        entity = by_id.get(stored.entity_id)
        if entity is not None and entity.main.sessions is not None:
            entity.main.sessions.restore_state(stored)
