"""Logs at debug level which links are attached and detached.

This shows which client uses an entity. Refused links are logged as refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import EngineLink

log = structlog.get_logger("peeklock.links")


def log_attached(link: EngineLink) -> None:
    """Log a granted link."""
    log.debug("link.attached", **_fields(link))


def log_detached(link: EngineLink) -> None:
    """Log the end of a granted link. Either side may have ended it."""
    log.debug("link.detached", sent=link.sent, received=link.received, **_fields(link))


def _fields(link: EngineLink) -> dict[str, object]:
    return {
        "entity": link.address,
        "role": "sender" if link.is_receiver else "receiver",  # as the client calls itself
        "container": link.container_id,
        "link": link.name,
    }
