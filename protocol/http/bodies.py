"""Request bodies, read whole but never more than is allowed.

Counts what arrives, so that neither a false Content-Length nor a compressed body gets past.
"""

from __future__ import annotations

from aiohttp import web

from broker.core.errors import ArgumentError
from protocol.http.errors import BodyTooLarge


async def read(request: web.Request, max_bytes: int) -> bytes:
    """The body; raises `BodyTooLarge`, or `ArgumentError` where it breaks off or is garbled."""
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except web.RequestPayloadError as error:
        raise ArgumentError(f"The request body could not be read: {error}") from None
    return bytes(body)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
