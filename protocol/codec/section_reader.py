"""Reads the sections of a message that a client sends. The body is never decoded.

`protocol/native` reads the sections in the order and the short forms that nearly every sender uses. Here all other
messages are read, and all that are malformed.

The stored bytes are canonical: properties, application properties, body and footer, in this order, with short
descriptors, and every list and map outside the body is checked. As in the service, keys of annotations and footers
become symbols, and decimals are encoded as by Microsoft's library.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from broker.core.contract.message import Message
from config.model.definitions import UNLIMITED_MS
from protocol.codec.described_types import (
    APPLICATION_PROPERTIES,
    APPLICATION_PROPERTIES_START,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTIES_START,
    SEQUENCE,
    VALUE,
    code_of,
    section_start,
)
from protocol.codec.section_maps import (
    EMPTY_MAP,
    read_annotations,
    service_properties,
    symbol_keys,
)
from protocol.codec.time_to_live import ABSOLUTE_EXPIRY_TIME, time_to_live
from protocol.codec.value_count import ValueBudget
from protocol.codec.value_decoder import (
    SIZED_8,
    SIZED_32,
    WIDTHS,
    check_content,
    compound,
    decode,
    value_end,
)
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

VALUES_MAX = 20_000
"""How many values a message may have outside its body; each section of its body counts as one. More do not fit into the
64 KB that the service has for them. Other clients wait while they are read."""
BATCH_VALUES_MAX = 1_000_000
"""The same for all messages of a batch that the compiled module does not read."""

_BODIES = frozenset({DATA, SEQUENCE, VALUE})
_BARE_MESSAGE = (PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER)

_length32 = struct.Struct(">I").unpack_from


def read_messages(payloads: Sequence[bytes], real_ms: Callable[[], int]) -> list[Message]:
    """Returns messages as they go to the core. Raises `UndecodableMessage` if anything in one of them is malformed.

    `real_ms` returns the real time, which is needed for a message that has an expiry and no creation time."""
    messages = compiled.read_messages(payloads)
    if None in messages:
        return [
            read_any(data, real_ms) if message is None else message
            for message, data in zip(messages, payloads, strict=True)
        ]
    return messages  # type: ignore[return-value]


def _read_messages_of_batch(payloads: list[bytes], real_ms: Callable[[], int]) -> list[Message]:
    budget = ValueBudget(BATCH_VALUES_MAX)
    return [
        read_any(data, real_ms, budget) if message is None else message
        for message, data in zip(compiled.read_messages(payloads), payloads, strict=True)
    ]


def read_message(data: bytes, real_ms: Callable[[], int]) -> Message:
    """Returns one message, see `read_messages`."""
    return read_messages((data,), real_ms)[0]


_SHORT_DATA = b"\x00\x53\x75\xa0"
"""The beginning of a data section of less than 256 bytes."""


class MessageBatch(NamedTuple):
    """The messages of a batch transfer."""

    messages: list[Message]
    size_bytes: int
    """The size of the data sections, to which a client's limit applies: the Python SDK fills a batch up to the limit and
    then adds an envelope that it has not counted."""


def read_batch(data: bytes, real_ms: Callable[[], int], max_messages: int) -> MessageBatch:
    """Returns the messages of a batch transfer. Each is a data section. Raises `MessageSizeExceeded` before they are
    read if there are more than `max_messages`.

    The other sections repeat those of the first message and are ignored.
    """
    payloads: list[bytes] = []
    ignored: set[int] = set()
    size_bytes = position = 0
    while position < len(data):
        end = _read_data_sections(data, position, payloads, max_messages)
        size_bytes += end - position
        position = end
        for code, start, end in sections_of(data, position):
            if code == DATA:
                payloads.append(_binary(data, start, end))
                if len(payloads) > max_messages:
                    raise _too_many(max_messages)
                size_bytes += end - position
            elif code in (SEQUENCE, VALUE):
                raise UndecodableMessage("a batch must consist of data sections")
            elif code in ignored:
                raise UndecodableMessage("a message section comes twice")
            else:
                ignored.add(code)
            position = end
            if data.startswith(_SHORT_DATA, position):
                break
    if not payloads:
        raise UndecodableMessage("a batch holds no message")
    return MessageBatch(_read_messages_of_batch(payloads, real_ms), size_bytes)


def _read_data_sections(
    data: bytes, position: int, payloads: list[bytes], max_messages: int
) -> int:
    """Adds the content of data sections in a row, of less than 256 bytes each. Returns where the next section
    begins. A batch may have a hundred thousand of them, and others are served only after the last."""
    last = len(data)
    while data.startswith(_SHORT_DATA, position) and position + 4 < last:
        end = position + 5 + data[position + 4]
        if end > last:
            break  # `sections_of` says what is wrong
        payloads.append(data[position + 5 : end])
        if len(payloads) > max_messages:
            raise _too_many(max_messages)
        position = end
    return position


def _too_many(max_messages: int) -> MessageSizeExceeded:
    return MessageSizeExceeded(f"A batch has at most {max_messages} messages.")


def body_sections(body: bytes) -> tuple[int, int]:
    """Returns where the properties and the application properties of a canonical body end.

    A section that is absent ends where it would begin.
    """
    properties = compound(body, 3)[2] if body.startswith(PROPERTIES_START) else 0
    if body.startswith(APPLICATION_PROPERTIES_START, properties):
        return properties, compound(body, properties + 3)[2]
    return properties, properties


def skip_fields(body: bytes, position: int, number: int) -> int:
    """Returns where the field begins that is `number` fields after the one at `position`, in a checked list.

    Nulls and short strings, which most fields are, are skipped without a call.
    """
    while number:
        code = body[position]
        if code == 0x40:
            has_more = number > 1 and body[position + 1] == 0x40
            nulls = _leading_nulls(body, position, number) if has_more else 1
            position += nulls
            number -= nulls
            continue
        if code == 0xA1 or code == 0xA3:  # noqa: PLR1714 (quicker than a tuple here)
            position += 2 + body[position + 1]
        else:
            position = value_end(body, position)
        number -= 1
    return position


def _leading_nulls(data: bytes, position: int, most: int) -> int:
    """Returns how many fields from `position` on are null: often there are many between two that are set."""
    fields = data[position : position + most]
    return len(fields) - len(fields.lstrip(b"\x40"))


# --- any order, any descriptor -----------------------------------------------------------------


_DESCRIPTORS = frozenset(bytes((code,)) for code in range(0x41, 0xC0) if code != 0x45)
"""Constructors of simple values. No other descriptor is decoded: it could be as large as the message."""


def sections_of(data: bytes, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yields the code of every section, where its value starts and where it ends.

    Sections may come in any order, with short, long or symbolic descriptors. Raises `UndecodableMessage`
    at the first that cannot be read; the sections before it have been yielded."""
    size = len(data)
    while position < size:
        if data[position]:
            raise UndecodableMessage("a message section must be a described value")
        if data[position + 1 : position + 2] not in _DESCRIPTORS:
            raise UndecodableMessage("the descriptor of a section must be a number or a symbol")
        descriptor, start = decode(data, position + 1)
        code = code_of(descriptor)
        if code is None or not HEADER <= code <= FOOTER:
            raise UndecodableMessage(f"{descriptor!r} is no message section")
        position = value_end(data, start)
        yield code, start, position


