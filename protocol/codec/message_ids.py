"""A message id for messages whose sender gave them none.

Owns when one is given and what it looks like; an id the sender chose is never touched.
Azure does the same and SDKs count on it: the JavaScript one cannot settle a message without an id.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

from protocol.codec.described_types import PROPERTIES_START
from protocol.codec.value_decoder import compound
from protocol.codec.value_encoder import compound_of

if TYPE_CHECKING:
    from broker.core.contract.message import Message

_SHORT_PROPERTIES = PROPERTIES_START + b"\xc0"
_NULL = 0x40
_STRING_OF_32 = b"\xa1\x20"

_PREFIX = os.urandom(8).hex().encode()
_numbers = count(1)
"""Together 32 hexadecimal digits, as a uuid has: unique without asking for randomness each time."""
_PROPERTIES_UP_TO_ID = PROPERTIES_START + b"\xc0\x23\x01" + _STRING_OF_32 + _PREFIX


def identify(messages: list[Message]) -> list[Message]:
    """These messages, each with an id from here on. Their sizes stay those of what was sent."""
    for message in messages:
        body = message.body
        assert body is not None, "a message that has just arrived is in memory"
        # Nearly every message has short properties that begin with its id, or none at all.
        if body[:3] != PROPERTIES_START:
            message.body = b"".join((_PROPERTIES_UP_TO_ID, b"%016x" % next(_numbers), body))
        elif body[3] != 0xC0 or not body[5] or body[6] == _NULL:
            message.body = _with_id(body)
    return messages


_LONGER_BY = len(_STRING_OF_32) + 32 - 1
"""An id where a null was."""


def _with_id(body: bytes) -> bytes:
    """A body whose properties may lack an id, with its own or a new one."""
    if body[3] == 0xC0 and body[5] and body[4] + _LONGER_BY < 0x100:
        # Short properties that stay short, as those of a message with nothing but a session id.
        size, count = body[4] + _LONGER_BY, body[5]
        return b"%b%c%c%b%b%016x%b" % (
            _SHORT_PROPERTIES,
            size,
            count,
            _STRING_OF_32,
            _PREFIX,
            next(_numbers),
            body[7:],
        )
    first, field_count, end = compound(body, 3)
    if field_count and body[first] != _NULL:
        return body
    fields = b"%b%b%016x%b" % (_STRING_OF_32, _PREFIX, next(_numbers), body[first + 1 : end])
    return PROPERTIES_START + compound_of(0xC0, field_count or 1, fields) + body[end:]
