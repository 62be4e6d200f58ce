"""The maps of a message: annotations, application properties and the footer.

Removes entries that only a broker may set, and writes the others as the service does. A malformed map raises
`UndecodableMessage`.
"""

from __future__ import annotations

from broker.core.contract.errors import UndecodableMessage
from protocol.codec.decimals import service_decimal
from protocol.codec.value_decoder import check_content, compound, decode, value_end
from protocol.codec.value_encoder import compound_of

SCHEDULED_ENQUEUE_TIME = b"x-opt-scheduled-enqueue-time"

LAST_MOMENT_MS = 253_402_300_799_999
"""The end of the year 9999, the last time that .NET and Python can show. A client may send later ones, up to some that
no store can hold."""

_PARTITION_KEYS = frozenset({b"x-opt-partition-key", b"x-opt-via-partition-key"})

EMPTY_MAP = b"\xc1\x01\x00"

_BROKER_ANNOTATIONS = frozenset(
    {
        b"x-opt-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-locked-until",
        b"x-opt-message-state",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-lock-token",
        b"x-opt-deadletter-source",
        SCHEDULED_ENQUEUE_TIME,
    }
)
"""Annotations that only a broker sets. A sender that forwards a received message sends them again."""

_TEXT_OFFSETS = {0xA1: 2, 0xA3: 2, 0xB1: 5, 0xB3: 5}
_NAME_OFFSETS = _TEXT_OFFSETS | {0xA0: 2, 0xB0: 5}
_STRING_TO_SYMBOL = {0xA1: b"\xa3", 0xB1: b"\xb3"}
_BINARY_TO_STRING = {0xA0: b"\xa1", 0xB0: b"\xb1"}
_DECIMALS = frozenset({0x74, 0x84, 0x94})


def entries_of(data: bytes, start: int) -> list[tuple[bytes, int, int, int]]:
    """Returns for every entry of a map: the text of the key, and where the key, the value and the next entry begin.

    The text is empty for a key of another type: reserved annotations have numbers (AMQP 1.0 §3.2.10).
    """
    if data[start] in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("a list where a map should be")
    position, count, limit = compound(data, start)
    if count & 1:
        raise UndecodableMessage("a map has a key without a value")
    entries = []
    for _ in range(count >> 1):
        code = data[position]
        middle = value_end(data, position)
        name = data[position + _TEXT_OFFSETS[code] : middle] if code in _TEXT_OFFSETS else b""
        if not name.isascii():
            decode(data, position)  # Raises if it is not UTF-8.
        end = value_end(data, middle)
        if not 0x40 <= data[middle] < 0xC0:
            decode(data, middle)  # Raises if the content of a compound value is malformed.
        entries.append((name, position, middle, end))
        position = end
    if position != limit:
        raise UndecodableMessage("a map is not as long as its entries")
    return entries


def read_annotations(data: bytes, start: int) -> tuple[bytes, int]:
    """Returns the sender's own annotations as an encoded map, and the scheduled enqueue time."""
    scheduled_ms = 0
    kept: list[bytes] = []
    for entry in entries_of(data, start):
        name, _, middle, end = entry
        check_content(data, middle, end)  # A partition key is read when a message is forwarded.
        if name in _PARTITION_KEYS:
            kept += _partition_key(data, *entry)
        elif name not in _BROKER_ANNOTATIONS:
            kept += _symbol_key(data, *entry)
        elif name == SCHEDULED_ENQUEUE_TIME:
            moment = decode(data, middle)[0]
            if moment is not None and not isinstance(moment, int):
                raise UndecodableMessage("the scheduled enqueue time must be a timestamp")
            scheduled_ms = min(max(0, int(moment or 0)), LAST_MOMENT_MS)
    return compound_of(0xC1, len(kept), b"".join(kept)) if kept else b"", scheduled_ms


def _symbol_key(
    data: bytes, name: bytes, position: int, middle: int, end: int
) -> tuple[bytes, bytes]:
    """Returns key and value of an entry. A string key that is ASCII becomes a symbol."""
    code = data[position]
    if code in _STRING_TO_SYMBOL and name.isascii():
        return _STRING_TO_SYMBOL[code] + data[position + 1 : middle], data[middle:end]
    return data[position:middle], data[middle:end]


def _partition_key(
    data: bytes, name: bytes, position: int, middle: int, end: int
) -> tuple[bytes, bytes]:
    """Returns an entry with the partition key as a string: the Python SDK sends a received key as binary, which .NET
    and Go cannot read."""
    key, value = _symbol_key(data, name, position, middle, end)
    if value[0] in _BINARY_TO_STRING:
        text = _BINARY_TO_STRING[value[0]] + value[1:]
        try:
            decode(text)
        except UndecodableMessage:
            return key, value
        return key, text
    return key, value


def symbol_keys(data: bytes, start: int) -> bytes:
    """Returns a map with symbols as keys, as in annotations and footers."""
    entries = entries_of(data, start)
    items = [part for entry in entries for part in _symbol_key(data, *entry)]
    return compound_of(0xC1, 2 * len(entries), b"".join(items))


def service_properties(data: bytes, start: int) -> bytes:
    """Returns application properties as the service writes them.

    Names are strings; a client may send them as binary. Decimals are encoded as by Microsoft's library, because the
    Python SDK cannot read others.
    """
    position, count, end = compound(data, start)
    if check_properties_map(data, start) == end:
        return data[start:end]
    items = []
    for _ in range(count >> 1):
        middle = value_end(data, position)
        after = value_end(data, middle)
        code = data[position]
        if code in _BINARY_TO_STRING:
            items.append(_BINARY_TO_STRING[code] + data[position + 1 : middle])
        else:
            items.append(data[position:middle])
        value = data[middle:after]
        items.append(service_decimal(value) or value if data[middle] in _DECIMALS else value)
        position = after
    return compound_of(0xC1, count, b"".join(items))


def check_properties_map(data: bytes, start: int) -> int:
    """Returns where application properties end. Raises `UndecodableMessage` if they are malformed.

    Returns -1 if they must be written differently, see `service_properties`.
    """
    if data[start] in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("application properties must be a map")
    position, count, limit = compound(data, start)
    if count & 1:
        raise UndecodableMessage("a map has a key without a value")
    end = limit
    while count:
        code = data[position]
        if code == 0xA1:
            middle = position + 2 + data[position + 1]
        elif code in _NAME_OFFSETS:
            middle = value_end(data, position)
            if code in _BINARY_TO_STRING:
                end = -1
        else:
            raise UndecodableMessage("an application property's name must be text")
        name = data[position + _NAME_OFFSETS[code] : middle]
        if not name.isascii():
            _check_utf8(name)
        position = value_end(data, middle)
        check_content(data, middle, position)
        if data[middle] in _DECIMALS:
            end = -1
        count -= 2
    if position != limit:
        raise UndecodableMessage("a map is not as long as its entries")
    return end


def _check_utf8(text: bytes) -> None:
    try:
        text.decode()
    except ValueError as error:
        raise UndecodableMessage("a name is not UTF-8") from error