def read_any(data: bytes, real_ms: Callable[[], int], budget: ValueBudget | None = None) -> Message:
    """Returns any message. Nearly all are read by the compiled module, with the same result. `budget` is that of other
    messages, too."""
    try:
        return _read_sections(data, real_ms, budget or ValueBudget(VALUES_MAX))
    except (IndexError, struct.error) as error:
        raise UndecodableMessage("the message ends inside a section") from error


def _read_sections(data: bytes, real_ms: Callable[[], int], budget: ValueBudget) -> Message:
    found: dict[int, list[bytes]] = {}
    header = scheduled_ms = 0
    time_to_live_ms = None
    properties: tuple[int, int] | None = None
    annotations = delivery_annotations = b""
    for code, start, end in sections_of(data):
        if code in found and code not in (DATA, SEQUENCE):
            raise UndecodableMessage("a message section comes twice")
        if code in _BODIES:
            budget.take(1)
        else:
            budget.take_values(data, start, end)
        if code == HEADER:
            header, time_to_live_ms = _read_header(data[start:end])
        elif code == MESSAGE_ANNOTATIONS:
            annotations, scheduled_ms = read_annotations(data, start)
        elif code == DELIVERY_ANNOTATIONS:
            delivery_annotations = read_annotations(data, start)[0]
        elif code == PROPERTIES:
            _check_properties_list(data, start)
            properties = compound(data, start)[:2]
        else:
            _CHECKS[code](data, start, end)
        if data[start] == 0x40 and code != VALUE:
            section = b""  # Null means absent, and SDKs expect only absent sections.
        else:
            rewrite = _REWRITES.get(code)
            value = data[start:end] if rewrite is None else rewrite(data, start)
            section = section_start(code) + value
        found.setdefault(code, []).append(section)
    if len(found.keys() & _BODIES) > 1:
        raise UndecodableMessage("a message has bodies of different kinds")
    if not data:
        raise UndecodableMessage("a message has no sections")
    if properties is not None and properties[1] > ABSOLUTE_EXPIRY_TIME:
        time_to_live_ms = time_to_live(data, *properties, time_to_live_ms, real_ms)
    if delivery_annotations:
        annotations = (annotations or EMPTY_MAP) + delivery_annotations
    message = Message(
        b"".join(chain.from_iterable(found.get(code, ()) for code in _BARE_MESSAGE)),
        annotations=annotations,
        header=header,
        time_to_live_ms=time_to_live_ms,
        scheduled_enqueue_time_ms=scheduled_ms,
    )
    message.size = len(data)
    return message


_EMPTY_DATA = section_start(DATA) + b"\xa0\x00"


