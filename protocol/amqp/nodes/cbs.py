"""The `$cbs` node: a client puts tokens, and the connection keeps their grants.

`authorization.py` verifies tokens. Grants end with the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    EntityNotFound,
    NotImplementedHere,
)
from protocol.addresses import MANAGEMENT_SUFFIX, is_receive_only
from protocol.amqp.nodes.request_response import Request, write_response
from protocol.codec import Int
from protocol.identity import LISTEN, SEND, case_preserving_path_of, is_sas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.amqp.authorization import ConnectionAuthorization
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.refusals import Refusals

PUT_TOKEN = "put-token"  # noqa: S105 -- the name of an operation
DELETE_TOKEN = "delete-token"  # noqa: S105
BODY_MAX_VALUES = 1_000
ANSWER_MAX_BYTES = 4 * 1024
PYTHON_SDK = "azsdk-python-servicebus"
"""`product` in the open frame of azure-servicebus; also part of its user agent."""
JAVA_SDK = "azure-messaging-servicebus"
"""The same of com.azure:azure-messaging-servicebus."""


class CbsNode:
    """Answers requests sent to `$cbs` on one connection."""

    def __init__(
        self,
        authorization: ConnectionAuthorization,
        grants_changed: Callable[[bool], None],
        has_entity: Callable[[str, str], bool],
        respond: Callable[[Request, bytes], None],
        refusals: Refusals,
        faults: ConnectionFaults,
    ) -> None:
        self._authorization = authorization
        self._grants_changed = grants_changed
        self._has_entity = has_entity
        self._respond = respond
        self._refusals = refusals
        self._faults = faults
        self._is_python_sdk = False
        self._is_java_sdk = False
        """Two facts about the client's software, known from its open on. See `_check_entity`."""

    def recognise(self, properties: Mapping[str, object]) -> None:
        """Takes the properties of the client's open, which name its software."""
        names = (properties.get("product"), properties.get("user-agent"))
        self._is_python_sdk = any(PYTHON_SDK in str(name) for name in names)
        self._is_java_sdk = any(JAVA_SDK in str(name) for name in names)

    def handle(self, request: Request) -> None:
        """Verifies a token and answers whether it is valid, or does to the request what fault rules say."""
        if self._faults.registry.is_used and self._inject(request):
            return
        self._handle(request)

    def _inject(self, request: Request) -> bool:
        """Does what a fault rule says. Returns False if none acts."""
        if request.properties.get("operation") != PUT_TOKEN:
            return False
        audience = str(request.properties.get("name") or "")
        action = self._faults.decide_token(str(request.body), audience)
        if action is None:
            return False
        from protocol.amqp.faults.request_faults import carry_out

        carry_out(
            action,
            request,
            self._faults,
            lambda: self._handle(request),
            lambda error: self.refuse(request, error),
        )
        return True

    def _handle(self, request: Request) -> None:
        audience = str(request.properties.get("name") or "")
        try:
            self._run(request, audience)
        except BrokerError as error:
            self.refuse(request, error)
        else:
            self._answer(request, 202, "Accepted")

    def answer_max_bytes(self, request: Request) -> int:
        """The answer is a status and a description."""
        del request
        return ANSWER_MAX_BYTES

    def body_max_values(self, request: Request) -> int:
        """The body is a token."""
        del request
        return BODY_MAX_VALUES

    def refuse(self, request: Request, error: BrokerError) -> None:
        """Answers a request with an error."""
        audience = str(request.properties.get("name") or "")
        refusal = self._refusals.refuse(
            error, entity=audience, operation="put-token", host=self._authorization.hostname
        )
        self._answer(request, refusal.status, refusal.text)

    def _answer(self, request: Request, status: int, description: str) -> None:
        properties = {"status-code": Int(status), "status-description": description}
        self._respond(request, write_response(request, properties, None))

    def _run(self, request: Request, audience: str) -> None:
        operation = request.properties.get("operation")
        if operation == DELETE_TOKEN:
            self._authorization.delete_token(audience)
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
        self._grants_changed(self._authorization.put_token(audience, token))
        # The grant is kept anyway: the entity may be created before the client attaches.
        self._check_entity(audience, token)

    def _check_entity(self, audience: str, token: str) -> None:
        """Raises `EntityNotFound` where the service answers put-token with 404.

        The Go SDK returns its not-found error for that answer only. The Python SDK makes an authentication error
        of it and retries, so there the attach is refused instead, of which it makes its not-found error at once.
        With a bearer token the Python SDK gets the service's answer: its live tests use bearer tokens and expect
        that error. The Java SDK keeps the management node whose token was refused and waits forever in the next
        operation on it; it makes its not-found error of a refused attach.

        A key that can only send or only receive gets no error here: whether it may use the entity depends on the
        link that it attaches, and a missing claim is reported before a missing entity (Go's live tests receive
        with a Send key).
        """
        if self._is_java_sdk or (self._is_python_sdk and is_sas(token)):
            return
        path = case_preserving_path_of(audience)
        if not self._may_attach(path):
            return
        if path.lower().endswith(MANAGEMENT_SUFFIX):
            path = path[: -len(MANAGEMENT_SUFFIX)]
        if not path or path.startswith("$"):
            return
        if not self._has_entity(self._authorization.expected_namespace, path):
            raise EntityNotFound(path)

    def _may_attach(self, path: str) -> bool:
        """Whether every link that this path can have would be granted."""
        claims = (LISTEN,) if is_receive_only(path) else (SEND, LISTEN)
        return all(self._authorization.has(claim, path) for claim in claims)
