"""Waits and streams for tests that run in an event loop: while they wait, the code under test goes on.

All other requests are answered within milliseconds, so such tests use the plain client for them.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peeklock import waits
from pytest_peeklock.errors import WaitTimedOut
from pytest_peeklock.http_requests import (
    DEFAULT_PORT,
    StreamEvents,
    content,
    read_answer,
    target,
)
from pytest_peeklock.waits import awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pytest_peeklock.answers import Condition, Seen
    from pytest_peeklock.http_requests import HttpRequests

__tracebackhide__ = True  # a test's traceback ends in the test
LONGEST_LINE_BYTES = 16 << 20
"""Of a stream. An event is one line, and the overview of many entities is one event."""


class AsyncWaits:
    """`peeklock.aio`: the waits of a client, to be awaited."""

    def __init__(self, client: HttpRequests) -> None:
        self._client = client

    async def wait_until(self, *wanted: Condition, timeout_s: float | None = None) -> list[Seen]:
        """Waits until all conditions hold. Raises `WaitTimedOut`."""
        if timeout_s is None:
            timeout_s = self._client.wait_timeout_s
        body = {"conditions": list(wanted), "timeout_s": timeout_s}
        try:
            answer = await self._request("POST", f"{self._client.base}/wait", body)
        except WaitTimedOut as error:
            error.conditions = wanted
            raise
        seen: list[Seen] = answer["seen"]
        return seen

    wait_for = awaited(waits.wait_for)
    wait_until_settled = awaited(waits.wait_until_settled)
    wait_until_unlocked = awaited(waits.wait_until_unlocked)
    wait_until_empty = awaited(waits.wait_until_empty)

    @asynccontextmanager
    async def expecting(
        self, *wanted: Condition, timeout_s: float | None = None
    ) -> AsyncIterator[list[Seen]]:
        """Waits at the end of the block until the conditions hold. The list then has what was seen."""
        seen: list[Seen] = []
        yield seen
        seen += await self.wait_until(*wanted, timeout_s=timeout_s)

    async def stream(
        self, path: str, query: Mapping[str, object] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the events of a stream of the namespace, such as `/history/stream`."""
        reader, writer, status, _ = await self._send(
            "GET", target(self._client.base + path, query), None
        )
        try:
            if status >= http.HTTPStatus.BAD_REQUEST:
                read_answer(status, "application/json", await reader.read())
            events = StreamEvents()
            while line := await reader.readline():
                if (event := events.read(line)) is not None:
                    yield event
        finally:
            writer.close()

    async def _request(self, method: str, path: str, body: Mapping[str, object]) -> Any:
        reader, writer, status, kind = await self._send(method, target(path, None), content(body))
        try:
            return read_answer(status, kind, await reader.read())
        finally:
            writer.close()

    async def _send(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int, str]:
        """Sends a request as HTTP/1.0, whose answer ends where the connection ends."""
        parts = urlsplit(self._client.url)
        is_encrypted = parts.scheme == "https"
        port = parts.port or (443 if is_encrypted else DEFAULT_PORT)
        try:
            reader, writer = await asyncio.open_connection(
                parts.hostname,
                port,
                ssl=ssl.create_default_context() if is_encrypted else None,
                limit=LONGEST_LINE_BYTES,
            )
            headers = {**self._client.headers, "Host": parts.netloc}
            if body is not None:
                headers["Content-Length"] = str(len(body))
            lines = [
                f"{method} {path} HTTP/1.0",
                *(f"{name}: {value}" for name, value in headers.items()),
            ]
            try:
                writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
                head = await reader.readuntil(b"\r\n\r\n")
                first, _, rest = head.partition(b"\r\n")
                status = int(first.split()[1])
                kind = http.client.parse_headers(io.BytesIO(rest)).get_content_type()
            except BaseException:
                writer.close()
                raise
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise self._client.not_reachable(error) from error
        return reader, writer, status, kind
