"""Serves the files of the console: the page at `/`, the others below `/$peeklock/console/`.

Administration clients read the root of the namespace at the path `/`, too. Their requests have an `api-version` and do
not accept HTML. Files are read and compressed once, with the first request.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.typedefs import Handler

BASE = "/$peeklock/console"
PAGE = "index.html"
FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS = {
    # Nothing but the files of the console is loaded or run, whatever a message contains.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The next version of the broker has other files under the same names.
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding",
}


class StaticFile(NamedTuple):
    """A file, compressed and not."""

    content: bytes
    compressed: bytes
    content_type: str
    tag: str


def add_routes(
    application: web.Application, entities: Handler, load_control_api: Callable[[], object]
) -> None:
    """Adds the routes of the console. `entities` handles requests to `/` that are not for the console. The control API is
    loaded with the page, because the page asks it as soon as its files have arrived."""
    loaded: dict[str, StaticFile] = {}

    async def files() -> Mapping[str, StaticFile]:
        if not loaded:
            loop = asyncio.get_running_loop()
            loaded.update(await loop.run_in_executor(None, read_files))
        return loaded

    async def page(request: web.Request) -> web.StreamResponse:
        if not wants_page(request):
            return await entities(request)
        load_control_api()
        return _answer(request, (await files())[PAGE])

    async def file(request: web.Request) -> web.StreamResponse:
        found = (await files()).get(request.match_info["name"])
        if found is None:
            return web.Response(status=404, text="There is no such file.", headers=HEADERS)
        return _answer(request, found)

    application.router.add_get("/", page)
    application.router.add_get(BASE + "/{name:.+}", file)


def wants_page(request: web.Request) -> bool:
    """Whether a request to `/` is one of a browser."""
    return (
        "api-version" not in request.query
        and "Authorization" not in request.headers
        and "text/html" in request.headers.get("Accept", "")
    )


def read_files() -> dict[str, StaticFile]:
    """Returns all files by their path below the folder."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES:
            content = path.read_bytes()
            found[path.relative_to(FOLDER).as_posix()] = StaticFile(
                content,
                gzip.compress(content, 9, mtime=0),
                TYPES[path.suffix],
                f'"{hashlib.sha256(content).hexdigest()[:16]}"',
            )
    return found


def _answer(request: web.Request, file: StaticFile) -> web.Response:
    headers = {**HEADERS, "ETag": file.tag}
    if file.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = file.content_type
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=file.compressed, headers=headers)
    return web.Response(body=file.content, headers=headers)
