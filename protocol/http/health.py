"""The answer to `GET /health`, which orchestrators and scripts ask again and again until the broker is ready.

It is written here without aiohttp, too: a broker whose only HTTP requests are these never loads aiohttp, which takes a
quarter of its start time and of its memory. The body is that of the official emulator, and says why the broker is not
ready.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

HEALTHY = '{"status":"healthy","message":"Service is healthy."}'
UNHEALTHY = "Service not available. Please try after some time."
CONTENT_TYPE = "application/json"

_END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = b"GET /health HTTP/1."
_HAS_BODY = re.compile(
    rb"\r\n(?:content-length|transfer-encoding|upgrade|expect)[ \t]*:", re.IGNORECASE
)


class Health(NamedTuple):
    """A status and a body."""

    status: int
    text: str


def health(not_serving: tuple[str, str] | None) -> Health:
    """Returns 200 if the broker is ready. Otherwise there is a reason: a word and a sentence."""
    if not_serving is None:
        return Health(200, HEALTHY)
    reason, detail = not_serving
    body = {"status": "unhealthy", "message": UNHEALTHY, "reason": reason, "detail": detail}
    return Health(503, json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def may_be_health_request(data: bytes) -> bool:
    """Returns whether a connection that begins with these bytes may ask for the health."""
    return data.startswith(_REQUEST_LINE) or _REQUEST_LINE.startswith(data)


def is_health_request(data: bytes) -> bool:
    """Returns whether the bytes are one whole request for the health, without a body and without another request
    behind it."""
    head, end, rest = data.partition(_END_OF_HEAD)
    request_line = head.partition(b"\r\n")[0]
    return (
        bool(end)
        and not rest
        and request_line in (_REQUEST_LINE + b"1", _REQUEST_LINE + b"0")
        and _HAS_BODY.search(head) is None
    )


def is_whole_head(data: bytes) -> bool:
    """Returns whether the head of the request has arrived."""
    return _END_OF_HEAD in data


def response(not_serving: tuple[str, str] | None) -> bytes:
    """Returns the whole answer. The connection ends with it."""
    status, text = health(not_serving)
    reason = "OK" if status == 200 else "Service Unavailable"
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {CONTENT_TYPE}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
