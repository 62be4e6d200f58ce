"""How a refusal is worded, counted and traced, the same on every protocol.

Each gets a tracking id that stands in the text the client sees. The log has the id of the first of
like refusals and, with their number, of the last; all but the last group of the id is common to
them, so that a user's report leads to the event.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.core.contract.errors import EntityNotFound
from protocol.repeated_events import repeats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.errors import BrokerError

log = structlog.get_logger("peeklock.refusal")


_DIGITS = re.compile(r"\d+")
"""Sizes and numbers do not make a refusal another kind."""

_counts: Counter[str] = Counter()


def refusal_counts() -> Mapping[str, int]:
    """How many operations this process has refused, by condition: a fixed set of words."""
    return _counts


class Refusal(NamedTuple):
    """A refusal ready to be put on a wire."""

    condition: str
    text: str
    tracking_id: str
    status: int


def refuse(error: BrokerError, *, entity: str = "", operation: str = "", host: str = "") -> Refusal:
    """Word an error for a client, count it, and log it under the same tracking id.

    With the host that the client named, a missing entity is called `sb://host/path`, as the service
    calls it: SDK users and the JavaScript SDK's own tests compare that.
    """
    if host and isinstance(error, EntityNotFound) and "://" not in error.path:
        error = EntityNotFound(f"sb://{host}/{error.path}")
    _counts[error.condition] += 1
    reason = str(error)
    tracking_id = repeats.note(
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
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    text = (
        f"{reason} TrackingId:{tracking_id}_G0, SystemTracker:peeklock:{entity or 'gateway'}, "
        f"Timestamp:{timestamp}"
    )
    return Refusal(error.condition, text, tracking_id, error.status)
