"""Copies the state of a namespace into a new one, in parts.

Copies what a restart would restore: entities, rules, messages with their numbers and counts, session states,
and seen message ids. Locks, links and transactions are not copied, so a locked message is available in the copy,
with the delivery count that it had before this delivery.

The copy has ids of its own. Its entities are recorded in the last part. If the broker stops before, the store has
messages of no entity, and the next start deletes them. The original must not change meanwhile: it gets no commands.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    EntityStored,
    MessageIdsSeen,
    MessageRow,
    MessagesStored,
    PayloadRow,
    RuleRow,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.entities.subscription import Subscription
from broker.core.messages.message_rows import rows_of
from broker.core.restore import restore_messages, restore_session_states

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.records import Record
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.messages.packed_rows import PackedRows
    from broker.core.namespace import Namespace

_PAYLOAD_ID = MessageRow._fields.index("payload_id")


@dataclass(frozen=True, slots=True)
class _CopiedMessages:
    """Messages in the form of stored state. Everything else is empty."""

    messages: Sequence[MessageRow]
    entities: Sequence[EntityStored] = ()
    rules: Sequence[RuleRow] = ()
    sequence_numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)
    highest_message_id: int = 0
    packed_messages: Sequence[tuple[PackedRows, int]] = ()
    session_states: Sequence[SessionStateSet] = ()
    message_ids: Sequence[tuple[int, str, int]] = ()


class NamespaceCopy:
    """A copy that is being made. Call `copy_entities` until it returns False, then the same with the messages and
    the message ids, and then `finish`."""

    def __init__(self, original: Namespace, copy: Namespace, now_ms: int) -> None:
        self._copy = copy
        self._now_ms = now_ms
        entities = original.entities()
        # A topic comes before its subscriptions.
        entities.sort(key=lambda entity: isinstance(entity, Subscription))
        self._entities = iter(entities)
        self._messages = _messages_of(entities)
        self._pairs: list[tuple[Entity, Entity]] = []
        """Entities of the original and their copies."""
        self._by_id: dict[int, Entity] = {}
        """The copies of entities, by their own ids."""
        self._copy_ids: dict[int, int] = {}
        """The ids of the copies, by the ids of the originals."""
        self._shared_payload_ids: dict[int, int] = {}
        """The same for payloads that several messages share."""
        self._records: list[Record] = []
        self._message_ids: deque[tuple[int, str, int]] | None = None

    def copy_entities(self, count: int) -> bool:
        """Copy so many entities. Returns False if none is left."""
        copied = 0
        for entity in islice(self._entities, count):
            copied += 1
            entity_id = self._copy.context.ids.take_entity()
            stored = entity.record(self._copy.name)._replace(entity_id=entity_id)
            rules = entity.rule_rows(entity_id) if isinstance(entity, Subscription) else []
            made = self._copy.restore_entity(stored, rules, self._now_ms)
            made.accessed_time_ms = entity.accessed_time_ms
            self._copy_ids[entity.id] = entity_id
            self._by_id[entity_id] = made
            self._pairs.append((entity, made))
            self._records.append(stored)
            if rules:
                self._records.append(RulesStored(rules))
        return copied == count

    # --- messages ---------------------------------------------------------------------------

    def next_messages(self, count: int) -> list[Message]:
        """Returns so many messages of the original that are not copied yet. Empty if none is left. The caller
        passes them to `copy_messages`, with the bodies that are not in memory."""
        return list(islice(self._messages, count))

    def copy_messages(
        self,
        messages: Sequence[Message],
        payloads: Mapping[int, tuple[bytes, bytes]],
        turn: Turn,
    ) -> None:
        """Copy messages. `payloads` has the bodies and annotations of those whose body is not in memory, by payload
        id."""
        ids = self._copy.context.ids
        shared = self._shared_payload_ids
        new_shared = {
            one.payload_id: 0
            for one in messages
            if one.payload_id != one.id and one.payload_id not in shared
        }
        number = ids.take_messages(len(messages) + len(new_shared))
        for payload_id in new_shared:
            shared[payload_id] = new_shared[payload_id] = number
            number += 1
        rows: list[MessageRow] = []
        payload_rows: list[PayloadRow] = []
        contents: list[tuple[bytes, bytes]] = []
        make = tuple.__new__  # see `rows_of`
        for message, row in zip(messages, rows_of(messages), strict=True):
            body = message.body
            content = payloads[message.payload_id] if body is None else (body, message.annotations)
            payload_id = number
            if message.payload_id != message.id:
                payload_id = shared[message.payload_id]
                if new_shared.pop(message.payload_id, None) is not None:
                    payload_rows.append(PayloadRow(payload_id, *content))
            else:
                payload_rows.append(PayloadRow(payload_id, *content))
            rows.append(
                make(
                    MessageRow,
                    (
                        number,
                        self._copy_ids[row.entity_id],
                        *row[2:_PAYLOAD_ID],
                        payload_id,
                        *row[_PAYLOAD_ID + 1 :],
                    ),
                )
            )
            contents.append(content)
            number += 1
        restore_messages(self._by_id, _CopiedMessages(rows))
        if self._copy.context.payloads.keeps_all_bodies:
            self._set_bodies(rows, contents)
        turn.records.append(MessagesStored(rows, payload_rows))

    def _set_bodies(
        self, rows: Sequence[MessageRow], contents: Sequence[tuple[bytes, bytes]]
    ) -> None:
        size_bytes = 0
        for row, content in zip(rows, contents, strict=True):
            queue = self._by_id[row.entity_id].queues[row.sub_queue]
            message = queue.index.get(row.sequence_number)
            assert message is not None
            message.body, message.annotations = content
            size_bytes += message.size
        self._copy.context.payloads.add_bodies(size_bytes)

    # --- what else an entity has ----------------------------------------------------------------

    def copy_message_ids(self, count: int, turn: Turn) -> bool:
        """Copy so many seen message ids. Returns False if none is left."""
        if self._message_ids is None:
            self._message_ids = deque(
                (made.id, message_id, until_ms)
                for original, made in self._pairs
                if original.duplicates is not None
                for message_id, until_ms in original.duplicates.seen()
            )
        by_entity: dict[int, list[tuple[str, int]]] = {}
        for _ in range(min(count, len(self._message_ids))):
            entity_id, message_id, until_ms = self._message_ids.popleft()
            by_entity.setdefault(entity_id, []).append((message_id, until_ms))
        for entity_id, seen in by_entity.items():
            duplicates = self._by_id[entity_id].duplicates
            assert duplicates is not None
            for message_id, until_ms in seen:
                duplicates.restore(message_id, until_ms)
            turn.records.append(MessageIdsSeen(entity_id, seen))
        return bool(self._message_ids)

    def finish(self, turn: Turn) -> None:
        """Copy sequence numbers and session states, and record the entities. The copy exists from then on."""
        numbers: list[tuple[int, int, int]] = []
        states: list[SessionStateSet] = []
        for original, made in self._pairs:
            for queue, copied in zip(original.queues, made.queues, strict=True):
                if queue.last_sequence_number:
                    copied.skip_numbers(queue.last_sequence_number)
                    numbers.append((made.id, copied.sub_queue, queue.last_sequence_number))
            if original.main.sessions is not None:
                states += [
                    SessionStateSet(made.id, *state) for state in original.main.sessions.states()
                ]
        restore_session_states(self._by_id, states)
        turn.records += self._records
        if numbers:
            turn.records.append(SequenceNumbersSkipped(numbers))
        turn.records += states


def _messages_of(entities: Sequence[Entity]) -> Iterator[Message]:
    for entity in entities:
        for queue in entity.queues:
            for block in queue.index.read_blocks():
                yield from block
