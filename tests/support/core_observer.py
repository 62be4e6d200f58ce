"""An observer of the durable core for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.app.runtime.batch_commit import CommitWay
    from broker.core.contract.turn import Turn


class QuietObserver:
    """Does nothing, and raises the error with which the core stops. Tests override what they look at."""

    def released(self, turn: Turn) -> None: ...

    def committed(self, seconds: float, records: int, way: CommitWay) -> None: ...

    def peer_failed(self, peer: object, error: Exception) -> None: ...

    def restored_from_store(self, reason: str) -> None: ...

    def stopped_serving(self, reason: str) -> None: ...

    def serving_again(self) -> None: ...

    def failed(self, error: Exception) -> None:
        raise error
