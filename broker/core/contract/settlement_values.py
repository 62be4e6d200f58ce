"""Receive modes and settlements: how a receiver takes messages and what it does with a locked one.

Values only. `queues/settlement.py` applies them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ReceiveMode(Enum):
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class SettlementKind(Enum):
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"
    """Unlock the message without counting a failed delivery."""


class Settlement(NamedTuple):
    """What a receiver does with a locked message."""

    kind: SettlementKind
    properties: Mapping[str, bytes | None] | None = None
    """Application properties to set, with encoded values. None removes a property."""
    reason: str | None = None
    description: str | None = None


COMPLETE = Settlement(SettlementKind.COMPLETE)
ABANDON = Settlement(SettlementKind.ABANDON)
DEFER = Settlement(SettlementKind.DEFER)
DEAD_LETTER = Settlement(SettlementKind.DEAD_LETTER)
RELEASE = Settlement(SettlementKind.RELEASE)
