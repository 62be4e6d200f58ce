"""AMQP 1.0 values and message sections: bytes to Python and to `Message`, and back.

Functions without connection state, used by AMQP and HTTP. This module is the public face: other packages
import the names below from `protocol.codec`, not from its modules. Malformed data raises `UndecodableMessage`.
Not here: frames and links (`protocol/amqp`).
"""

from protocol.codec.described_types import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    REJECTED_SYMBOL,
    SEQUENCE,
    VALUE,
    DescribedType,
    code_of,
    section_start,
)
from protocol.codec.message_ids import PREFIX_BYTES, MessageIdGenerator
from protocol.codec.message_reader import (
    Reader,
    milliseconds_of_moment,
    moment_of,
    plain,
    typed_span,
)
from protocol.codec.peeked_messages import (
    encode_peeked,
)
from protocol.codec.plain_values import is_plain
from protocol.codec.section_reader import (
    pack_header,
    read_batch,
    read_message,
    read_messages,
    sections_of,
)
from protocol.codec.section_writer import (
    delivery_tag,
    encode_deliveries,
    encode_delivery,
    encode_message,
    lock_token,
)
from protocol.codec.time_to_live import write_time_to_live
from protocol.codec.value_count import count_values
from protocol.codec.value_decoder import (
    SIZED_8,
    SIZED_32,
    WIDTHS,
    compound,
    decode,
    map_entries,
    value_end,
)
from protocol.codec.value_encoder import (
    compound_of,
    encode,
    encode_map_entries,
    encode_string,
    encode_symbol,
    timestamp_of,
)
from protocol.codec.value_types import (
    Array,
    ArrayCode,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

__all__ = [
    "APPLICATION_PROPERTIES",
    "DATA",
    "DELIVERY_ANNOTATIONS",
    "FOOTER",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
    "PREFIX_BYTES",
    "PROPERTIES",
    "REJECTED_SYMBOL",
    "SEQUENCE",
    "SIZED_8",
    "SIZED_32",
    "VALUE",
    "WIDTHS",
    "Array",
    "ArrayCode",
    "Byte",
    "Char",
    "Decimal",
    "Described",
    "DescribedType",
    "Float",
    "Int",
    "Long",
    "MessageIdGenerator",
    "Reader",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "code_of",
    "compound",
    "compound_of",
    "count_values",
    "decode",
    "delivery_tag",
    "encode",
    "encode_deliveries",
    "encode_delivery",
    "encode_map_entries",
    "encode_message",
    "encode_peeked",
    "encode_string",
    "encode_symbol",
    "is_plain",
    "lock_token",
    "map_entries",
    "milliseconds_of_moment",
    "moment_of",
    "pack_header",
    "plain",
    "read_batch",
    "read_message",
    "read_messages",
    "section_start",
    "sections_of",
    "timestamp_of",
    "typed_span",
    "value_end",
    "write_time_to_live",
]
