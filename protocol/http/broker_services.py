"""What the HTTP handlers need from the broker. The server creates it, and tests create it with fakes.

Handlers translate requests into commands, and the core decides. No handler knows how commands run or
where the time comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from config.model.limits import RELAXED, Limits, Tier
from protocol.faults.fault_registry import FaultRegistry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.contract.errors import BrokerError
    from protocol.http.control_services import ControlServices
    from protocol.identity.managed_identity import TokenRequest
    from protocol.sources import ProtocolSources


class ByteReceiver(Protocol):
    """The methods of `asyncio.Protocol` that a WebSocket calls on an AMQP connection."""

    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


def _require_no_token(header: str | None, host: str) -> None:
    """Requires no token."""
    del header, host


class Authorize(Protocol):
    """Checks whether a request may be made."""

    def __call__(
        self, header: str | None, path: str, claim: str, host: str, entity: str | None = None, /
    ) -> str:
        """Returns the namespace of the request. Raises `Unauthorized`.

        The arguments are the Authorization header, the path of the request, the required claim, the
        host, and the path of the entity if it differs from the path of the request. Clients sign a
        token for the URL of the request or for a prefix of it; the key of a rule is valid on the
        entity that declares the rule.
        """


WhyNotServing: TypeAlias = "Callable[[], tuple[str, str] | None]"


class RefusablePeer(Protocol):
    """The peer of a request, which can be refused while it waits."""

    def refuse(self, error: BrokerError) -> None:
        """Answers the request with an error."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The functions and values that HTTP handlers use."""

    ask: Callable[[Callable[[Peer, object], Command]], Awaitable[object]]
    """Builds a request command, runs it and waits until it is durable. Returns its value or raises its
    error."""
    submit: Callable[[Command], None]
    """Runs a command in the next turn. Its effects go to its peer."""
    not_serving: WhyNotServing
    """Returns why the broker is not ready, as a word and a sentence. None if it is ready."""
    metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    """Returns the body and the content type."""
    advance_clock: Callable[[int], int] | None
    """Moves the clock ahead by milliseconds and returns the new time. None if the testing API is off."""
    now_ms: Callable[[], int]
    authorize: Authorize
    open_amqp: Callable[[asyncio.Transport], ByteReceiver]
    """Creates an AMQP connection that writes to this transport."""
    namespace_name: str
    created_time_ms: int
    sources: ProtocolSources
    tier: Tier = Tier.PREMIUM
    limits: Limits = RELAXED
    is_strict: bool = False
    """Whether claims are enforced. If not, a request without a token is accepted, but a wrong token is
    refused."""
    authorize_metrics: Callable[[str | None, str], None] = _require_no_token
    """Takes the Authorization header and the host. Raises `Unauthorized` if metrics may not be read."""
    authorize_clock: Callable[[str | None, str], None] = _require_no_token
    """Takes the Authorization header and the host. Raises `Unauthorized` if the clock may not be moved."""
    topology: Callable[[str | None, str], object] | None = None
    """Takes the Authorization header and the form. Returns all entities of the broker as a config file.
    Raises `Unauthorized`."""
    identity_token: Callable[[TokenRequest], object] | None = None
    """Returns a token of the managed identity. Raises `Unauthorized`. None if no tokens are issued."""
    is_known_host: Callable[[str], bool] = lambda _host: True
    """Takes the host of a request, without port. Returns whether this broker is known by it."""
    control: ControlServices | None = None
    """What the control API needs. None if it is off."""
    faults: FaultRegistry = field(default_factory=FaultRegistry)
    request_peers: set[RefusablePeer] = field(default_factory=set)
    """Requests that have links. The broker refuses them if it drops their links."""
    has_namespace: Callable[[str], bool] = lambda _name: True
    """Whether a namespace exists: it may have been deleted."""
    in_namespace: Callable[[str], BrokerServices] | None = None
    """Returns the services for another namespace. None if there is only one."""
