"""The described types of AMQP 1.0: numeric descriptors, and the symbols that mean the same.

The only place that lists descriptor codes. A peer may write a descriptor as a code or as a symbol; `code_of`
accepts both. Codes of performatives are in `frames/performatives.py`, those of rules in `rule_encoding.py`.
"""

from __future__ import annotations

from enum import IntEnum

# --- sections of a message (AMQP 1.0 §3.2) -----------------------------------------------------
# Plain integers: they are compared and used as keys once per section of every message.
HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78


def section_start(code: int) -> bytes:
    """Returns the bytes with which the broker begins a section: the descriptor in its short form."""
    return b"\x00\x53" + bytes((code,))


PROPERTIES_START = section_start(PROPERTIES)
APPLICATION_PROPERTIES_START = section_start(APPLICATION_PROPERTIES)


class DescribedType(IntEnum):
    """Types of errors, outcomes, transactions and SASL (AMQP 1.0 §2.8.14, §3.4, §4.5, §5.3.3)."""

    ERROR = 0x1D
    RECEIVED = 0x23
    ACCEPTED = 0x24
    REJECTED = 0x25
    RELEASED = 0x26
    MODIFIED = 0x27
    DECLARE = 0x31
    DISCHARGE = 0x32
    DECLARED = 0x33
    TRANSACTIONAL_STATE = 0x34
    SASL_MECHANISMS = 0x40
    SASL_INIT = 0x41
    SASL_OUTCOME = 0x44


REJECTED_SYMBOL = "amqp:rejected:list"

_SYMBOLS: dict[str, int] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
    "amqp:error:list": DescribedType.ERROR,
    "amqp:received:list": DescribedType.RECEIVED,
    "amqp:accepted:list": DescribedType.ACCEPTED,
    REJECTED_SYMBOL: DescribedType.REJECTED,
    "amqp:released:list": DescribedType.RELEASED,
    "amqp:modified:list": DescribedType.MODIFIED,
    "amqp:declare:list": DescribedType.DECLARE,
    "amqp:discharge:list": DescribedType.DISCHARGE,
    "amqp:declared:list": DescribedType.DECLARED,
    "amqp:transactional-state:list": DescribedType.TRANSACTIONAL_STATE,
    "amqp:sasl-mechanisms:list": DescribedType.SASL_MECHANISMS,
    "amqp:sasl-init:list": DescribedType.SASL_INIT,
    "amqp:sasl-outcome:list": DescribedType.SASL_OUTCOME,
}


def code_of(descriptor: object) -> int | None:
    """Returns the numeric code of a descriptor. Returns None for a symbol that is not known and for a
    descriptor that is neither a number nor a symbol."""
    if isinstance(descriptor, str):
        return _SYMBOLS.get(descriptor)
    return int(descriptor) if isinstance(descriptor, int) else None
