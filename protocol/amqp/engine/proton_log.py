"""Writes Proton's own messages to the broker's log instead of standard error."""

from __future__ import annotations

from typing import Any

import structlog
from cproton_ffi import ffi, lib

from protocol.repeated_events import repeated_events

log = structlog.get_logger("peeklock.proton")

_MESSAGE_MAX_BYTES = 2048


def _log_message(_: Any, message: Any) -> None:
    """Logs a message of Proton, which begins with its level: `WARNING: …`."""
    text = ffi.string(message, _MESSAGE_MAX_BYTES).decode("utf-8", "replace")
    level, _, reason = text.partition(": ")
    if level in ("CRITICAL", "ERROR"):
        repeated_events.note(log.error, "proton.error", reason, reason=reason)
    elif level == "WARNING":
        repeated_events.note(log.warning, "proton.warning", reason, reason=reason)
    else:
        log.debug("proton.trace", level=level, reason=reason)


_tracer = ffi.callback("void(pn_transport_t *, const char *)", _log_message)


def redirect_proton_log(transport: Any) -> None:
    """Writes the messages of a transport to the broker's log."""
    lib.pn_transport_set_tracer(transport, _tracer)
