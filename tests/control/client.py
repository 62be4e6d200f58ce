"""A client of the control API for tests: JSON in, status and JSON out."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = "/$peeklock/v1"


class Answer(NamedTuple):
    status: int
    content: Any

    @property
    def error(self) -> dict[str, Any]:
        """The error, whose form is the same for every refusal."""
        assert 400 <= self.status, self
        assert {"code", "message", "field"} == set(self.content["error"])
        assert self.content["error"]["message"].endswith(".")
        found: dict[str, Any] = self.content["error"]
        return found


class EventReader:
    """Reads server-sent events, in a `with` block."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        assert 200 == self._response.status, self._response.read()
        assert self._response.readline().startswith(b":")  # nothing is missed from now on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._response.close()

    def __iter__(self) -> Iterator[Any]:
        """Yields the data of each event until the stream ends."""
        for line in self._response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


class ControlClient:
    """Sends requests to the control API of a broker, or of one namespace of it."""

    def __init__(self, port: int, namespace: str | None = None, token: str | None = None) -> None:
        self.port = port
        self.namespace = namespace
        self._base = BASE if namespace is None else f"{BASE}/namespaces/{quote(namespace, safe='')}"
        self._headers = {} if token is None else {"Authorization": token}

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Answer:
        """Sends one request. A body that is not bytes is sent as JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        target = self._base + path + (f"?{urlencode(query)}" if query else "")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, content, {**self._headers, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return Answer(response.status, json.loads(text) if is_json else text.decode())
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """Returns the answer to a GET that must succeed."""
        answer = self.request("GET", path, query=query)
        assert 200 == answer.status, answer
        return answer.content

    def post(self, path: str, **body: Any) -> Any:
        """Returns the answer to a POST that must succeed."""
        answer = self.request("POST", path, body)
        assert answer.status in {200, 201}, answer
        return answer.content

    def stream(self, path: str, **query: Any) -> EventReader:
        """Returns a stream of server-sent events, which is open."""
        target = self._base + path + (f"?{urlencode(query)}" if query else "")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", target, headers=self._headers)
        return EventReader(connection)

    def refused(self, method: str, path: str, body: object = None, **query: Any) -> Answer:
        """Returns the answer to a request that must be refused."""
        answer = self.request(method, path, body, query=query)
        assert answer.status >= 400, answer
        return answer
