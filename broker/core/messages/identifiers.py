"""Ids of messages and entities, and lock tokens. None is ever used twice.

The random bytes of lock tokens come from outside.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKENS = Struct("16s" * 256)
"""As many tokens as are made from random bytes at once."""


class MessageIds:
    """Ids of messages, payloads and entities, shared by all namespaces of a broker."""

    __slots__ = ("next_entity_id", "next_message_id")

    def __init__(self) -> None:
        self.next_message_id = 1
        self.next_entity_id = 1

    def take_messages(self, count: int) -> int:
        """Reserve consecutive message ids. Returns the first."""
        first = self.next_message_id
        self.next_message_id = first + count
        return first

    def take_entity(self) -> int:
        """Reserve one entity id."""
        entity_id = self.next_entity_id
        self.next_entity_id = entity_id + 1
        return entity_id

    def skip(self, *, message_id: int = 0, entity_id: int = 0) -> None:
        """Never use these or lower ids: the store has them."""
        self.next_message_id = max(self.next_message_id, message_id + 1)
        self.next_entity_id = max(self.next_entity_id, entity_id + 1)


def lock_tokens(random_bytes: Callable[[int], bytes]) -> Callable[[int], list[bytes]]:
    """Returns a function that creates so many tokens of 16 bytes. It reads random bytes for many at
    once."""
    spare: list[bytes] = []

    def tokens(count: int) -> list[bytes]:
        while len(spare) < count:
            spare.extend(_TOKENS.unpack(random_bytes(_TOKENS.size)))
        start = len(spare) - count
        taken = spare[start:]
        del spare[start:]
        return taken

    return tokens
