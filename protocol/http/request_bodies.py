"""Reads request bodies, with a limit on their size and a minimum speed.

The limit applies to the bytes that arrive, so a wrong Content-Length or a compressed body does not pass it.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from broker.core.contract.errors import ArgumentError
from protocol.http.error_responses import BodyTooLarge, RequestTooSlow

SILENCE_MAX_S = 30.0
"""How long no byte of a body may arrive."""
SLOWEST_BYTES_PER_S = 1024
"""A body that arrives more slowly than this is refused."""


async def read(request: web.Request, max_bytes: int) -> bytes:
    """Returns the body. Raises `BodyTooLarge`, `RequestTooSlow`, or `ArgumentError` if it is malformed."""
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
        raise RequestTooSlow(f"No more of the body arrived within {SILENCE_MAX_S:.0f} s.") from None
    except web.RequestPayloadError as error:
        raise ArgumentError(f"The request body could not be read: {error}") from None
    return bytes(body)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
