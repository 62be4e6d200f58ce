"""Reads server-sent events of the control API."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.control.client import BASE

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def events(
    port: int, path: str, headers: dict[str, str] | None = None
) -> Iterator[Iterator[dict[str, Any]]]:
    """Opens a stream, and yields an iterator over the data of its events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", BASE + path, headers=headers or {})
        response = connection.getresponse()
        assert 200 == response.status, response.read()
        yield (
            json.loads(line.removeprefix(b"data: "))
            for line in iter(response.readline, b"")
            if line.startswith(b"data: ")
        )
    finally:
        connection.close()
