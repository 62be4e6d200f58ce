"""Delivery outcomes and errors, read from states and written as states or to Proton's deliveries.

What an outcome means to Service Bus is in `outcome_mapping.py`. Values of info and annotation maps stay encoded. An
outcome without details is always the same object, so that outcomes can be grouped by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    DescribedType,
    code_of,
    compound,
    compound_of,
    decode,
    encode,
    encode_map_entries,
    encode_string,
    encode_symbol,
    map_entries,
    section_start,
    value_end,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class WireError:
    """The AMQP type `error`. Its info must not be empty, because one SDK hangs otherwise."""

    condition: str
    description: str
    info: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.info:
            raise ValueError(f"{self.condition} has no info")


@dataclass(frozen=True, slots=True)
class Accepted:
    pass


@dataclass(frozen=True, slots=True)
class Released:
    pass


@dataclass(frozen=True, slots=True)
class Received:
    """A state that is not terminal: how much of a delivery the client has received."""


@dataclass(frozen=True, slots=True)
class Rejected:
    condition: str | None = None
    description: str | None = None
    info: Mapping[str, bytes] | None = None
    """Encoded values by symbol."""


@dataclass(frozen=True, slots=True)
class Modified:
    delivery_failed: bool = False
    undeliverable_here: bool = False
    annotations: Mapping[str, bytes] | None = None
    """Encoded values by symbol."""


@dataclass(frozen=True, slots=True)
class Transactional:
    """The outcome that a delivery has if the transaction commits."""

    transaction_id: bytes
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The answer to a declare, with the id of the new transaction."""

    transaction_id: bytes


Outcome = Accepted | Released | Received | Rejected | Modified | Transactional | Declared

ACCEPTED = Accepted()
RELEASED = Released()
RECEIVED = Received()
REJECTED = Rejected()
MODIFIED = {
    (failed, undeliverable): Modified(failed, undeliverable)
    for failed in (False, True)
    for undeliverable in (False, True)
}

# Plain integers: Proton takes and returns them once per delivery.
_RECEIVED_CODE = int(DescribedType.RECEIVED)
ACCEPTED_CODE = int(DescribedType.ACCEPTED)
_REJECTED_CODE = int(DescribedType.REJECTED)
RELEASED_CODE = int(DescribedType.RELEASED)
_MODIFIED_CODE = int(DescribedType.MODIFIED)
_DECLARED_CODE = int(DescribedType.DECLARED)
TRANSACTIONAL_CODE = int(DescribedType.TRANSACTIONAL_STATE)
_ERROR_CODE = int(DescribedType.ERROR)

PLAIN_OUTCOMES: dict[int, Outcome] = {
    ACCEPTED_CODE: ACCEPTED,
    RELEASED_CODE: RELEASED,
    _RECEIVED_CODE: RECEIVED,
}
"""Outcomes that are the same whatever their fields are, by code."""
_TRUE = (b"\x41", b"\x56\x01")
_REST_OF_FRAME_BYTES = 256
"""More than what a frame with an error has besides the description. The smallest limit of a client is 512 bytes."""


# --- Proton's data trees ---------------------------------------------------------------------


def data_bytes(data: Any) -> bytes:
    """Returns the encoded content of a Proton data tree. Empty if there is none."""
    if not data:
        return b""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    return bytes(ffi.buffer(buffer, written)) if written > 0 else b""


def set_data(data: Any, encoded: bytes) -> None:
    """Replaces the content of a Proton data tree by encoded values."""
    lib.pn_data_clear(data)
    position = 0
    while position < len(encoded):
        end = value_end(encoded, position)
        value = encoded[position:end]
        lib.pn_data_decode(data, value, len(value))
        position = end
    lib.pn_data_rewind(data)


def text(pointer: Any) -> str | None:
    """Returns a C string that the client sent. It may not be UTF-8."""
    if not pointer:
        return None
    raw: bytes = ffi.string(pointer)
    return raw.decode("utf-8", "replace")


def set_condition(condition: Any, error: WireError, frame_max_bytes: int) -> None:
    """Sets the condition of a link, a session or a connection."""
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, _description(error, frame_max_bytes))
    set_info(condition, error.info)


