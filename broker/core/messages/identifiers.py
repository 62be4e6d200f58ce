"""Ids of messages and entities, and lock tokens. None is ever used twice.

The random bytes of lock tokens come from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TOKEN_BYTES = 16
_TOKENS_AT_ONCE = 256


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


def lock_tokens(random_bytes: Callable[[int], bytes]) -> Callable[[], bytes]:
    """Returns a function that creates 16-byte tokens. It reads random bytes for many at once."""

    def tokens() -> Iterator[bytes]:
        while True:
            block = random_bytes(_TOKEN_BYTES * _TOKENS_AT_ONCE)
            for start in range(0, len(block), _TOKEN_BYTES):
                yield block[start : start + _TOKEN_BYTES]

    return tokens().__next__
