"""What every link of a connection needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.amqp.outcome_mapping import wire_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.errors import BrokerError
    from config.model.limits import Limits
    from protocol.amqp.engine.engine import Engine, EngineLink, WireError
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.sources import ProtocolSources


@dataclass(slots=True)
class ClientView:
    """The client of a connection, as others are told about it. Locks outlive the connection, and so does this."""

    connection_id: str = ""
    address: str = ""
    """Its network address."""
    container_id: str = ""
    key_name: str | None = None
    """The name of the key that it used last. None: it used none, or a bearer token."""
    host: str = ""
    """The host name that it asked for."""
    product: str | None = None
    opened_ms: int = 0
    """When it opened the connection, in real time."""
    last_error: tuple[int, str, str] | None = None
    """The last error that it was sent: when in real time, its condition and its text."""


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The connection as its links see it."""

    engine: Engine
    submit: Callable[[Command], None]
    """Sends a command to the core, in the connection's namespace."""
    touch: Callable[[], None]
    """Reports that the engine has output to write."""
    limits: Limits
    sources: ProtocolSources
    client: ClientView
    faults: ConnectionFaults

    def refuse(
        self, error: BrokerError, *, entity: str = "", operation: str = "", host: str = ""
    ) -> WireError:
        """Counts and logs a refusal, and returns it as an AMQP error."""
        sources = self.sources
        refusal = sources.refusals.refuse(error, entity=entity, operation=operation, host=host)
        self.client.last_error = (sources.real_ms(), refusal.condition, refusal.text)
        return wire_error(refusal)

    def refuse_link(self, link: EngineLink, error: BrokerError, path: str, operation: str) -> None:
        """Refuses the attach of a link."""
        refusal = self.refuse(error, entity=path, operation=operation, host=link.host)
        self.engine.refuse(link, refusal)
