"""Request bodies, read whole but never more than is allowed, and not at any pace.

Counts what arrives, so that neither a false Content-Length nor a compressed body gets past.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from broker.core.contract.errors import ArgumentError
from protocol.http.error_responses import BodyTooLarge, RequestTooSlow

SILENCE_MAX_S = 30.0
"""How long a body may stand still."""
SLOWEST_BYTES_PER_S = 1024
"""A body that arrives more slowly than this, a byte now and then, is not waited for."""


async def read(request: web.Request, max_bytes: int) -> bytes:
    """The body; raises `BodyTooLarge`, `RequestTooSlow`, or `ArgumentError` where it is garbled."""
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        while True:
            earned_s = len(body) / SLOWEST_BYTES_PER_S
            until_s = min(loop.time(), began_s + earned_s) + SILENCE_MAX_S
            async with asyncio.timeout_at(until_s):
                chunk = await request.content.readany()
            if not chunk:
                break
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except TimeoutError:
        raise RequestTooSlow(
            f"Nothing more came of the body within {SILENCE_MAX_S:.0f} s."
        ) from None
    except web.RequestPayloadError as error:
        raise ArgumentError(f"The request body could not be read: {error}") from None
    return bytes(body)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
