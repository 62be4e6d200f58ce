"""The AMQP 1.0 type system: encoded values to Python and back.

The one door to `value_types`, `value_decoder` and `value_encoder`; no Proton, no sections.
`encode(decode(data)[0])` decodes to the same value of the same type, and malformed data raises
`UndecodableMessage`.
"""

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
    "SIZED_8",
    "SIZED_32",
    "WIDTHS",
    "Array",
    "ArrayCode",
    "Byte",
    "Char",
    "Decimal",
    "Described",
    "Float",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "compound",
    "compound_of",
    "decode",
    "encode",
    "encode_map_entries",
    "encode_string",
    "encode_symbol",
    "map_entries",
    "timestamp_of",
    "value_end",
]
