"""Logs dead letters.

The first ones of an entity get a line each. The others within a time window are summarized in one
line with their count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.turn import DeadLettered

log = structlog.get_logger("peeklock.dead_letters")

LINES_MAX = 20
"""Lines for each entity in one window."""


def log_dead_letters(all_dead_lettered: Iterable[DeadLettered]) -> None:
    """Logs dead-lettered messages. Called when they are durable."""
    for dead_lettered in all_dead_lettered:
        namespace, path = dead_lettered.namespace, dead_lettered.path
        untold = dead_lettered.message_count - len(dead_lettered.first)
        for message in dead_lettered.first:
            trace: dict[str, Any] = (
                {} if message.trace_id is None else {"trace_id": message.trace_id}
            )
            repeated_events.note(
                log.info,
                "dead_lettered",
                (namespace, path),
                at_once_max=LINES_MAX,
                entity=path,
                namespace=namespace,
                message_id=message.message_id,
                sequence_number=message.sequence_number,
                delivery_count=message.delivery_count,
                reason=dead_lettered.reason,
                more=untold,
                **trace,
            )
            untold = 0
