"""The managed identity endpoint, from which `DefaultAzureCredential` gets its token.

Uses the protocol of Azure App Service (`IDENTITY_ENDPOINT`, `IDENTITY_HEADER`, api-version 2019-08-01).
`broker/app/security/access.py` decides who gets a token. The path contains no `$`, which shells and `.env` files would
replace. A request without the identity header is about an entity with that name.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from broker.core.contract.errors import BrokerError
from protocol.identity.managed_identity import TokenRequest

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from protocol.http.broker_services import BrokerServices

PATH = "/msi/token"
SECRET_HEADER = "X-IDENTITY-HEADER"  # noqa: S105 -- its name
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


def add_routes(application: web.Application, services: BrokerServices, entities: Handler) -> None:
    """Adds the route of tokens. `entities` handles the requests that are about an entity."""
    issue = services.identity_token

    async def token(request: web.Request) -> web.StreamResponse:
        secret = request.headers.get(SECRET_HEADER)
        if issue is None or (secret is None and "resource" not in request.query):
            return await entities(request)
        try:
            content = issue(TokenRequest(secret, request.query.get("resource"), is_local(request)))
        except BrokerError as error:
            refusal = services.sources.refusals.refuse(error, operation="identity")
            answer = {"statusCode": refusal.status, "message": refusal.text}
            return web.json_response(answer, status=refusal.status)
        return web.json_response(content, headers={"Cache-Control": "no-store"})

    application.router.add_get(PATH, token)


def is_local(request: web.Request) -> bool:
    """Returns whether a request was made on this machine, and not forwarded by a proxy on it."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    try:
        address = ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
