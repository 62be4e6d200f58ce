"""Arguments of `$management` requests: from the body of a request to what a command takes.

The SDKs send different AMQP types for the same argument, and all of them are accepted. An argument that is missing
or has another type raises `ArgumentError` with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.core.contract.errors import ArgumentError, ArgumentOutOfRange, UndecodableMessage
from broker.core.contract.settlement_values import Settlement, SettlementKind
from config.model.limits import INT32_MAX
from protocol.codec import Array, encode, read_message

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from protocol.sources import ProtocolSources

DISPOSITIONS = {
    "completed": SettlementKind.COMPLETE,
    "abandoned": SettlementKind.ABANDON,
    "defered": SettlementKind.DEFER,  # spelled so by every SDK
    "deferred": SettlementKind.DEFER,
    "suspended": SettlementKind.DEAD_LETTER,
    "released": SettlementKind.RELEASE,
}


def items(body: dict[str, Any], name: str) -> list[Any]:
    """Returns the items of an array or a list: clients send both."""
    value = body.get(name)
    if isinstance(value, Array):
        return value.items
    if isinstance(value, list):
        return value
    raise ArgumentError(f"'{name}' must be an array.")


def integer(body: dict[str, Any], name: str, default: int | None = None) -> int:
    """Returns an integer."""
    value = body.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise ArgumentError(f"'{name}' must be an integer.")


def count(body: dict[str, Any], name: str, default: int, *, least: int = 0) -> int:
    """Returns a count. It must fit an AMQP int, because answers repeat it as one."""
    value = integer(body, name, default)
    if not least <= value <= INT32_MAX:
        raise ArgumentOutOfRange(f"'{name}' must be {least} to {INT32_MAX}.")
    return value


def integers(body: dict[str, Any], name: str) -> list[int]:
    """Returns integers, such as sequence numbers."""
    values = items(body, name)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise ArgumentError(f"'{name}' must hold integers.")
    return [int(value) for value in values]


def text(body: dict[str, Any], name: str) -> str:
    """Returns a string."""
    value = body.get(name)
    if isinstance(value, str):
        return str(value)
    raise ArgumentError(f"'{name}' must be a string.")


def optional_text(body: dict[str, Any], name: str) -> str | None:
    """Returns a string, or None if it is absent or null."""
    return None if body.get(name) is None else text(body, name)


def tokens(body: dict[str, Any]) -> list[bytes]:
    """Returns the lock tokens. There must be at least one."""
    found = []
    for item in items(body, "lock-tokens"):
        if isinstance(item, UUID):
            found.append(item.bytes)
            continue
        try:
            found.append(UUID(str(item)).bytes)
        except ValueError:
            raise ArgumentError(f"'{item}' is not a lock token: it must be a uuid.") from None
    if not found:
        raise ArgumentError("'lock-tokens' is empty.")
    return found


def locks_of(body: object) -> tuple[list[bytes], str | None]:
    """Returns the lock tokens and the session that a request names, as far as it does."""
    if not isinstance(body, dict):
        return [], None
    session_id = body.get("session-id")
    named = str(session_id) if isinstance(session_id, str) else None
    try:
        return tokens(body), named
    except ArgumentError:
        return [], named


def message(entry: object, sources: ProtocolSources) -> Message:
    """Returns the message of an entry in the list of messages to schedule."""
    data = entry.get("message") if isinstance(entry, dict) else None
    if not isinstance(data, bytes):
        raise ArgumentError("Each entry of 'messages' must be a map with a binary 'message'.")
    try:
        scheduled = read_message(data, sources.real_ms)
    except UndecodableMessage as error:
        raise ArgumentError(f"A message to schedule cannot be read: {error}") from error
    return sources.message_ids.identify([scheduled])[0]


def settlement(body: dict[str, Any]) -> Settlement:
    """Returns the settlement of locked messages."""
    status = str(body.get("disposition-status"))
    kind = DISPOSITIONS.get(status)
    if kind is None:
        allowed = ", ".join(DISPOSITIONS)
        raise ArgumentError(f"'{status}' is not a disposition-status: use one of {allowed}.")
    modified = body.get("properties-to-modify")
    properties = None
    if isinstance(modified, dict) and modified:
        properties = {str(name): encode(value) for name, value in modified.items()}
    return Settlement(
        kind,
        properties,
        optional_text(body, "deadletter-reason") or None,
        optional_text(body, "deadletter-description") or None,
    )
