"""A request to the administration API: its query, its headers, and the absolute addresses of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from broker.core.contract.errors import ArgumentOutOfRange

if TYPE_CHECKING:
    from aiohttp import web

PAGE_MAX_ENTITIES = 100
NEWEST_API_VERSION = "2024-05"

PLAIN_IN_PATHS = "/$~!'()*+,;=:"
"""Not escaped in addresses: the JavaScript SDK reads names from addresses without decoding them."""


class AdministrationRequest(NamedTuple):
    """A request to the administration API."""

    request: web.Request
    base: str
    """Scheme and host of the request, with which absolute addresses start."""
    host: str
    api_version: str

    @classmethod
    def of(cls, request: web.Request) -> AdministrationRequest:
        version = request.query.get("api-version") or NEWEST_API_VERSION
        return cls(request, f"{request.scheme}://{request.host}", request.host, version)

    @property
    def is_update(self) -> bool:
        return bool(self.request.headers.get("If-Match"))

    def href(self, path: str) -> str:
        return (
            f"{self.base}/{quote(path, safe=PLAIN_IN_PATHS)}?api-version={quote(self.api_version)}"
        )

    def number(self, name: str, default: int) -> int:
        text = self.request.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 9:
            raise ArgumentOutOfRange(f"{name} must be a whole number, not '{text[:50]}'.")
        return int(text)

    @property
    def page_size(self) -> int:
        """How many entities the answer may contain."""
        top = self.number("$top", PAGE_MAX_ENTITIES)
        if top == 0:
            raise ArgumentOutOfRange("$top must be at least 1.")
        return min(top, PAGE_MAX_ENTITIES)
