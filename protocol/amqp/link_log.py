"""Links that come and go, in the log at debug: who wants to know which client uses an entity looks
here. Refused ones are logged as refusals are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from protocol.amqp.endpoints import EngineLink

log = structlog.get_logger("peeklock.links")


def log_attached(link: EngineLink) -> None:
    """A link is granted."""
    log.debug("link.attached", **_fields(link))


def log_detached(link: EngineLink) -> None:
    """A link is gone, whoever ended it; one that was never granted has no line."""
    if link.granted:
        log.debug("link.detached", sent=link.sent, received=link.received, **_fields(link))


def _fields(link: EngineLink) -> dict[str, object]:
    return {
        "entity": link.address,
        "role": "sender" if link.is_receiver else "receiver",  # as the client calls itself
        "container": link.container_id,
        "link": link.name,
    }
