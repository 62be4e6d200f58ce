"""Answers errors over HTTP: status, sub-code and a sentence, in the error body of the Atom API.

`broker/core/contract/errors.py` defines the refusals; `protocol/refusals.py` writes their text and logs them. Every
answer of 400 and above from the entity routes has this body.
"""

from __future__ import annotations

import traceback
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from aiohttp import http_exceptions, web

from broker.core.contract.errors import BrokerError, EntityNotFound
from protocol.http import atom
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    import logging

    from aiohttp.typedefs import Handler, Middleware
    from structlog.typing import FilteringBoundLogger

    from protocol.sources import ProtocolSources


log = structlog.get_logger("peeklock.http")


class BodyTooLarge(BrokerError):
    """The request body is too large."""

    condition = "amqp:link:message-size-exceeded"
    status = 413


class RequestTooSlow(BrokerError):
    """The rest of the request does not arrive in time."""

    condition = "com.microsoft:timeout"
    status = 408


class MethodNotAllowed(BrokerError):
    """The resource does not support this method."""

    condition = "amqp:not-allowed"
    status = 405


class InvalidVerb(BrokerError):
    """The answer of the service to every attempt to manage a part of an entity, such as its dead-letter queue.
    The .NET SDK raises an argument error, because the status is 400."""

    condition = "amqp:not-allowed"
    status = 400
    has_own_sub_code = True

    def __init__(self, method: str) -> None:
        super().__init__(
            f"The specified HTTP verb ({method}) is not valid. "
            "To know more visit https://aka.ms/sbResourceMgrExceptions. ."
        )


class ForeignOrigin(BrokerError):
    """A page of another web site makes the request in a user's browser."""

    condition = "amqp:unauthorized-access"
    status = 403


class EntityGone(BrokerError):
    """The answer of the data plane for an entity that does not exist."""

    condition = "amqp:not-found"
    status = 410


class LockNotFound(BrokerError):
    """The answer of the data plane for a lock that does not exist."""

    condition = "com.microsoft:message-lock-lost"
    status = 404


NAMESPACE: ContextVar[str] = ContextVar("namespace", default="")
"""The namespace of the request that is handled, once it is authorized."""


def middleware(sources: ProtocolSources) -> Middleware:
    """Returns the middleware that turns what a handler raises into an answer."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        NAMESPACE.set("")  # a connection may have other requests before
        try:
            return await handler(request)
        except BrokerError as error:
            refusal = sources.refusals.refuse(
                _with_host(error, request.host),
                entity=request.path.strip("/"),
                operation=request.method,
                namespace=NAMESPACE.get(),
            )
            if getattr(error, "has_own_sub_code", False):
                return _error(refusal.status, refusal.text)
            return _answer(refusal.status, refusal.text)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            refusal = sources.refusals.refuse(_Unserved(error.text or ""), operation=request.method)
            return _answer(error.status, refusal.text)
        except ConnectionResetError:
            repeated_events.note(
                log.info,
                "http.client_gone",
                request.method,
                method=request.method,
                path=request.path,
            )
            return _answer(500, "The client has gone.")  # the client does not read it
        except Exception as error:  # noqa: BLE001 -- a bug, logged with its traceback
            tracking_id = log_failure(log, "http.failed", request, error)
            return _answer(500, f"The request could not be processed. TrackingId:{tracking_id}")

    return answer_errors


def log_failure(
    logger: FilteringBoundLogger, failed: str, request: web.Request, error: Exception
) -> str:
    """Logs a bug of the broker with its traceback, from the handler of the exception. Returns the tracking id.

    The same failure is logged once in a while, because clients can repeat the request that causes it.
    """

    def write_line(event: str, **fields: object) -> None:
        # The summary of repetitions is written later, when no exception or another one is being handled.
        logger.error(event, exc_info=event == failed, **fields)

    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = (frames[0].filename, frames[0].lineno) if frames else None
    return repeated_events.note(
        write_line,
        failed,
        (type(error), place),
        tracked=True,
        method=request.method,
        path=request.path,
        error=type(error).__name__,
    )


def log_unreadable_request(record: logging.LogRecord) -> bool:
    """A filter of aiohttp's own log: a request that aiohttp cannot read is the client's mistake, and is logged
    as an event. Returns whether aiohttp logs the record itself, as it does with every other error.

    Only the first words of its message are logged: the others quote the request, which may contain keys.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, web.RequestPayloadError):  # aiohttp reads what the handler has not read
        words = "the body cannot be decoded"
    elif isinstance(error, http_exceptions.HttpProcessingError):
        words = error.message.partition("\n")[0].partition(":")[0]
    else:
        return True
    repeated_events.note(log.info, "http.unreadable", words, error=words)
    return False


class _Unserved(BrokerError):
    """The HTTP server refused the request, and chose the status."""


def _with_host(error: BrokerError, host: str) -> BrokerError:
    """Returns the error with `sb://host/path` as the name of a missing entity, as the service writes it."""
    if isinstance(error, EntityNotFound) and "://" not in error.path:
        return EntityNotFound(f"sb://{host}/{error.path.strip('/')}")
    return error


def _answer(status: int, sentence: str) -> web.Response:
    """Returns an error with a sub-code in its detail, where the SDKs of .NET and JavaScript look for it."""
    # The service names the reason for other codes, but not for 400.
    reason = "" if status == HTTPStatus.BAD_REQUEST else f"{HTTPStatus(status).phrase}. "
    return _error(status, f"SubCode={status}00. {reason}{sentence}")


def _error(status: int, detail: str) -> web.Response:
    """Returns the error body that all SDKs read."""
    detail = atom.escape(detail)
    return web.Response(
        status=status,
        text=f"<Error><Code>{status}</Code><Detail>{detail}</Detail></Error>",
        content_type="application/xml",
        charset="utf-8",
    )
