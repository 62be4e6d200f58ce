"""The `$cbs` node: a client puts tokens, the connection holds what they grant.

What a token is good for is `permits.py`'s; here is the wire form. Grants end with the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.errors import ArgumentError, BrokerError, NotImplementedHere
from protocol.amqp.requests import Request, write_response
from protocol.amqp.values import Int
from protocol.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.amqp.permits import Permits

PUT_TOKEN = "put-token"  # noqa: S105 -- the name of an operation
DELETE_TOKEN = "delete-token"  # noqa: S105


class CbsNode:
    """Answers requests sent to `$cbs` on one connection."""

    def __init__(
        self,
        permits: Permits,
        grants_changed: Callable[[bool], None],
        respond: Callable[[Request, bytes], None],
    ) -> None:
        self._permits = permits
        self._grants_changed = grants_changed
        self._respond = respond

    def handle(self, request: Request) -> None:
        """Take a token and say whether it is any good."""
        audience = str(request.properties.get("name") or "")
        try:
            self._run(request, audience)
        except BrokerError as error:
            refusal = refuse(error, entity=audience, operation="put-token")
            status, description = refusal.status, refusal.text
        else:
            status, description = 202, "Accepted"
        properties = {"status-code": Int(status), "status-description": description}
        self._respond(request, write_response(request, properties, None))

    def _run(self, request: Request, audience: str) -> None:
        operation = request.properties.get("operation")
        if operation == DELETE_TOKEN:
            self._permits.delete_token(audience)
            self._grants_changed(True)
            return
        if operation != PUT_TOKEN:
            raise NotImplementedHere(
                f"'{operation}' is not an operation of $cbs: it has put-token and delete-token."
            )
        token = request.body
        if isinstance(token, bytes):
            token = token.decode("utf-8", "replace")
        if not isinstance(token, str):
            raise ArgumentError("The body of put-token must be the token as a string.")
        self._grants_changed(self._permits.put_token(audience, token))
