"""How a refusal leaves over HTTP: status, sub-code and a sentence, in the Atom API's error body.

Which refusals exist is `broker.core.errors`' business; `protocol.refusals` words and logs them.
Every answer of 400 and above from the entity routes has this body, whatever went wrong.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from broker.core.errors import BrokerError
from protocol.http import atom
from protocol.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger("peeklock.http")

CONTENT_TYPE = "application/xml"

REASONS = {
    400: "Bad Request.",
    401: "Unauthorized.",
    403: "Forbidden.",
    404: "Not Found.",
    405: "Method Not Allowed.",
    408: "Request Timeout.",
    409: "Conflict.",
    410: "Gone.",
    411: "Length Required.",
    413: "Payload Too Large.",
    415: "Unsupported Media Type.",
    500: "Internal Server Error.",
    501: "Not Implemented.",
    503: "Service Unavailable.",
}


class BodyTooLarge(BrokerError):
    """The request is bigger than anything that could be meant here."""

    condition = "amqp:link:message-size-exceeded"
    status = 413


class MethodNotAllowed(BrokerError):
    """The thing is there, but not for this verb."""

    condition = "amqp:not-allowed"
    status = 405


class Gone(BrokerError):
    """What the data plane says of an entity that does not exist."""

    condition = "amqp:not-found"
    status = 410


class NoSuchLock(BrokerError):
    """What the data plane says of a lock that is not, or no longer, held."""

    condition = "com.microsoft:message-lock-lost"
    status = 404


@web.middleware
async def middleware(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn whatever a handler raises into an answer."""
    try:
        return await handler(request)
    except BrokerError as error:
        return _answer(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _body(error.status, f"{REASONS.get(error.status, 'Error.')} {error.text or ''}")
    except Exception:
        tracking_id = str(uuid.uuid4())
        log.exception(
            "http.failed", method=request.method, path=request.path, tracking_id=tracking_id
        )
        return _body(
            500,
            "Internal Server Error. The broker could not process the request. "
            f"TrackingId:{tracking_id}",
        )


def _answer(request: web.Request, error: BrokerError) -> web.Response:
    refusal = refuse(error, entity=request.path.strip("/"), operation=request.method)
    return _body(refusal.status, f"{REASONS.get(refusal.status, 'Error.')} {refusal.text}")


def _body(status: int, sentence: str) -> web.Response:
    """The shape every SDK reads: .NET and JavaScript look for the sub-code in the detail."""
    detail = atom.escape(f"SubCode={status}00. {sentence}")
    return web.Response(
        status=status,
        text=f"<Error><Code>{status}</Code><Detail>{detail}</Detail></Error>",
        content_type=CONTENT_TYPE,
        charset="utf-8",
    )
