"""The content of a journal entry: the records of one commit as bytes.

An entry is a series of records. Each has a kind (uint8), the lengths of two byte strings (uint32), and these:

| kind | record | first byte string | second byte string |
|---|---|---|---|
| 1 | `MessagesStored` | rows, as in a block | bodies, as in a block |
| 2 | `MessagesUpdated` | rows, as in a block | |
| 3 | `MessagesDeleted` | ids (int64) | ids of bodies (int64) |
| 4 | `SessionStateSet` | entity, time, 1 if there is a state (int64), session (UTF-8) | the state |
| 5 | `MessageIdsSeen` | entity, times (int64) | message ids (a JSON array) |
| 6 | `MessageIdsForgotten` | entity, time (int64) | |
| 7 | `SequenceNumbersSkipped` | the rows, one after the other (int64) | |
| 8 | `MessageIdsDeleted` | entity (int64) | message ids (a JSON array) |

`storage/blocks/block_format.py` defines the bytes of a block. Other records are written to the tables at once. A value
that the tables cannot hold has no form here either: what is in the journal can always be moved.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any

from broker.core.contract.records import (
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    PayloadRow,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from broker.core.contract.sent_rows import columns_of
from storage.blocks.block_format import (
    BLOCK_MAX_ROWS,
    StoredBlock,
    encode_block,
    encode_sent_block,
    encode_sent_message,
)
from storage.sqlite.commit_journal import ENTRY_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.records import Record
    from broker.core.contract.sent_rows import SentPayloads, SentRows

BODY_MAX_BYTES = 128 << 10
"""A larger body is written to the tables at once: it would be written twice."""
_HEAD = struct.Struct("<BII")
_TRIPLE = struct.Struct("<3q")
_Parts = tuple[bytes, bytes]


def encode_records(records: Sequence[Record]) -> bytes | None:
    """Returns the records as bytes, or None if they must be written to the tables. Raises `OverflowError` or
    `UnicodeEncodeError` for values that have no form."""
    strings: list[bytes] = []
    size_bytes = 0
    for record in records:
        kind, encode = _ENCODERS.get(type(record), _NONE)
        parts = encode(record)
        if parts is None:
            return None
        one, other = parts
        strings += (_HEAD.pack(kind, len(one), len(other)), one, other)
        size_bytes += _HEAD.size + len(one) + len(other)
        if size_bytes > ENTRY_MAX_BYTES:
            return None
    return b"".join(strings)


def decode_records(content: bytes) -> list[Record]:
    """Returns the records of an entry. Raises `ValueError`, `IndexError` or `struct.error` if it is damaged."""
    records: list[Record] = []
    position = 0
    while position < len(content):
        kind, length, other_length = _HEAD.unpack_from(content, position)
        position += _HEAD.size
        middle, end = position + length, position + length + other_length
        if kind not in _DECODERS or end > len(content):
            raise ValueError(f"a record of the unknown kind {kind}, or cut off")
        records.append(_DECODERS[kind](content[position:middle], content[middle:end]))
        position = end
    return records


# --- messages ----------------------------------------------------------------------------------


def _encode_stored(record: MessagesStored) -> _Parts | None:
    """Returns None if there are many messages or large ones."""
    columns = columns_of(record)
    if columns is not None:
        return _encode_sent(*columns)
    rows, payloads = record
    sizes = [len(body) + len(annotations) for _, body, annotations in payloads]
    if not _are_few_and_small(sizes) or len(rows) > BLOCK_MAX_ROWS:
        return None
    block = encode_block(rows, payloads)
    return block.entries, block.payloads


def _encode_sent(rows: SentRows, payloads: SentPayloads) -> _Parts | None:
    sizes = [len(body) for body in payloads.bodies]
    if payloads.annotations is not None:
        more = map(len, payloads.annotations)
        sizes = [size + added for size, added in zip(sizes, more, strict=True)]
    if not _are_few_and_small(sizes):
        return None
    if len(sizes) == 1:
        return encode_sent_message(rows, payloads)
    block = encode_sent_block([(rows, payloads, 0, len(sizes))])
    return block.entries, block.payloads


def _are_few_and_small(sizes: Sequence[int]) -> bool:
    return (
        len(sizes) <= BLOCK_MAX_ROWS
        and max(sizes, default=0) <= BODY_MAX_BYTES
        and sum(sizes) <= ENTRY_MAX_BYTES
    )


def _decode_stored(entries: bytes, payloads: bytes) -> MessagesStored:
    block = StoredBlock(entries)
    bodies = [PayloadRow(*one) for one in block.live_payloads(payloads, 0)]
    return MessagesStored(block.live_rows(0), bodies)


def _encode_updated(record: MessagesUpdated) -> _Parts | None:
    if len(record.rows) > BLOCK_MAX_ROWS:
        return None
    return encode_block(record.rows, ()).entries, b""


def _decode_updated(entries: bytes, _: bytes) -> MessagesUpdated:
    return MessagesUpdated(StoredBlock(entries).live_rows(0))


def _encode_deleted(record: MessagesDeleted) -> _Parts:
    ids, payload_ids = record
    return _packed(ids), _packed(payload_ids)


def _packed(ids: Sequence[int]) -> bytes:
    packed = array("q", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _decode_deleted(ids: bytes, payload_ids: bytes) -> MessagesDeleted:
    return MessagesDeleted(_unpacked(ids), _unpacked(payload_ids))


def _unpacked(content: bytes) -> list[int]:
    ids = array("q", content)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


# --- other records -----------------------------------------------------------------------------


def _encode_state(record: SessionStateSet) -> _Parts:
    entity_id, session_id, state, updated_time_ms = record
    numbers = _packed((entity_id, updated_time_ms, state is not None))
    return numbers + session_id.encode(), state or b""


def _decode_state(fields: bytes, state: bytes) -> SessionStateSet:
    entity_id, updated_time_ms, has_state = _TRIPLE.unpack_from(fields)
    session_id = fields[_TRIPLE.size :].decode()
    return SessionStateSet(entity_id, session_id, state if has_state else None, updated_time_ms)


def _encode_seen(record: MessageIdsSeen) -> _Parts:
    entity_id, seen = record
    numbers = [entity_id, *(until_ms for _, until_ms in seen)]
    message_ids = json.dumps([message_id for message_id, _ in seen], ensure_ascii=False)
    return _packed(numbers), message_ids.encode()


def _decode_seen(numbers: bytes, message_ids: bytes) -> MessageIdsSeen:
    entity_id, *until_ms = _unpacked(numbers)
    return MessageIdsSeen(entity_id, list(zip(json.loads(message_ids), until_ms, strict=True)))


def _encode_forgotten(record: MessageIdsForgotten) -> _Parts:
    return _packed(record), b""


def _decode_forgotten(numbers: bytes, _: bytes) -> MessageIdsForgotten:
    return MessageIdsForgotten(*_unpacked(numbers))


def _encode_skipped(record: SequenceNumbersSkipped) -> _Parts:
    return _packed([number for row in record.rows for number in row]), b""


def _decode_skipped(numbers: bytes, _: bytes) -> SequenceNumbersSkipped:
    return SequenceNumbersSkipped(
        [(row[0], row[1], row[2]) for row in _TRIPLE.iter_unpack(numbers)]
    )


def _encode_deleted_ids(record: MessageIdsDeleted) -> _Parts:
    message_ids = json.dumps(list(record.message_ids), ensure_ascii=False)
    return _packed([record.entity_id]), message_ids.encode()


def _decode_deleted_ids(numbers: bytes, message_ids: bytes) -> MessageIdsDeleted:
    (entity_id,) = _unpacked(numbers)
    return MessageIdsDeleted(entity_id, json.loads(message_ids))


def _encode_none(_: Record) -> None:
    return None


_NONE: tuple[int, Callable[[Any], _Parts | None]] = (0, _encode_none)
_ENCODERS: dict[type[Record], tuple[int, Callable[[Any], _Parts | None]]] = {
    MessagesStored: (1, _encode_stored),
    MessagesUpdated: (2, _encode_updated),
    MessagesDeleted: (3, _encode_deleted),
    SessionStateSet: (4, _encode_state),
    MessageIdsSeen: (5, _encode_seen),
    MessageIdsForgotten: (6, _encode_forgotten),
    SequenceNumbersSkipped: (7, _encode_skipped),
    MessageIdsDeleted: (8, _encode_deleted_ids),
}
_DECODERS: dict[int, Callable[[bytes, bytes], Record]] = {
    1: _decode_stored,
    2: _decode_updated,
    3: _decode_deleted,
    4: _decode_state,
    5: _decode_seen,
    6: _decode_forgotten,
    7: _decode_skipped,
    8: _decode_deleted_ids,
}
