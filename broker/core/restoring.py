"""What the store remembers becomes live again.

Owns the way from rows to queues at start; the store owns the rows. Bodies stay where they are until
somebody asks for them.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.core.rows import messages_as_sent, messages_from
from broker.core.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker.core.entities import Entity
    from broker.core.message import Message
    from broker.core.records import EntityStored, MessageRow, RuleRow, SentRow, SessionStateSet

Row = TypeVar("Row", "MessageRow", "SentRow")

CHUNK_ROWS = 4_096
_PLACE = itemgetter(1, 2)
"""Entity id and sub-queue of a row."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class Remembered(Protocol):
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


def restore_messages(by_id: Mapping[int, Entity], remembered: Remembered) -> None:
    """Fill the queues of entities, and the duplicate windows."""
    for (entity_id, sub_queue), number in remembered.sequence_numbers.items():
        if entity_id in by_id:
            by_id[entity_id].queues[sub_queue].last_sequence_number = number
    topics = {topic.account: topic for topic in by_id.values() if isinstance(topic, Topic)}
    for (entity_id, sub_queue), messages in _by_place(remembered).items():
        entity = by_id.get(entity_id)
        if entity is None:
            continue
        messages.sort(key=_SEQUENCE_NUMBER)  # nearly always they came in order
        entity.queues[sub_queue].restore(messages)
        payloads = entity.environment.payloads
        payloads.any_paged = True
        for message in messages:
            if message.payload_id != message.id:
                payloads.share(message.payload_id, 1)
        topic = topics.get(entity.account)
        if topic is not None and topic is not entity:
            # A topic stores nothing of its own: its numbers go on from those of the copies.
            main = topic.main
            main.last_sequence_number = max(
                main.last_sequence_number,
                *(message.enqueue_sequence_number for message in messages),
            )
    for entity_id, message_id, until_ms in sorted(remembered.message_ids, key=lambda seen: seen[2]):
        entity = by_id.get(entity_id)
        if entity is not None and entity.duplicates is not None:
            entity.duplicates.restore(message_id, until_ms)


def _by_place(remembered: Remembered) -> dict[tuple[int, int], list[Message]]:
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
