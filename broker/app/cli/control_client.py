"""Requests of the command line to the control API of a running broker.

It uses the standard library only, so that commands for shell scripts start quickly. `client_commands.py` knows the
commands.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from broker.app.cli.client_arguments import (
    CONNECTION_STRING_VARIABLE,
    DEFAULT_URL,
    URL_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASE = "/$peeklock/v1"
DEFAULT_PORT = 5300
TIMEOUT_S = 60.0


class BadAddress(Exception):
    """The address or the connection string has the wrong form. The text says which is right."""


class NotReachable(Exception):
    """No broker answers. The text says where and why."""


class Refused(Exception):
    """The broker refused a request. The text is its sentence."""

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        super().__init__(answer["error"]["message"])
        self.status = status
        self.answer = answer


class ControlClient(NamedTuple):
    """The control API of one broker, or of one namespace of it."""

    url: str
    namespace: str | None = None
    token: str | None = None
    authority: str | None = None
    """File of the trusted certificates, for an address with https."""

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        """Returns the answer. Values that are None are left out. Raises `Refused` and `NotReachable`."""
        response, connection = self._send(method, path, query, body, TIMEOUT_S + wait_s)
        try:
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReachable(f"{self.url} does not answer: {error}") from error
        finally:
            connection.close()
        return self._read(response.status, content)

    def stream(
        self, path: str, query: Mapping[str, object]
    ) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Yields the names and the data of the events of a stream until it ends. Raises `Refused` and `NotReachable`."""
        response, connection = self._send("GET", path, query, None, None)
        try:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                self._read(response.status, response.read())
            name = None
            for line in response:
                if line.startswith(b"event:"):
                    name = line[len(b"event:") :].strip().decode()
                elif line.startswith(b"data:"):
                    yield name, json.loads(line[len(b"data:") :])
                    name = None
        except (OSError, http.client.HTTPException) as error:
            raise NotReachable(f"{self.url} does not answer: {error}") from error
        finally:
            connection.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
        timeout_s: float | None,
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        namespace = (
            "" if self.namespace is None else f"/namespaces/{quote(self.namespace, safe='')}"
        )
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = BASE + namespace + path + (f"?{urlencode(given)}" if given else "")
        content = None
        if body is not None:
            content = json.dumps({name: one for name, one in body.items() if one is not None})
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = self.token
        connection = self._connect(timeout_s)
        try:
            connection.request(method, target, content and content.encode(), headers)
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NotReachable(f"{self.url} does not answer: {error}") from error

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            port = parts.port or DEFAULT_PORT
            return http.client.HTTPConnection(parts.hostname, port, timeout=timeout_s)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise BadAddress(
                f"--authority {self.authority} cannot be read: {error.strerror or error}"
            ) from None
        return http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=timeout_s, context=context
        )

    def _read(self, status: int, content: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(content)
            if status < http.HTTPStatus.BAD_REQUEST:
                return answer
            refused = Refused(status, answer)
        except (ValueError, TypeError, KeyError):
            raise NotReachable(
                f"{self.url} is not a Peeklock broker: it answered {status}"
            ) from None
        raise refused


def control_client(options: Mapping[str, Any], environment: Mapping[str, str]) -> ControlClient:
    """Returns the client that options and variables select. Raises `BadAddress`."""
    connection_string = options.get("connection_string") or environment.get(
        CONNECTION_STRING_VARIABLE
    )
    url = options.get("url") or environment.get(URL_VARIABLE)
    token = None
    if connection_string:
        endpoint, token = _endpoint_and_token(connection_string)
        url = url or endpoint
    url = (url or DEFAULT_URL).rstrip("/")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")  # raises UnicodeError, a ValueError, for a..b
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadAddress(f"'{url}' is not an address such as {DEFAULT_URL}")
    return ControlClient(url, options.get("namespace"), token, options.get("authority"))


def _endpoint_and_token(connection_string: str) -> tuple[str, str]:
    from broker.app.cli.topology_fetch import ExportFailed, address_in
    from protocol.identity import sas

    try:
        address = address_in(connection_string)
    except ExportFailed as error:
        raise BadAddress(str(error)) from None
    token = sas.make(f"sb://{address.host}", address.key_name, address.key, sas.YEAR_9999_S)
    return f"http://{address}", token