def _description(error: WireError, frame_max_bytes: int) -> bytes:
    """Returns the text of an error, cut so that the client accepts the frame: Proton does not look at the size of a frame
    without payload, and a client ends the connection if a frame is too large."""
    description = error.description.encode()
    if len(description) + _REST_OF_FRAME_BYTES <= frame_max_bytes:
        return description
    cut = description[: frame_max_bytes - _REST_OF_FRAME_BYTES]
    return cut.decode(errors="ignore").encode()


def set_info(condition: Any, info: Mapping[str, str]) -> None:
    """Sets the info map of a condition."""
    set_data(lib.pn_condition_info(condition), _symbol_map(_encoded_texts(info)))


def _encoded_texts(info: Mapping[str, str]) -> dict[str, bytes]:
    return {key: encode_string(value) for key, value in info.items()}


def rejected(error: WireError, frame_max_bytes: int) -> Rejected:
    """Returns the outcome that has an error."""
    description = _description(error, frame_max_bytes).decode()
    return Rejected(error.condition, description, _encoded_texts(error.info))


def _symbol_map(entries: Mapping[str, bytes]) -> bytes:
    return encode_map_entries(entries, encode_symbol)


def _entries(encoded: bytes) -> dict[str, bytes] | None:
    """Returns the entries of a map, or None if it is absent, empty, not a map, or cannot be decoded. The values stay
    encoded, and other clients get them as properties of the message. So each must be a value."""
    if not encoded or encoded[0] not in (0xC1, 0xD1):
        return None
    try:
        entries = map_entries(encoded)
        for value in entries.values():
            decode(value)
    except UndecodableMessage:
        return None
    return entries or None


# --- reading outcomes of the client -----------------------------------------------------------------


def read_state(encoded: bytes) -> Outcome | None:
    """Returns the outcome that is encoded as a delivery state. Returns None if there is none, or none that is known."""
    if not encoded:
        return None
    try:
        descriptor, start = decode(encoded, 1)
        code = code_of(descriptor) if encoded[0] == 0 else None
        fields = _fields(encoded, start)
        return None if code is None else _outcome(code, fields)
    except UndecodableMessage:
        return None


def _fields(encoded: bytes, position: int) -> list[bytes]:
    """Returns the encoded fields of a list."""
    if encoded[position : position + 1] in (b"\xc1", b"\xd1"):
        raise UndecodableMessage("a map where a list should be")
    position, count, end = compound(encoded, position)
    fields = []
    for _ in range(count):
        start, position = position, value_end(encoded, position)
        fields.append(encoded[start:position])
    if position != end:
        raise UndecodableMessage("a list is not as long as its fields")
    return fields


def _outcome(code: int, fields: list[bytes]) -> Outcome | None:
    if code in PLAIN_OUTCOMES:
        return PLAIN_OUTCOMES[code]
    if code == _REJECTED_CODE:
        return _read_rejected(fields[0]) if fields else REJECTED
    if code == _MODIFIED_CODE:
        failed, undeliverable, annotations = [*fields, *[b""] * 3][:3]
        flags = (failed in _TRUE, undeliverable in _TRUE)
        entries = _entries(annotations)
        return MODIFIED[flags] if entries is None else Modified(*flags, entries)
    if code == TRANSACTIONAL_CODE:
        transaction_id = decode(fields[0])[0] if fields else None
        if not isinstance(transaction_id, bytes):
            return None
        return Transactional(transaction_id, read_state(fields[1]) if len(fields) > 1 else None)
    return None


def _read_rejected(error: bytes) -> Rejected:
    """Returns a rejected outcome with the error that a client encoded, or without if there is none."""
    try:
        descriptor, start = decode(error, 1)
        if error[0] != 0 or code_of(descriptor) != _ERROR_CODE:
            return REJECTED
        condition, description, info = [*_fields(error, start), *[b"\x40"] * 3][:3]
        name, sentence = decode(condition)[0], decode(description)[0]
    except UndecodableMessage:
        return REJECTED
    if not isinstance(name, str):
        return REJECTED
    return Rejected(str(name), str(sentence) if isinstance(sentence, str) else None, _entries(info))


