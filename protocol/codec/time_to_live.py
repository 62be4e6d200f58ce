"""How long a sender lets a message live, where its properties say so.

Owns what the expiry in the properties means beside the time to live in the header; how long an
entity lets messages live is the core's. The shorter of the two counts.
"""

from __future__ import annotations

import time

from config.model.definitions import UNLIMITED_MS
from protocol.codec.value_decoder import decode, value_end
from protocol.codec.value_types import Timestamp

ABSOLUTE_EXPIRY_TIME, CREATION_TIME = 8, 9
BEYOND_HEADER_MS = 0xFFFFFFFF
"""The longest a header can say. The .NET SDK writes it when the properties hold a longer one."""


def time_to_live(data: bytes, position: int, count: int, header_ms: int | None) -> int | None:
    """The time to live of a message whose `count` checked properties begin at a position.

    Counted from the creation time beside the expiry: some clients date both by a clock that is
    hours away from ours. Without one, from now by the real time, which the sender went by.
    """
    for _ in range(ABSOLUTE_EXPIRY_TIME):
        position = value_end(data, position)
    expiry_ms, position = decode(data, position)
    if not isinstance(expiry_ms, Timestamp):
        return header_ms
    created_ms = decode(data, position)[0] if count > CREATION_TIME else None
    if not isinstance(created_ms, Timestamp):
        created_ms = Timestamp(time.time() * 1000)
    live_ms = max(expiry_ms - created_ms, 1)
    if live_ms >= UNLIMITED_MS:
        return header_ms
    if header_ms is None or header_ms == BEYOND_HEADER_MS:
        return live_ms
    return min(header_ms, live_ms)
