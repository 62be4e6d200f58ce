"""A store in memory, for speed and for tests.

Nothing outlives the process. A store object that is closed and opened again still has its content, so that tests can
restore without a file.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    EntityDeleted,
    EntityStored,
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessageRow,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    PayloadRow,
    RuleRow,
    RulesDeleted,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.contract import UNLIMITED_ROOM, StoreContent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from broker.core.contract.records import Record
    from storage.contract import BackgroundCommits

SUB_QUEUES = range(3)
"""The main queue, the dead letters and the transfer dead letters."""
_ID = itemgetter(0)


class MemoryStore:
    """A `Store` in dictionaries."""

    blocking = False
    keeps_payloads_in_memory = True
    commits_inline = True
    shares_ownership = False
    postpones = False
    room = UNLIMITED_ROOM
    maintenance_is_due = False
    background_commits: BackgroundCommits | None = None

    def __init__(self) -> None:
        self._namespaces: dict[str, NamespaceStored] = {}
        self._entities: dict[int, EntityStored] = {}
        self._rules: dict[int, dict[int, RuleRow]] = {}
        """By entity id, then by sequence number."""
        self._messages: dict[int, MessageRow | SentRows] = {}
        """By id. Messages that were sent together have one value, as long as nothing changes."""
        self._payloads: dict[int, PayloadRow | bytes] = {}
        """By id. Only the body, if there are no annotations."""
        self._sequence_numbers: dict[tuple[int, int], int] = {}
        self._session_states: dict[int, dict[str, SessionStateSet]] = {}
        """By entity id, then by session id."""
        self._message_ids: dict[int, dict[str, int]] = {}
        self._message_id_deadlines: dict[int, list[tuple[int, str]]] = {}
        self._takers: dict[type[Record], Callable[[Any], None]] = {
            MessagesStored: self._store,
            MessagesUpdated: self._update,
            MessagesDeleted: self._delete,
            SessionStateSet: self._set_session_state,
            MessageIdsSeen: self._remember_message_ids,
            MessageIdsForgotten: self._forget_message_ids,
            MessageIdsDeleted: self._delete_message_ids,
            EntityStored: self._store_entity,
            EntityDeleted: self._delete_entity,
            RulesStored: self._store_rules,
            RulesDeleted: self._delete_rules,
            SequenceNumbersSkipped: self._skip_sequence_numbers,
            NamespaceStored: self._store_namespace,
            NamespaceDeleted: self._delete_namespace,
        }

    def exists(self) -> bool:
        """See `Store.exists`."""
        return True

    def open(self) -> None:
        """Nothing to do."""

    def load(self) -> StoreContent:
        """Returns the current content."""
        return StoreContent(
            namespaces=sorted(self._namespaces.values()),
            entities=sorted(self._entities.values(), key=lambda entity: entity.entity_id),
            rules=[row for rules in self._rules.values() for row in rules.values()],
            sequence_numbers=dict(self._sequence_numbers),
            highest_message_id=max(max(self._messages, default=0), max(self._payloads, default=0)),
            messages=[
                rows[message_id - rows.first_id] if isinstance(rows, SentRows) else rows
                for message_id, rows in self._messages.items()
            ],
            session_states=[
                state for states in self._session_states.values() for state in states.values()
            ],
            message_ids=[
                (entity_id, message_id, until_ms)
                for entity_id, seen in self._message_ids.items()
                for message_id, until_ms in seen.items()
            ],
        )

    def commit(self, records: Sequence[Record]) -> None:
        """Stores all records."""
        takers = self._takers
        for record in records:
            takers[type(record)](record)

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""
        found = {}
        for payload_id in payload_ids:
            payload = self._payloads.get(payload_id)
            if payload is not None:
                found[payload_id] = (payload, b"") if isinstance(payload, bytes) else payload[1:]
        return found

    def measure_room(self) -> bool:
        """Memory has room."""
        return True

    def maintain(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    # --- one method for each kind of record ---------------------------------------------------------

    def _store(self, record: MessagesStored) -> None:
        rows, payloads = record
        if isinstance(rows, SentRows):
            self._messages.update(dict.fromkeys(rows.ids, rows))
            queue = rows.entity_id, rows.sub_queue
            highest = self._sequence_numbers
            highest[queue] = max(rows.last_sequence_number, highest.get(queue, 0))
        else:
            self._messages.update(zip(map(_ID, rows), rows, strict=True))
            self._raise_sequence_numbers(rows)
        if isinstance(payloads, SentPayloads) and payloads.annotations is None:
            self._payloads.update(zip(payloads.ids, payloads.bodies, strict=True))
        else:
            self._payloads.update(zip(map(_ID, payloads), payloads, strict=True))

    def _update(self, record: MessagesUpdated) -> None:
        self._messages.update(zip(map(_ID, record.rows), record.rows, strict=True))
        self._raise_sequence_numbers(record.rows)

    def _raise_sequence_numbers(self, rows: Sequence[MessageRow]) -> None:
        highest = self._sequence_numbers
        for row in rows:
            queue = row[1], row[2]
            if row[3] > highest.get(queue, 0):
                highest[queue] = row[3]

    def _skip_sequence_numbers(self, record: SequenceNumbersSkipped) -> None:
        highest = self._sequence_numbers
        for entity_id, sub_queue, number in record.rows:
            highest[entity_id, sub_queue] = max(number, highest.get((entity_id, sub_queue), 0))

    def _delete(self, record: MessagesDeleted) -> None:
        messages, payloads = self._messages, self._payloads
        for message_id in record.ids:
            messages.pop(message_id, None)
        for payload_id in record.payload_ids:
            payloads.pop(payload_id, None)

    def _set_session_state(self, record: SessionStateSet) -> None:
        if record.state is None:
            self._session_states.get(record.entity_id, {}).pop(record.session_id, None)
        else:
            states = self._session_states.setdefault(record.entity_id, {})
            states[record.session_id] = record

    def _remember_message_ids(self, record: MessageIdsSeen) -> None:
        self._message_ids.setdefault(record.entity_id, {}).update(record.seen)
        deadlines = self._message_id_deadlines.setdefault(record.entity_id, [])
        for message_id, until_ms in record.seen:
            heappush(deadlines, (until_ms, message_id))

    def _forget_message_ids(self, record: MessageIdsForgotten) -> None:
        seen = self._message_ids.get(record.entity_id, {})
        deadlines = self._message_id_deadlines.get(record.entity_id, [])
        while deadlines and deadlines[0][0] <= record.until_ms:
            until_ms, message_id = heappop(deadlines)
            if seen.get(message_id) == until_ms:  # otherwise it was stored again later
                del seen[message_id]

    def _delete_message_ids(self, record: MessageIdsDeleted) -> None:
        seen = self._message_ids.get(record.entity_id, {})
        for message_id in record.message_ids:
            seen.pop(message_id, None)
        if not seen:
            self._message_ids.pop(record.entity_id, None)
            self._message_id_deadlines.pop(record.entity_id, None)

    def _store_entity(self, record: EntityStored) -> None:
        self._entities[record.entity_id] = record

    def _store_namespace(self, record: NamespaceStored) -> None:
        self._namespaces[record.name] = record

    def _delete_namespace(self, record: NamespaceDeleted) -> None:
        self._namespaces.pop(record.name, None)

    def _store_rules(self, record: RulesStored) -> None:
        for row in record.rows:
            self._rules.setdefault(row.entity_id, {})[row.number] = row

    def _delete_rules(self, record: RulesDeleted) -> None:
        rules = self._rules.get(record.entity_id, {})
        for number in record.numbers:
            rules.pop(number, None)

    def _delete_entity(self, record: EntityDeleted) -> None:
        entity_id = record.entity_id
        self._entities.pop(entity_id, None)
        self._rules.pop(entity_id, None)
        self._session_states.pop(entity_id, None)
        for sub_queue in SUB_QUEUES:
            self._sequence_numbers.pop((entity_id, sub_queue), None)
