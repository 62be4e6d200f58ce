"""The records of the journal that are not in the tables yet, in their order.

A message that was sent and completed meanwhile is dropped here, and never gets to the tables. That is most messages of a
queue whose receivers keep up. Bodies that are not in the tables are read from here.

One thread adds and drops records. Another may read bodies at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from broker.core.contract.records import (
    MessageIdsDeleted,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import SentPayloads, SentRows, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from broker.core.contract.records import Record

_ROW_BYTES = 256
_SENT_ROW_BYTES = 64
_ID_BYTES = 64
"""What it costs to move a row, a row of messages that were sent together, or a deletion, compared with the bytes of
bodies."""


class PendingSend:
    """Messages that were sent together, and which of them were deleted since."""

    __slots__ = ("alive_count", "dead", "key", "payloads", "rows")

    def __init__(self, key: int, rows: SentRows, payloads: SentPayloads) -> None:
        self.key = key
        self.rows = rows
        self.payloads = payloads
        self.alive_count = len(rows.sizes)
        self.dead: set[int] = set()
        """Positions of messages."""

    def payload(self, message_id: int) -> tuple[bytes, bytes]:
        """Returns the body and the annotations of a message."""
        payloads = self.payloads
        position = message_id - payloads.first_id
        annotations = payloads.annotations
        return payloads.bodies[position], b"" if annotations is None else annotations[position]

    def records(self) -> Iterator[MessagesStored]:
        """Returns the messages that are alive: one record for those without a gap."""
        if not self.dead:
            yield MessagesStored(self.rows, self.payloads)
            return
        start = 0
        for end in [*sorted(self.dead), len(self.rows.sizes)]:
            if start < end:
                yield MessagesStored(self.rows.part(start, end), self.payloads.part(start, end))
            start = end + 1


class PendingPart(NamedTuple):
    """The oldest pending records, to be written to the tables."""

    last_number: int
    """The number of the journal entry after which the rest begins."""
    keys: Sequence[int]
    records: Sequence[Record]


class PendingRecords:
    """What a journal has and the tables have not."""

    def __init__(self) -> None:
        self._items: OrderedDict[int, tuple[int, int, Record | PendingSend]] = OrderedDict()
        """The number of the journal entry, what it costs to move the record, and the record, by a rising key. A plain
        dict would search for its first item among those that were deleted."""
        self.size_bytes = 0
        """What it costs to move everything."""
        self._next_key = 0
        self._sent: dict[int, PendingSend] = {}
        """Messages by id."""
        self._kept: set[int] = set()
        """Ids of those of them that other records refer to. They get to the tables before they are deleted."""
        self._payloads: dict[int, tuple[bytes, bytes]] = {}
        """Other bodies, by id."""
        self._deleted_payloads: set[int] = set()
        """Ids of bodies that are in the tables, or get there, and are deleted."""
        self._sequence_numbers: dict[tuple[int, int], int] = {}
        self.highest_id = 0
        """No message and no body here has or had a higher id."""
        self.freed_bytes = 0
        """The size of the bodies in the tables that are to be deleted."""

    def __contains__(self, payload_id: int) -> bool:
        """Whether a body is here."""
        return payload_id in self._sent or payload_id in self._payloads

    def payload(self, payload_id: int) -> tuple[bytes, bytes] | None:
        """Returns the body and the annotations of a payload, or None if it is not here."""
        sent = self._sent.get(payload_id)
        return self._payloads.get(payload_id) if sent is None else sent.payload(payload_id)

    def is_deleted(self, payload_id: int) -> bool:
        """Returns whether a body is deleted, although the tables may have it."""
        return payload_id in self._deleted_payloads

    def are_new(self, records: Sequence[Record], highest_id: int) -> bool:
        """Returns whether records store nothing with an id that was used before. `highest_id` is the highest one in the
        tables."""
        highest_id = max(highest_id, self.highest_id)
        for record in records:
            if type(record) is not MessagesStored:
                continue
            for new in record:
                if type(new) is SentRows or type(new) is SentPayloads:
                    if new.first_id <= highest_id:
                        return False
                elif any(one[0] <= highest_id for one in new):
                    return False
        return True

    # --- adding --------------------------------------------------------------------------------

    def add(self, number: int, records: Sequence[Record]) -> None:
        """Adds the records of a journal entry."""
        for record in records:
            self._ADDERS.get(type(record), PendingRecords._add_other)(self, number, record)

    def _add_other(self, number: int, record: Record) -> None:
        self._add_item(number, _ROW_BYTES, record)

    def _add_item(self, number: int, size_bytes: int, item: Record | PendingSend) -> None:
        self._items[self._next_key] = number, size_bytes, item
        self._next_key += 1
        self.size_bytes += size_bytes

    def _add_stored(self, number: int, record: MessagesStored) -> None:
        columns = columns_of(record)
        if columns is not None:
            self._add_sent(number, *columns)
            return
        rows, payloads = record
        size_bytes = len(rows) * _ROW_BYTES
        for payload_id, body, more in payloads:
            self._payloads[payload_id] = body, more
            size_bytes += len(body) + len(more)
        self._add_item(number, size_bytes, record)
        ids_here = [one[0] for new in (rows, payloads) for one in new]
        self.highest_id = max(self.highest_id, *ids_here, 0)

    def _add_sent(self, number: int, rows: SentRows, payloads: SentPayloads) -> None:
        sent = PendingSend(self._next_key, rows, payloads)
        ids = rows.ids
        self._add_item(number, len(ids) * _SENT_ROW_BYTES + sum(map(len, payloads.bodies)), sent)
        if len(ids) == 1:
            self._sent[rows.first_id] = sent
        else:
            self._sent.update(dict.fromkeys(ids, sent))
        self.highest_id = max(self.highest_id, ids[-1])
        queue = rows.entity_id, rows.sub_queue
        last = rows.last_sequence_number
        if last > self._sequence_numbers.get(queue, 0):
            self._sequence_numbers[queue] = last

    def _add_updated(self, number: int, record: MessagesUpdated) -> None:
        self._keep(row.id for row in record.rows)
        changes_bytes = sum([len(row.changes) for row in record.rows if row.changes])
        self._add_item(number, len(record.rows) * _ROW_BYTES + changes_bytes, record)

    def _add_deleted(self, number: int, record: MessagesDeleted) -> None:
        ids, payload_ids = record
        if self._sent and (ids is payload_ids or list(ids) == list(payload_ids)):
            ids = payload_ids = self._drop_sent(ids)
            if not ids:
                return
            record = MessagesDeleted(ids, payload_ids)
        else:
            self._keep(ids)
            self._keep(payload_ids)
        self._deleted_payloads.update(payload_ids)
        self._add_item(number, len(ids) * _ID_BYTES, record)

    def _add_state(self, number: int, record: SessionStateSet) -> None:
        self._add_item(number, _ROW_BYTES + len(record.state or b""), record)

    def _add_seen_ids(self, number: int, record: MessageIdsSeen) -> None:
        self._add_item(number, len(record.seen) * _ID_BYTES, record)

    def _add_deleted_ids(self, number: int, record: MessageIdsDeleted) -> None:
        self._add_item(number, len(record.message_ids) * _ROW_BYTES, record)

    def _keep(self, ids: Iterable[int]) -> None:
        sent = self._sent
        if sent:
            self._kept.update(one for one in ids if one in sent)

    def _drop_sent(self, message_ids: Iterable[int]) -> list[int]:
        """Drops messages that are not in the tables. Returns those that are there, or have to get there."""
        by_id, kept = self._sent, self._kept
        others: list[int] = []
        for message_id in message_ids:
            sent = by_id.get(message_id)
            if sent is None or message_id in kept:
                others.append(message_id)
                continue
            del by_id[message_id]
            sent.alive_count -= 1
            if sent.alive_count:
                sent.dead.add(message_id - sent.rows.first_id)
            else:
                self._drop_item(sent.key)
        return others

    def _drop_item(self, key: int) -> Record | PendingSend:
        _, size_bytes, item = self._items.pop(key)
        self.size_bytes -= size_bytes
        return item

    _ADDERS: ClassVar[dict[type[Record], Callable[[PendingRecords, int, Any], None]]] = {
        MessagesStored: _add_stored,
        MessagesUpdated: _add_updated,
        MessagesDeleted: _add_deleted,
        SessionStateSet: _add_state,
        MessageIdsSeen: _add_seen_ids,
        MessageIdsDeleted: _add_deleted_ids,
    }

    # --- moving --------------------------------------------------------------------------------

    def has_any(self, up_to_number: int) -> bool:
        """Returns whether there are records of entries up to this number."""
        for number, _, _ in self._items.values():
            return number <= up_to_number
        return False

    def first_part(self, up_to_number: int, size_bytes: int) -> PendingPart:
        """Returns the oldest records, of no entry after that number, until they are this large. An entry is not
        divided."""
        keys: list[int] = []
        records: list[Record] = []
        if self._sequence_numbers:  # also of messages that were dropped
            highest = [(*queue, number) for queue, number in self._sequence_numbers.items()]
            records.append(SequenceNumbersSkipped(highest))
        left_bytes = size_bytes
        last_number = up_to_number
        last_in_part = 0
        for key, (number, item_bytes, item) in self._items.items():
            if number > up_to_number or (left_bytes <= 0 and number != last_in_part):
                last_number = min(up_to_number, number - 1)
                break
            keys.append(key)
            last_in_part = number
            left_bytes -= item_bytes
            if isinstance(item, PendingSend):
                records += item.records()
            else:
                records.append(item)
        return PendingPart(last_number, keys, records)

    def moved(self, part: PendingPart) -> None:
        """Drops records that are in the tables now."""
        for key in part.keys:
            item = self._drop_item(key)
            if isinstance(item, PendingSend):
                for message_id in item.rows.ids:
                    self._sent.pop(message_id, None)
                    self._kept.discard(message_id)
            elif type(item) is MessagesStored:
                for payload_id, _, _ in item.payloads:
                    self._payloads.pop(payload_id, None)
            elif type(item) is MessagesDeleted:
                self._deleted_payloads.difference_update(item.payload_ids)
        if not self._items:
            self.freed_bytes = self.highest_id = 0
        self._sequence_numbers.clear()
