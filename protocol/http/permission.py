"""Decides which claim an HTTP request needs, and writes the refusals of the service.

`protocol/identity` verifies tokens. The sentences are those of the service: tests of the Go SDK look for them
(`TestAdminClient_LackPermissions_Queue` and others beside it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import Unauthorized
from protocol.http import request_paths
from protocol.http.error_responses import NAMESPACE
from protocol.identity import LISTEN, MANAGE, SEND, TokenRefused

if TYPE_CHECKING:
    from aiohttp import web

    from protocol.http.broker_services import BrokerServices

CLAIMS = {
    request_paths.MessagesResource: SEND,
    request_paths.NextMessage: LISTEN,
    request_paths.LockedMessageResource: LISTEN,
}
"""The claims of the data plane. Everything else is administration and needs Manage."""

_ACTIONS = {"PUT": "EntityWrite", "DELETE": "EntityDelete"}
_OPERATIONS = {
    request_paths.SubscriptionResource: {
        "GET": "GetSubscription",
        "PUT": "CreateOrUpdateSubscription",
        "DELETE": "DeleteSubscription",
    },
    request_paths.SubscriptionList: {"GET": "EnumerateSubscriptions"},
    request_paths.RuleResource: {
        "GET": "GetRule",
        "PUT": "CreateOrUpdateRule",
        "DELETE": "DeleteRule",
    },
    request_paths.RuleList: {"GET": "EnumerateRules"},
}
"""The service's names of operations on subscriptions and rules, by method."""


class MissingManage(Unauthorized):
    """The token is valid, but does not have the claim Manage. The text is the whole detail of the answer."""

    has_own_sub_code = True


def authorize(
    services: BrokerServices,
    request: web.Request,
    resource: request_paths.ManagedResource | request_paths.MessageResource,
) -> str:
    """Returns the namespace of a request. Raises `Unauthorized` if the request is not allowed."""
    claim = CLAIMS.get(type(resource), MANAGE)
    try:
        return _authorize(services, request, resource, claim)
    except TokenRefused:
        raise
    except Unauthorized:
        if claim != MANAGE:
            raise
        raise _missing_manage(request, resource) from None


def namespace_of(
    services: BrokerServices,
    request: web.Request,
    resource: request_paths.ManagedResource | request_paths.MessageResource,
) -> str:
    """Returns the namespace of a request if the client has any claim on the resource. Raises `Unauthorized`."""
    try:
        return _authorize(services, request, resource, LISTEN)
    except TokenRefused:
        raise
    except Unauthorized:
        return _authorize(services, request, resource, SEND)


def _authorize(
    services: BrokerServices,
    request: web.Request,
    resource: request_paths.ManagedResource | request_paths.MessageResource,
    claim: str,
) -> str:
    namespace = services.authorize(
        request.headers.get("Authorization"),
        request.path.strip("/"),
        claim,
        request.host,
        request_paths.entity_of(resource),
    )
    NAMESPACE.set(namespace)
    return namespace


def _missing_manage(
    request: web.Request, resource: request_paths.ManagedResource | request_paths.MessageResource
) -> MissingManage:
    operation = _OPERATIONS.get(type(resource), {}).get(request.method)
    if operation is not None:
        return MissingManage(
            f"401 SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation "
            f"on endpoint 'sb://{request.host}{request.path}'."
        )
    action = _ACTIONS.get(request.method)
    if action is None:
        return MissingManage("Manage,EntityRead claims required for this operation.")
    return MissingManage(
        f"SubCode=40100. Unauthorized. Authorization failed for specified action: Manage,{action}."
    )
