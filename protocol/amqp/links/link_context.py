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
    from protocol.sources import ProtocolSources


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

    def refuse(
        self, error: BrokerError, *, entity: str = "", operation: str = "", host: str = ""
    ) -> WireError:
        """Counts and logs a refusal, and returns it as an AMQP error."""
        refusals = self.sources.refusals
        return wire_error(refusals.refuse(error, entity=entity, operation=operation, host=host))

    def refuse_link(self, link: EngineLink, error: BrokerError, path: str, operation: str) -> None:
        """Refuses the attach of a link."""
        refusal = self.refuse(error, entity=path, operation=operation, host=link.host)
        self.engine.refuse(link, refusal)
