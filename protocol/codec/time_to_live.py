"""The time to live of a message whose properties have an absolute expiry time.

The shorter of this and the time to live in the header counts. The core applies the entity's own limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.model.definitions import UNLIMITED_MS
from protocol.codec.value_decoder import decode, value_end
from protocol.codec.value_types import Timestamp, UInt

ABSOLUTE_EXPIRY_TIME, CREATION_TIME = 8, 9
BEYOND_HEADER_MS = 0xFFFFFFFF
"""The longest a header can say. The .NET SDK writes it when the properties hold a longer one."""
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest time of the SDKs."""


if TYPE_CHECKING:
    from collections.abc import Callable


def time_to_live(
    data: bytes, position: int, count: int, header_ms: int | None, real_ms: Callable[[], int]
) -> int | None:
    """Returns the time to live of a message whose `count` checked properties begin at `position`.

    It is the time from creation to expiry: the clocks of some clients are hours away from the broker's. Without
    a creation time it is the time from now to expiry. `real_ms` returns the real time, which the sender used.
    """
    for _ in range(ABSOLUTE_EXPIRY_TIME):
        position = value_end(data, position)
    expiry_ms, position = decode(data, position)
    if not isinstance(expiry_ms, Timestamp):
        return header_ms
    created_ms = decode(data, position)[0] if count > CREATION_TIME else None
    if not isinstance(created_ms, Timestamp):
        created_ms = Timestamp(real_ms())
    live_ms = max(expiry_ms - created_ms, 1)
    if live_ms >= UNLIMITED_MS:
        return header_ms
    if header_ms is None or header_ms == BEYOND_HEADER_MS:
        return live_ms
    return min(header_ms, live_ms)


def write_time_to_live(properties: list[object], time_to_live_ms: int, now_ms: int) -> UInt:
    """Returns the time to live in the header of a new message. A longer one than a header can say becomes an expiry
    time among the fields of the properties, as SDKs write it."""
    if time_to_live_ms > BEYOND_HEADER_MS:
        properties[ABSOLUTE_EXPIRY_TIME] = Timestamp(min(now_ms + time_to_live_ms, LATEST_MS))
        properties[CREATION_TIME] = Timestamp(now_ms)
    return UInt(min(time_to_live_ms, BEYOND_HEADER_MS))
