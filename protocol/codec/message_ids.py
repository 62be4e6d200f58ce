"""Message ids for messages whose sender gave them none.

An id that the sender chose is never changed. Azure does the same and SDKs rely on it: the JavaScript SDK cannot
settle a message without an id.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from protocol.codec.described_types import PROPERTIES_START
from protocol.codec.value_decoder import compound
from protocol.codec.value_encoder import compound_of

if TYPE_CHECKING:
    from broker.core.contract.message import Message

PREFIX_BYTES = 8

_SHORT_PROPERTIES = PROPERTIES_START + b"\xc0"
_NULL = 0x40
_STRING_OF_32 = b"\xa1\x20"
_LONGER_BY = len(_STRING_OF_32) + 32 - 1
"""How much longer properties are with an id in place of a null."""


class MessageIdGenerator:
    """Makes the message ids of one broker.

    An id has 32 hexadecimal digits, as a uuid without hyphens: a random prefix, which is different in every
    process, and a number. So no randomness is needed per message.
    """

    __slots__ = ("_numbers", "_prefix", "_properties_up_to_number")

    def __init__(self, prefix: bytes) -> None:
        if len(prefix) != PREFIX_BYTES:
            raise ValueError(f"the prefix must have {PREFIX_BYTES} bytes")
        self._prefix = prefix.hex().encode()
        self._numbers = count(1)
        self._properties_up_to_number = (
            PROPERTIES_START + b"\xc0\x23\x01" + _STRING_OF_32 + self._prefix
        )

    def identify(self, messages: list[Message]) -> list[Message]:
        """Gives an id to each of these messages that has none, and returns them. Their sizes stay those of
        the messages as they were sent."""
        for message in messages:
            body = message.body
            assert body is not None, "a message that has just arrived is in memory"
            # Nearly every message has short properties that begin with its id, or none at all.
            if body[:3] != PROPERTIES_START:
                message.body = b"".join(
                    (self._properties_up_to_number, b"%016x" % next(self._numbers), body)
                )
            elif body[3] != 0xC0 or not body[5] or body[6] == _NULL:
                message.body = self._with_id(body)
        return messages

    def _with_id(self, body: bytes) -> bytes:
        """Returns a body whose properties have an id: a new one if they have none."""
        if body[3] == 0xC0 and body[5] and body[4] + _LONGER_BY < 0x100:
            # Short properties that stay short, as those of a message with nothing but a session id.
            size, field_count = body[4] + _LONGER_BY, body[5]
            return b"%b%c%c%b%b%016x%b" % (
                _SHORT_PROPERTIES,
                size,
                field_count,
                _STRING_OF_32,
                self._prefix,
                next(self._numbers),
                body[7:],
            )
        first, field_count, end = compound(body, 3)
        if field_count and body[first] != _NULL:
            return body
        number = next(self._numbers)
        fields = b"%b%b%016x%b" % (_STRING_OF_32, self._prefix, number, body[first + 1 : end])
        return PROPERTIES_START + compound_of(0xC0, field_count or 1, fields) + body[end:]
