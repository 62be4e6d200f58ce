"""Delivery outcomes and errors, read from and written to Proton deliveries.

What an outcome means to Service Bus is in `outcome_mapping.py`. Values of info and annotation maps stay encoded. An
outcome without details is always the same object, so that outcomes can be grouped by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    Described,
    DescribedType,
    Symbol,
    ULong,
    code_of,
    decode,
    encode,
    encode_map_entries,
    encode_string,
    encode_symbol,
    map_entries,
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


def set_condition(condition: Any, error: WireError) -> None:
    """Sets the condition of a link, a connection or a transport."""
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, error.description.encode())
    set_info(condition, error.info)


def set_info(condition: Any, info: Mapping[str, str]) -> None:
    """Sets the info map of a condition."""
    set_data(lib.pn_condition_info(condition), _symbol_map(_encoded_texts(info)))


def _encoded_texts(info: Mapping[str, str]) -> dict[str, bytes]:
    return {key: encode_string(value) for key, value in info.items()}


def rejected(error: WireError) -> Rejected:
    """Returns the outcome that has an error."""
    return Rejected(error.condition, error.description, _encoded_texts(error.info))


def _symbol_map(entries: Mapping[str, bytes]) -> bytes:
    return encode_map_entries(entries, encode_symbol)


def _entries(encoded: bytes) -> dict[str, bytes] | None:
    """Returns the entries of a map, or None if it is absent, empty or not a map."""
    if not encoded or encoded[0] not in (0xC1, 0xD1):
        return None
    try:
        return map_entries(encoded) or None
    except UndecodableMessage:
        return None


# --- reading outcomes of the client -----------------------------------------------------------------


def read_outcome(delivery: Any, state: int) -> Outcome | None:
    """Returns the outcome that the client sent for a delivery, or None if it sent none that is known."""
    if state == ACCEPTED_CODE:
        return ACCEPTED
    if state == RELEASED_CODE:
        return RELEASED
    if state == _RECEIVED_CODE:
        return RECEIVED
    remote = lib.pn_delivery_remote(delivery)
    if state == _REJECTED_CODE:
        return _read_rejected(remote)
    if state == _MODIFIED_CODE:
        failed = bool(lib.pn_disposition_is_failed(remote))
        undeliverable = bool(lib.pn_disposition_is_undeliverable(remote))
        annotations = _entries(data_bytes(lib.pn_disposition_annotations(remote)))
        if annotations is None:
            return MODIFIED[failed, undeliverable]
        return Modified(failed, undeliverable, annotations)
    if state == TRANSACTIONAL_CODE:
        return _decode_transactional(data_bytes(lib.pn_disposition_data(remote)))
    return None


def read_transaction_id(delivery: Any) -> bytes | None:
    """Returns the id of the transaction that a transfer or an outcome belongs to, or None."""
    if lib.pn_delivery_remote_state(delivery) != TRANSACTIONAL_CODE:
        return None
    outcome = _decode_transactional(
        data_bytes(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
    )
    return None if outcome is None else outcome.transaction_id


def _read_rejected(remote: Any) -> Rejected:
    condition = lib.pn_disposition_condition(remote)
    if not lib.pn_condition_is_set(condition):
        return REJECTED
    return Rejected(
        text(lib.pn_condition_get_name(condition)),
        text(lib.pn_condition_get_description(condition)),
        _entries(data_bytes(lib.pn_condition_info(condition))),
    )


def _decode_transactional(encoded: bytes) -> Transactional | None:
    """Returns a transactional state with its nested outcome, or None if it is malformed."""
    fields = _fields(encoded)
    if not fields or not isinstance(fields[0], bytes):
        return None
    nested = fields[1] if len(fields) > 1 else None
    return Transactional(fields[0], _decode_outcome(nested))


def _fields(encoded: bytes) -> list[object] | None:
    try:
        value = decode(encoded)[0]
    except UndecodableMessage:
        return None
    return value if isinstance(value, list) else None


def _decode_outcome(value: object) -> Outcome | None:
    if not isinstance(value, Described) or not isinstance(value.value, list):
        return None
    code = code_of(value.descriptor)
    fields = [*value.value, None, None, None]
    if code == ACCEPTED_CODE:
        return ACCEPTED
    if code == RELEASED_CODE:
        return RELEASED
    if code == _REJECTED_CODE:
        return _decode_rejected(fields[0])
    if code == _MODIFIED_CODE:
        flags = (fields[0] is True, fields[1] is True)
        annotations = _encoded_entries(fields[2])
        return MODIFIED[flags] if annotations is None else Modified(*flags, annotations)
    return None


def _decode_rejected(error: object) -> Rejected:
    if not isinstance(error, Described) or not isinstance(error.value, list):
        return REJECTED
    condition, description, info = [*error.value, None, None, None][:3]
    return Rejected(
        str(condition) if condition is not None else None,
        str(description) if description is not None else None,
        _encoded_entries(info),
    )


def _encoded_entries(value: object) -> dict[str, bytes] | None:
    if not isinstance(value, dict) or not value:
        return None
    return {str(key): encode(item) for key, item in value.items()}


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
            nested = None if outcome.outcome is None else _described(outcome.outcome)
            set_data(lib.pn_disposition_data(local), encode([outcome.transaction_id, nested]))
            return TRANSACTIONAL_CODE
        case Received():
            return _RECEIVED_CODE


def _info(outcome: Rejected) -> Mapping[str, bytes]:
    """Returns the info map. It is never empty, for the same reason as in `WireError`."""
    return outcome.info or {"error-condition": encode_symbol(outcome.condition or "")}


def _described(outcome: Outcome) -> Described:
    """Returns an outcome as it is nested in a transactional state."""
    match outcome:
        case Rejected(condition=None):
            return Described(ULong(_REJECTED_CODE), [])
        case Rejected():
            error = [Symbol(outcome.condition), outcome.description, _decoded(_info(outcome))]
            return Described(ULong(_REJECTED_CODE), [Described(ULong(_ERROR_CODE), error)])
        case Modified():
            fields = [outcome.delivery_failed, outcome.undeliverable_here]
            annotations = [_decoded(outcome.annotations)] if outcome.annotations else []
            return Described(ULong(_MODIFIED_CODE), [*fields, *annotations])
        case Released():
            return Described(ULong(RELEASED_CODE), [])
        case _:
            return Described(ULong(ACCEPTED_CODE), [])


def _decoded(entries: Mapping[str, bytes]) -> dict[Symbol, object]:
    return {Symbol(key): decode(value)[0] for key, value in entries.items()}
