"""Refuses requests that a page of another web site makes in a user's browser.

Browsers name the site of a page in `Origin`, and other clients send no such header. A site can also let its own name
resolve to this machine (DNS rebinding); then `Origin` and `Host` agree, but the name is none of this broker's.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".test")
"""Names that nobody can register: RFC 6761, RFC 6762 and ICANN's reservation of `internal`."""


class RefusedOrigin(NamedTuple):
    """Why a request is refused."""

    code: str
    message: str


def refusal(
    request: web.Request, is_known_host: Callable[[str], bool], *, by_any_client: bool = False
) -> RefusedOrigin | None:
    """Returns why a request is refused, or None. Without `Origin` the host is checked only if `by_any_client` is
    set: a browser names the origin of every request that changes something."""
    origin = request.headers.get("Origin")
    if origin is None and not by_any_client:
        return None
    host = host_name(request.host)
    if not is_local_name(host) and not is_known_host(host):
        return RefusedOrigin(
            "unknown_host",
            f"The broker is not known as '{host[:253]}'. If clients reach it by this name, add the name to the setting "
            "http_names.",
        )
    if origin is None:
        return None
    site = _site(origin)
    if site is not None and site.netloc.lower() == request.host.lower():
        return None
    # Behind a reverse proxy that changes `Host`, pages have a name that only the setting knows.
    name = "" if site is None else site.hostname
    if name and not is_local_name(name) and is_known_host(name):
        return None
    return RefusedOrigin(
        "foreign_origin",
        "A page of another site may not use this API: Origin and Host must be the same.",
    )


def websocket_refusal(
    request: web.Request, is_known_host: Callable[[str], bool]
) -> RefusedOrigin | None:
    """Returns why a WebSocket is refused, or None. Browsers let every page open one to any host, and the JavaScript SDK
    runs in pages of a developer's own server, such as http://localhost:3000. So pages of this machine, of its network
    and of the names of this broker are allowed."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    site = _site(origin)
    name = site.hostname if site is not None and site.scheme in {"http", "https"} else None
    if name and (is_known_host(name) or _is_nearby(name, host_name(request.host))):
        return None
    return RefusedOrigin(
        "foreign_origin",
        "A page of another site may not use this broker. If it is yours, add its host name to the setting http_names.",
    )


def _is_nearby(name: str, called: str) -> bool:
    """Whether the site of a page is local. Everybody can have a site at a public address, so that has to be the address
    of this broker."""
    if is_address(name):
        return name == called or ip_address(name.partition("%")[0]).is_private
    return is_local_name(name)


def _site(origin: str) -> SplitResult | None:
    """Returns the parts of an origin, or None if it is not a URL."""
    try:
        return urlsplit(origin)
    except ValueError:  # brackets without an IPv6 address
        return None


def host_name(host: str) -> str:
    """Returns the host of a `Host` header in lower case, without port."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def is_local_name(host: str) -> bool:
    """Whether no web site can have this host name: an address, a name without a dot, or a name that is reserved."""
    if "." not in host or host.endswith(LOCAL_SUFFIXES):
        return True
    return is_address(host)


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
