"""The messages of crash runs. Each has its key in its message id and in its body.

Encodes them, and decodes what the broker delivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.codec import Symbol, Timestamp
from tests.support.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section,
    sections_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.crash.ledgers.messages import MessageKey

SCHEDULED_TIME = Symbol("x-opt-scheduled-enqueue-time")
SEQUENCE_NUMBER = b"\xa3\x15x-opt-sequence-number"
INTEGER_BYTES = {0x81: 8, 0x55: 1}
"""Width of a long and of a small long, by their type code."""
DELIVERY_COUNT = 4
"""Its place in the header."""
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"


def encode_message(
    key: MessageKey,
    *,
    subject: str | None = None,
    session_id: str | None = None,
    due_ms: int | None = None,
    properties: Mapping[str, object] | None = None,
    size_bytes: int = 0,
) -> bytes:
    """A durable message whose id and body name it; `size_bytes` makes the body longer."""
    text = f"{key[0]}:{key[1]}"
    parts = [DURABLE]
    if due_ms is not None:
        parts.append(section(MESSAGE_ANNOTATIONS, {SCHEDULED_TIME: Timestamp(due_ms)}))
    fields: list[object] = [text, None, None, subject]
    if session_id is not None:
        fields += [None] * 6 + [session_id]
    parts.append(section(PROPERTIES, fields))
    if properties:
        parts.append(section(APPLICATION_PROPERTIES, dict(properties)))
    parts.append(section(DATA, text.encode().rjust(size_bytes, b" ")))
    return b"".join(parts)


def decode_message(message: bytes) -> tuple[MessageKey, int]:
    """Which message it is, and the sequence number the broker gave it."""
    # The broker keeps the body's bytes; only the sections before it are its own.
    body = message.rpartition(b"\x00\x53\x75")[2]
    header_bytes = {0xA0: 2, 0xB0: 5}[body[0]]
    sender, _, index = body[header_bytes:].lstrip(b" ").decode().rpartition(":")
    at = message.index(SEQUENCE_NUMBER) + len(SEQUENCE_NUMBER)
    width = INTEGER_BYTES[message[at]]
    number = int.from_bytes(message[at + 1 : at + 1 + width], "big", signed=True)
    return (sender, int(index)), number


def delivery_count(message: bytes) -> int:
    """How many deliveries of it failed before this one."""
    return int(sections_of(message)[HEADER][DELIVERY_COUNT] or 0)