@lru_cache(maxsize=64)
def read_prelude(prelude: bytes) -> Message:
    """Returns a message that consists of the sections before the bare message, as the compiled module needs it."""
    return _read_sections(prelude + _EMPTY_DATA, _no_time, ValueBudget(VALUES_MAX))


def _no_time() -> int:
    raise AssertionError("the time is needed only for properties")


compiled.set_message_type(Message, read_prelude)


def _binary(data: bytes, start: int, end: int) -> bytes:
    if data[start] not in (0xA0, 0xB0):
        raise UndecodableMessage("a data section must hold binary")
    return data[start + (2 if data[start] == 0xA0 else 5) : end]


def _check_properties_list(data: bytes, start: int) -> None:
    if data[start] in (0xC1, 0xD1):
        raise UndecodableMessage("properties must be a list")
    first, count, end = compound(data, start)
    _check_fields(data, first, count, end)


def _check_sequence(data: bytes, start: int, _end: int) -> None:
    if data[start] not in (0x45, 0xC0, 0xD0):
        raise UndecodableMessage("a sequence section must hold a list")


def _check_nothing(_data: bytes, _start: int, _end: int) -> None:
    """A value section may have any content, and maps are checked where they are read."""


_CHECKS: dict[int, Callable[[bytes, int, int], object]] = {
    APPLICATION_PROPERTIES: _check_nothing,
    DATA: _binary,
    SEQUENCE: _check_sequence,
    VALUE: _check_nothing,
    FOOTER: _check_nothing,
}

_REWRITES: dict[int, Callable[[bytes, int], bytes]] = {
    APPLICATION_PROPERTIES: service_properties,
    FOOTER: symbol_keys,
}
"""Sections that are stored as the service writes them."""


# --- one section each --------------------------------------------------------------------------


def _read_header(section: bytes) -> tuple[int, int | None]:
    """Returns the packed flags and priority (see `pack_header`), and the time to live."""
    fields, end = decode(section)
    if end != len(section) or not (isinstance(fields, list) or fields is None):
        raise UndecodableMessage("a header must be a list")
    durable, priority, time_to_live_ms, first_acquirer = [*(fields or ()), *[None] * 4][:4]
    for flag in (durable, first_acquirer):
        if flag is not None and not isinstance(flag, bool):
            raise UndecodableMessage("durable and first-acquirer must be booleans")
    for number in (priority, time_to_live_ms):
        if number is not None and (not isinstance(number, int) or number < 0):
            raise UndecodableMessage("a header field must be an unsigned number")
    header = pack_header(
        durable=durable,
        priority=None if priority is None else min(int(priority), 255),
        first_acquirer=first_acquirer,
    )
    # Some clients write 0 for none. A message that expires at once is of no use.
    # Some write a number that no store can hold.
    return header, min(int(time_to_live_ms), UNLIMITED_MS) if time_to_live_ms else None


def pack_header(
    *, durable: bool | None = None, priority: int | None = None, first_acquirer: bool | None = None
) -> int:
    """Returns `Message.header`: the header fields that the broker only passes on.

    From the lowest bit: durable is true (1 bit), the priority plus one or 0 for none (9 bits),
    durable is false (1 bit), first-acquirer (2 bits: 0 absent, 1 true, 2 false).
    """
    header = (durable is True) | (0 if priority is None else priority + 1) << 1
    return header | (durable is False) << 10 | _PACKED_FLAGS[first_acquirer] << 11


_PACKED_FLAGS = {None: 0, True: 1, False: 2}


_SURROGATES = [bytes((0, 0, high)) for high in range(0xD8, 0xE0)]
"""The first bytes of characters U+D800 to U+DFFF."""


def _check_fields(data: bytes, position: int, count: int, end: int) -> None:
    """Raises `UndecodableMessage` if the `count` fields do not fill the list of properties exactly, or one of them
    cannot be decoded. Ids are stored as text, so no field is a character that no text can have."""
    while count:
        start = position
        code = data[position]
        if code == 0x40:
            if position + 1 < end and data[position + 1] == 0x40:
                nulls = _leading_nulls(data, position, count)
                position += nulls
                count -= nulls
                continue
            position += 1
        elif 0x40 < code < 0xC0:
            position += 1
            # As in `value_end`, without a call for each field.
            width = WIDTHS[code]
            if width >= 0:
                position += width
            elif width == SIZED_8:
                position += 1 + data[position]
            elif width == SIZED_32:
                position += 4 + _length32(data, position)[0]
            else:
                raise UndecodableMessage(f"constructor 0x{code:02x} is unknown")
            if position > end:
                raise UndecodableMessage("properties are not as long as their fields")
            check_content(data, start, position)
            if code == 0x73 and data[start + 1 : start + 4] in _SURROGATES:
                raise UndecodableMessage("a property is half of a surrogate pair")
        else:
            raise UndecodableMessage("properties hold simple values only")
        count -= 1
    if position != end:
        raise UndecodableMessage("properties are not as long as their fields")
