"""Message ids for messages whose sender gave them none.

An id that the sender chose is never changed. Azure does the same and SDKs rely on it: the JavaScript SDK cannot
settle a message without an id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.native import compiled

if TYPE_CHECKING:
    from broker.core.contract.message import Message

PREFIX_BYTES = 8


class MessageIdGenerator:
    """Makes the message ids of one broker.

    An id has 32 hexadecimal digits, as a uuid without hyphens: a random prefix, which is different in every
    process, and a number. So no randomness is needed per message.
    """

    __slots__ = ("_number", "_prefix")

    def __init__(self, prefix: bytes) -> None:
        if len(prefix) != PREFIX_BYTES:
            raise ValueError(f"the prefix must have {PREFIX_BYTES} bytes")
        self._prefix = prefix.hex().encode()
        self._number = 1

    def identify(self, messages: list[Message]) -> list[Message]:
        """Gives an id to each of these messages that has none, and returns them. Their sizes stay those of
        the messages as they were sent."""
        self._number = compiled.give_ids(messages, self._prefix, self._number)
        return messages
