"""Requests to the control API over HTTP, with the standard library only: one connection each, JSON in and out.

The same requests for tests that run in an event loop are in `async_waits.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, urlencode, urlsplit

from pytest_peeklock.errors import BrokerNotReachable, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__tracebackhide__ = True  # a test's traceback ends in the test
BASE = "/$peeklock/v1"
DEFAULT_URL = "http://localhost:5300"
DEFAULT_PORT = 5300
TIMEOUT_S = 60.0
"""How long to wait for an answer, beside the time that a wait itself may take."""
NEVER_S = 253_402_300_799
"""When tokens expire: in the year 9999. A strict broker compares it with a clock that tests move."""
KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"


class HttpRequests:
    """Sends requests to one broker, about one namespace of it or its default namespace."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        namespace: str | None = None,
        connection_string: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not an address such as {DEFAULT_URL}")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.namespace = namespace
        """The name of the namespace. None: the default namespace of the broker."""
        self.connection_string = connection_string or default_connection_string(parts.netloc)
        """For the SDK's clients. Every port of the broker serves AMQP as well as HTTP."""
        self._is_encrypted = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._is_encrypted else DEFAULT_PORT)
        self.wait_timeout_s: float | None = None
        """How long waits take at most that name no time. None: 10 seconds."""
        # A broker in development takes requests without a token, and refuses one that another key has made.
        self._token = sas_token(connection_string) if connection_string else None

    @property
    def base(self) -> str:
        """Returns the path of the namespace, below which its resources are."""
        return "" if self.namespace is None else f"/namespaces/{quote(self.namespace, safe='')}"

    def named(self, namespace: str | None) -> str:
        """Returns the name of a namespace for a path: this one, if none is given."""
        name = namespace or self.namespace
        if name is None:
            raise ValueError("This client has no namespace of its own, so one must be named.")
        return quote(name, safe="")

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Any:
        """Sends a request and returns the answer. Fields that are None are left out. Raises `PeeklockError` and
        `BrokerNotReachable`."""
        response, connection = self._send(method, path, query, body)
        try:
            return read_answer(
                response.status, response.headers.get_content_type(), response.read()
            )
        except (OSError, http.client.HTTPException) as error:
            raise self.not_reachable(error) from error
        finally:
            connection.close()

    def stream(
        self, method: str, path: str, query: Mapping[str, object] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yields the events of a stream until it ends. Close the iterator to leave it sooner. How many events were
        dropped is no event for a test."""
        response, connection = self._send(method, path, query, None)
        try:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                read_answer(response.status, "application/json", response.read())
            events = StreamEvents()
            for line in response:
                if (event := events.read(line)) is not None:
                    yield event
        except (OSError, http.client.HTTPException) as error:
            raise self.not_reachable(error) from error
        finally:
            connection.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = self._connect(TIMEOUT_S + _longest_wait_s(body))
        try:
            connection.request(method, target(path, query), content(body), self.headers)
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self.not_reachable(error) from error

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._is_encrypted:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers of each request."""
        headers = {"Connection": "close", "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = self._token
        return headers

    def not_reachable(self, error: Exception) -> BrokerNotReachable:
        """Returns the error for a broker that does not answer."""
        return BrokerNotReachable(f"{self.url} does not answer: {error}")


class StreamEvents:
    """Reads the lines of a stream."""

    def __init__(self) -> None:
        self._name = b""

    def read(self, line: bytes) -> dict[str, Any] | None:
        """Returns the event that a line completes. None for other lines, and for the number of dropped events."""
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.strip()
        if field != b"data":
            return None
        name, self._name = self._name, b""
        event: dict[str, Any] = json.loads(value)
        return None if name == b"dropped" else event


def target(path: str, query: Mapping[str, object] | None) -> str:
    """Returns the target of a request."""
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return BASE + path + (f"?{urlencode(given)}" if given else "")


def content(body: Mapping[str, object] | None) -> bytes | None:
    """Returns a body as it is on the wire."""
    if body is None:
        return None
    return json.dumps({name: one for name, one in body.items() if one is not None}).encode()


def read_answer(status: int, content_type: str, body: bytes) -> Any:
    """Returns an answer, which is a text if it is not JSON. Raises `PeeklockError`."""
    is_refused = status >= http.HTTPStatus.BAD_REQUEST
    try:
        answer = json.loads(body) if content_type.endswith("json") or is_refused else body.decode()
    except ValueError:
        answer = None
    if is_refused:
        raise refusal(status, answer)
    return answer


def default_connection_string(address: str) -> str:
    """Returns the connection string of a broker that uses the default key."""
    return (
        f"Endpoint=sb://{address};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};"
        "UseDevelopmentEmulator=true;"
    )


def sas_token(connection_string: str) -> str:
    """Returns a shared access signature made with the key in a connection string."""
    pairs = (part.partition("=") for part in connection_string.split(";") if part.strip())
    fields = {name.strip().lower(): value for name, _, value in pairs}
    try:
        name, key = fields["sharedaccesskeyname"], fields["sharedaccesskey"]
        host = urlsplit(fields["endpoint"]).hostname
    except (KeyError, ValueError):
        raise ValueError(
            "A connection string has Endpoint=sb://HOST:PORT, SharedAccessKeyName and "
            "SharedAccessKey, with semicolons between them."
        ) from None
    resource = quote_plus(f"sb://{host}")
    signed = hmac.new(key.encode(), f"{resource}\n{NEVER_S}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(signed))
    return (
        f"SharedAccessSignature sr={resource}&sig={signature}&se={NEVER_S}&skn={quote_plus(name)}"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _longest_wait_s(body: Mapping[str, object] | None) -> float:
    given = (body or {}).get("timeout_s")
    return float(given) if isinstance(given, (int, float)) else 0.0
