"""The AMQP types of what a message contains, for people who ask why two values are not equal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Array,
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
    encode_message,
    plain,
)
from protocol.http.control.message_json import PROPERTY_NAMES
from protocol.http.data_plane.rest_messages import read_sections

if TYPE_CHECKING:
    from broker.core.contract.control_operations import MessageView

_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    Long: "long",
    int: "long",
    Float: "float",
    float: "double",
    Char: "char",
    Symbol: "symbol",
    str: "string",
    bytes: "binary",
    Timestamp: "timestamp",
    datetime: "timestamp",
    timedelta: "duration",
    UUID: "uuid",
    list: "list",
    dict: "map",
    Array: "array",
}
_DECIMALS = {4: "decimal32", 8: "decimal64", 16: "decimal128"}
_MAPS = {
    "application_properties": APPLICATION_PROPERTIES,
    "annotations": MESSAGE_ANNOTATIONS,
    "delivery_annotations": DELIVERY_ANNOTATIONS,
    "footer": FOOTER,
}


def write_types(view: MessageView) -> dict[str, dict[str, str]]:
    """Returns the types of a message, which must have its body, by section and name."""
    try:
        sections = read_sections(encode_message(view.message))
    except UndecodableMessage:
        return {"body": {"body": "unreadable"}}
    fields = sections.get(PROPERTIES) or ()
    types = {
        "properties": {
            name: type_name(value)
            for name, value in zip(PROPERTY_NAMES, fields, strict=False)
            if value is not None
        }
    }
    for name, code in _MAPS.items():
        values = sections.get(code) or {}
        types[name] = {str(plain(key)): type_name(value) for key, value in values.items()}
    types["body"] = {"body": _body_type(sections)}
    return types


def type_name(value: Any) -> str:
    """Returns the name of the AMQP type of a decoded value."""
    if isinstance(value, Decimal):
        return _DECIMALS.get(len(value.raw), "decimal")
    if isinstance(value, Described):
        return f"described {type_name(value.value)} ({value.descriptor})"
    return _NAMES.get(type(value), type(value).__name__)


def _body_type(sections: dict[int, Any]) -> str:
    if DATA in sections:
        return "data"
    if SEQUENCE in sections:
        return "sequence"
    return f"value ({type_name(sections[VALUE])})" if VALUE in sections else "none"
