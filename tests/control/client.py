"""A client of the control API for tests: JSON in, status and JSON out."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

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


class ControlClient:
    """Sends requests to the control API of a broker, or of one namespace of it."""

    def __init__(self, port: int, namespace: str | None = None, token: str | None = None) -> None:
        self.port = port
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
            return Answer(response.status, json.loads(response.read()))
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

    def refused(self, method: str, path: str, body: object = None, **query: Any) -> Answer:
        """Returns the answer to a request that must be refused."""
        answer = self.request(method, path, body, query=query)
        assert answer.status >= 400, answer
        return answer