def read_transaction_id(delivery: Any) -> bytes | None:
    """Returns the id of the transaction that a transfer belongs to, or None."""
    if lib.pn_delivery_remote_state(delivery) != TRANSACTIONAL_CODE:
        return None
    encoded = data_bytes(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
    try:
        outcome = _outcome(TRANSACTIONAL_CODE, _fields(encoded, 0))
    except UndecodableMessage:
        return None
    return outcome.transaction_id if isinstance(outcome, Transactional) else None


# --- writing outcomes ------------------------------------------------------------------------


def write_outcome(delivery: Any, outcome: Outcome) -> int:
    """Fills in the local disposition of a delivery. Returns the code with which to update the delivery."""
    local = lib.pn_delivery_local(delivery)
    match outcome:
        case Accepted():
            return ACCEPTED_CODE
        case Released():
            return RELEASED_CODE
        case Rejected(condition=None):
            return _REJECTED_CODE
        case Rejected():
            condition = lib.pn_disposition_condition(local)
            lib.pn_condition_set_name(condition, (outcome.condition or "").encode())
            if outcome.description is not None:
                lib.pn_condition_set_description(condition, outcome.description.encode())
            set_data(lib.pn_condition_info(condition), _symbol_map(_info(outcome)))
            return _REJECTED_CODE
        case Modified():
            lib.pn_disposition_set_failed(local, outcome.delivery_failed)
            lib.pn_disposition_set_undeliverable(local, outcome.undeliverable_here)
            if outcome.annotations:
                set_data(lib.pn_disposition_annotations(local), _symbol_map(outcome.annotations))
            return _MODIFIED_CODE
        case Declared():
            set_data(lib.pn_disposition_data(local), encode([outcome.transaction_id]))
            return _DECLARED_CODE
        case Transactional():
            nested = b"\x40" if outcome.outcome is None else encode_state(outcome.outcome)
            fields = encode(outcome.transaction_id) + nested
            set_data(lib.pn_disposition_data(local), compound_of(0xC0, 2, fields))
            return TRANSACTIONAL_CODE
        case Received():
            return _RECEIVED_CODE


def _info(outcome: Rejected) -> Mapping[str, bytes]:
    """Returns the info map. It is never empty, for the same reason as in `WireError`."""
    return outcome.info or {"error-condition": encode_symbol(outcome.condition or "")}


def encode_state(outcome: Outcome) -> bytes:
    """Returns an outcome as a delivery state."""
    if outcome is ACCEPTED:  # nearly always
        return _ACCEPTED_STATE
    match outcome:
        case Rejected(condition=None):
            return _state(_REJECTED_CODE)
        case Rejected():
            description = encode(outcome.description)
            info = _symbol_map(_info(outcome))
            error = _state(_ERROR_CODE, encode_symbol(outcome.condition or ""), description, info)
            return _state(_REJECTED_CODE, error)
        case Modified():
            flags = [encode(outcome.delivery_failed), encode(outcome.undeliverable_here)]
            annotations = [_symbol_map(outcome.annotations)] if outcome.annotations else []
            return _state(_MODIFIED_CODE, *flags, *annotations)
        case Declared():
            return _state(_DECLARED_CODE, encode(outcome.transaction_id))
        case Transactional():
            nested = [] if outcome.outcome is None else [encode_state(outcome.outcome)]
            return _state(TRANSACTIONAL_CODE, encode(outcome.transaction_id), *nested)
        case Accepted():
            return _state(ACCEPTED_CODE)
        case Released():
            return _state(RELEASED_CODE)
        case Received():
            return _state(_RECEIVED_CODE)


def _state(code: int, *fields: bytes) -> bytes:
    """Returns a described list."""
    content = compound_of(0xC0, len(fields), b"".join(fields)) if fields else b"\x45"
    return section_start(code) + content


_ACCEPTED_STATE = _state(ACCEPTED_CODE)
