"""Changes to a message after it was sent. They are stored beside its body.

Settlements set application properties, dead-lettering sets a reason, forwarding sets a source, and rule
actions set both kinds of properties. The stored body is never rewritten: the protocol merges the changes
when it delivers the message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class MessageChanges:
    """Changes to a stored message. The protocol encodes the values; the core does not read them."""

    properties: Mapping[str, bytes | None] = field(default_factory=dict)
    """Application properties to set. None removes a property."""
    system: Mapping[str, bytes | None] = field(default_factory=dict)
    """`sys.*` properties that rule actions set, by lower-case name. None removes a property."""
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_letter_source: str | None = None
    """Path of the entity that dead-lettered it. Set when the dead letter is forwarded."""
    hops: int = 0
    """How many times it was auto-forwarded."""

    def with_properties(self, properties: Mapping[str, bytes | None]) -> MessageChanges:
        """Returns these changes with more application properties. The reason and the description of a dead letter
        are application properties as well, so they can be set or removed later."""
        reason, description = self.dead_letter_reason, self.dead_letter_description
        return replace(
            self,
            properties={**self.properties, **properties},
            dead_letter_reason=None if "DeadLetterReason" in properties else reason,
            dead_letter_description=(
                None if "DeadLetterErrorDescription" in properties else description
            ),
        )

    def to_bytes(self) -> bytes:
        """Returns the form for the store: length-prefixed fields in a fixed order."""
        parts: list[bytes] = [struct.pack(">BI", 1, self.hops)]
        for text in (
            self.dead_letter_reason,
            self.dead_letter_description,
            self.dead_letter_source,
        ):
            _put(parts, None if text is None else _encoded(text))
        for mapping in (self.properties, self.system):
            parts.append(_LENGTH.pack(len(mapping)))
            for name, value in mapping.items():
                _put(parts, _encoded(name))
                _put(parts, value)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> MessageChanges:
        """The inverse of `to_bytes`."""
        version, hops = struct.unpack_from(">BI", data)
        if version != 1:
            raise ValueError(f"changes version {version} is unknown")
        position = 5
        texts: list[str | None] = []
        for _ in range(3):
            raw, position = _take(data, position)
            texts.append(None if raw is None else raw.decode())
        mappings: list[dict[str, bytes | None]] = []
        for _ in range(2):
            (count,) = _LENGTH.unpack_from(data, position)
            position += 4
            mapping: dict[str, bytes | None] = {}
            for _ in range(count):
                name, position = _take(data, position)
                value, position = _take(data, position)
                mapping[(name or b"").decode()] = value
            mappings.append(mapping)
        return cls(mappings[0], mappings[1], texts[0], texts[1], texts[2], hops)


EMPTY = MessageChanges()

_ABSENT = 0xFFFFFFFF


def _encoded(text: str) -> bytes:
    """Returns text for the store. The protocols let no half of a surrogate pair in; one that came in all the same must
    not fail the turn of all clients."""
    return text.encode("utf-8", "replace")


def _put(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(_LENGTH.pack(_ABSENT))
    else:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)


def _take(data: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length == _ABSENT:
        return None, position
    return data[position : position + length], position + length
