"""How a refusal is worded and traced, the same on every protocol.

Each gets a tracking id that stands in the text the client sees and in our log, so that a user's
report leads to the event.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.core.errors import EntityNotFound

if TYPE_CHECKING:
    from broker.core.errors import BrokerError

log = structlog.get_logger("peeklock.refusal")


class Refusal(NamedTuple):
    """A refusal ready to be put on a wire."""

    condition: str
    text: str
    tracking_id: str
    status: int


def refuse(error: BrokerError, *, entity: str = "", operation: str = "", host: str = "") -> Refusal:
    """Word an error for a client and log it under the same tracking id.

    With the host that the client named, a missing entity is called `sb://host/path`, as the service
    calls it: SDK users and the JavaScript SDK's own tests compare that.
    """
    if host and isinstance(error, EntityNotFound) and "://" not in error.path:
        error = EntityNotFound(f"sb://{host}/{error.path}")
    tracking_id = str(uuid.uuid4())
    log.info(
        "refused",
        operation=operation,
        entity=entity,
        condition=error.condition,
        reason=str(error),
        tracking_id=tracking_id,
    )
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    text = (
        f"{error} TrackingId:{tracking_id}_G0, SystemTracker:peeklock:{entity or 'gateway'}, "
        f"Timestamp:{timestamp}"
    )
    return Refusal(error.condition, text, tracking_id, error.status)
