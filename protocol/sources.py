"""Where the protocols get the time and ids from.

Nothing under `protocol` asks the operating system for the time or for randomness: the broker process passes one
`ProtocolSources` to its AMQP connections and its HTTP server. A simulation passes its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from protocol.codec import PREFIX_BYTES, MessageIdGenerator
from protocol.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class ProtocolSources:
    """Time, ids and refusals of one broker."""

    real_ms: Callable[[], int]
    """Returns the real time in milliseconds since 1970, even where the broker's clock was advanced."""
    stopwatch_s: Callable[[], float]
    """Returns a time in seconds that only differences are taken of."""
    new_uuid: Callable[[], UUID]
    message_ids: MessageIdGenerator
    refusals: Refusals


def make_sources(
    real_ms: Callable[[], int],
    stopwatch_s: Callable[[], float],
    random_bytes: Callable[[int], bytes],
) -> ProtocolSources:
    """Returns the sources of a broker that has this clock and this randomness."""
    return ProtocolSources(
        real_ms=real_ms,
        stopwatch_s=stopwatch_s,
        new_uuid=lambda: UUID(bytes=random_bytes(16), version=4),
        message_ids=MessageIdGenerator(random_bytes(PREFIX_BYTES)),
        refusals=Refusals(real_ms),
    )
