"""What the durable core calls outside the runtime: the process around it, and peers whose answer failed.

The server implements `CoreObserver`. The durable core decides when each method is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from broker.app.runtime.batch_commit import CommitWay
    from broker.core.contract.effects import Peer
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.turn import Turn


@runtime_checkable
class HttpPeer(Protocol):
    """A peer that is an HTTP request: it has no connection of its own to end."""

    def refuse(self, error: BrokerError) -> None:
        """Answers the request with an error."""


class CoreObserver(Protocol):
    """Called about events of the core."""

    def released(self, turn: Turn) -> None:
        """A turn is durable, and all its effects are released."""

    def committed(self, seconds: float, records: int, way: CommitWay) -> None:
        """A commit is done."""

    def peer_failed(self, peer: Peer, error: BrokerError) -> None:
        """A bug of the broker kept a peer from an effect. Its connection must be ended with the error."""

    def restored_from_store(self, reason: str) -> None:
        """The namespaces are replaced by what the store holds. Existing links are invalid."""

    def stopped_serving(self, reason: str) -> None:
        """Another process owns the store, or may own it. No client may be served until `serving_again`."""

    def serving_again(self) -> None:
        """After `stopped_serving`: this process owns the store, and serves what the store holds."""

    def failed(self, error: Exception) -> None:
        """The store failed, and the process must stop."""
