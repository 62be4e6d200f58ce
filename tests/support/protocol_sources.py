"""Time and ids of the operating system, for tests that do not depend on their values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from broker.app.runtime.clock import Clock
from config.model.limits import RELAXED
from protocol import codec
from protocol.sources import ProtocolSources, make_sources

if TYPE_CHECKING:
    from broker.core.contract.message import Message


def system_sources() -> ProtocolSources:
    """Returns the sources that the broker process uses."""
    return make_sources(Clock.real_ms, Clock.stopwatch_s, os.urandom)


def read_message(data: bytes) -> Message:
    """`codec.read_message` with the real time."""
    return codec.read_message(data, Clock.real_ms)


def read_batch(
    data: bytes, max_messages: int = RELAXED.batch_max_messages
) -> tuple[list[Message], int]:
    """`codec.read_batch` with the real time."""
    return codec.read_batch(data, Clock.real_ms, max_messages)
