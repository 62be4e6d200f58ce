"""Messages as `peek-message` shows them.

A peek may omit the body. The live tests of the JavaScript SDK read the size of an omitted body from the delivery
annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.codec.section_maps import EMPTY_MAP
from protocol.codec.section_reader import body_sections
from protocol.codec.section_writer import encode_message
from protocol.codec.value_decoder import compound
from protocol.codec.value_encoder import compound_of, encode, encode_symbol
from protocol.codec.value_types import Long

if TYPE_CHECKING:
    from broker.core.contract.message import Message

_OMITTED_BODY_SIZE = encode_symbol("omitted-message-body-size")


def encode_peeked(message: Message, *, from_topic: bool, omits_body: bool) -> bytes:
    """Returns an encoded message. The message is a copy for this answer and is changed."""
    if omits_body and message.body is not None:
        end = body_sections(message.body)[1]
        size = encode(Long(len(message.body) - end))
        message.annotations = _with_delivery_annotation(
            message.annotations, _OMITTED_BODY_SIZE + size
        )
        message.body = message.body[:end]
    return encode_message(message, None, message.locked_until_ms, from_topic=from_topic)


def _with_delivery_annotation(annotations: bytes, entry: bytes) -> bytes:
    """Returns both maps of `Message.annotations` with one more entry in the second."""
    start = compound(annotations, 0)[2] if annotations else 0
    entries, count = b"", 0
    if start < len(annotations):
        first, count, end = compound(annotations, start)
        entries = annotations[first:end]
    return (annotations[:start] or EMPTY_MAP) + compound_of(0xC1, count + 2, entries + entry)
