"""How a refusal is worded, counted and logged, the same on every protocol.

Each refusal has a tracking id, which is in the text that the client gets. Similar refusals are logged once, with the
id of the first, and once more with their number and the id of the last. Their ids differ only in the last group, so
that the id in a user's report leads to the log lines.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.core.contract.errors import EntityNotFound
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.errors import BrokerError

log = structlog.get_logger("peeklock.refusal")

_DIGITS = re.compile(r"\d+")
"""Refusals that differ only in sizes and numbers are similar."""


class Refusal(NamedTuple):
    """A refusal as it is sent to a client."""

    condition: str
    text: str
    tracking_id: str
    status: int


class Refusals:
    """Words and counts the refusals of one broker."""

    __slots__ = ("_real_ms", "counts")

    def __init__(self, real_ms: Callable[[], int]) -> None:
        self._real_ms = real_ms
        self.counts: Counter[str] = Counter()
        """How many operations were refused, by condition. Conditions are a fixed set."""

    def refuse(
        self, error: BrokerError, *, entity: str = "", operation: str = "", host: str = ""
    ) -> Refusal:
        """Words an error for a client, counts it, and logs it under the same tracking id.

        With the host that the client named, a missing entity is called `sb://host/path`, as the service
        calls it: SDK users and the JavaScript SDK's own tests compare that.
        """
        if host and isinstance(error, EntityNotFound) and "://" not in error.path:
            error = EntityNotFound(f"sb://{host}/{error.path}")
        self.counts[error.condition] += 1
        reason = str(error)
        tracking_id = repeated_events.note(
            log.info,
            "refused",
            (entity.lower(), operation, error.condition, _DIGITS.sub("#", reason)),
            wider_kind=error.condition,
            tracked=True,
            operation=operation,
            entity=entity,
            condition=error.condition,
            reason=reason,
        )
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._real_ms() / 1000))
        text = (
            f"{reason} TrackingId:{tracking_id}_G0, SystemTracker:peeklock:{entity or 'gateway'}, "
            f"Timestamp:{timestamp}"
        )
        return Refusal(error.condition, text, tracking_id, error.status)
