"""One route of the control API, and one call of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker.core.contract.commands import ControlRequest
from protocol.http.control.request_models import NoFields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from protocol.http.control.request_models import AnswerModel, RequestModel
    from protocol.http.control_services import ControlServices

    Answer = dict[str, Any] | web.StreamResponse
    Handler = Callable[["Call"], Awaitable[Answer]]


class Scope(Enum):
    """What a route is about."""

    BROKER = "broker"
    """The whole broker. In strict authorization it needs the key of the whole broker."""
    NAMESPACE = "namespace"
    """One namespace: the path exists below `/namespaces/{namespace}`, and also without it, for the default
    namespace. In strict authorization it needs Manage in the namespace."""
    NAMED_NAMESPACE = "named namespace"
    """One namespace, which the path itself names as `{namespace}`."""
    DESCRIPTION = "description"
    """The description of the API. In strict authorization it needs any token with Manage."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, the models of the request and the answer, and the handler."""

    method: str
    path: str
    """Below the base. A segment such as `{name}` stands for any text."""
    name: str
    """The `operationId` of the description."""
    summary: str
    handle: Handler
    answer: type[AnswerModel] | None
    """None: the answer is any JSON object, or a stream."""
    query: type[RequestModel] = NoFields
    body: type[RequestModel] | None = None
    scope: Scope = Scope.NAMESPACE
    status: int = 200
    other_forms: tuple[str, ...] = ()
    """Content types of answers besides JSON."""
    is_stream: bool = False
    """Whether the answer is a stream of server-sent events (`event_stream.py`)."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Refusals besides those that every route has, by status: when they are answered."""

    @property
    def paths(self) -> list[str]:
        """Returns the paths at which it is served."""
        if self.scope is Scope.NAMESPACE:
            return [self.path, "/namespaces/{namespace}" + self.path]
        return [self.path]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a route, checked and authorized."""

    services: ControlServices
    namespace: str
    """The namespace of the request; the default namespace if the route is about the whole broker."""
    segments: Mapping[str, str]
    """The texts of the path by the names in `Route.path`."""
    query: Any
    """An instance of `Route.query`."""
    body: Any
    """An instance of `Route.body`, or None."""
    request: web.Request

    async def ask(self, operation: object) -> Any:
        """Carries out an operation of `control_operations.py` in the namespace of the request. Returns its value
        when it is durable, or raises its error."""
        return await self.services.ask(
            self.namespace, lambda peer, mark: ControlRequest(peer, mark, operation)
        )
