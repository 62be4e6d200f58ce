"""A raw HTTP client for tests: sends any bytes, paths and headers."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable

ATOM = "{http://www.w3.org/2005/Atom}"
SERVICE_BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def xml(self) -> ET.Element:
        return ET.fromstring(self.body)


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | str | Iterable[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Sends one request on a new connection. An iterable body is sent in chunks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        content = body.encode() if isinstance(body, str) else body
        connection.request(method, path, content, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def entry(description: str) -> str:
    """An Atom entry around a description."""
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f"{description}</content></entry>"
    )


def queue_entry(elements: str = "") -> str:
    """A queue's description with these elements."""
    return entry(
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        f'connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{elements}'
        "</QueueDescription>"
    )
