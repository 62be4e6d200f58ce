"""A message id for messages whose sender gave them none.

Owns when one is given and what it looks like; an id the sender chose is never touched.
Azure does the same and SDKs count on it: the JavaScript one cannot settle a message without an id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from protocol.amqp.values import compound, compound_of

if TYPE_CHECKING:
    from broker.core.message import Message

_PROPERTIES = b"\x00\x53\x73"
_NULL = 0x40
_STRING_OF_32 = b"\xa1\x20"


def identify(messages: list[Message]) -> list[Message]:
    """These messages, each with an id from here on."""
    for message in messages:
        body = message.body
        assert body is not None, "a message that has just arrived is in memory"
        # Nearly every message has short properties that begin with its id.
        if body[:4] == b"\x00\x53\x73\xc0" and body[5] and body[6] != 0x40:
            continue
        identified = _with_id(body)
        message.size += len(identified) - len(body)
        message.body = identified
    return messages


def _with_id(body: bytes) -> bytes:
    """A canonical body with a message id, its own or a new one: a uuid without its dashes."""
    first, count, end = compound(body, 3) if body.startswith(_PROPERTIES) else (0, 0, 0)
    if count and body[first] != _NULL:
        return body
    fields = _STRING_OF_32 + os.urandom(16).hex().encode() + body[first + 1 : end]
    return _PROPERTIES + compound_of(0xC0, count or 1, fields) + body[end:]
