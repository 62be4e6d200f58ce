"""Finds what deserves attention in an overview: growing dead letters, locks that expire soon, clients that fail.

An increase counts for five minutes of real time. Each alert is one sentence about one entity or one client.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from protocol.http.control.request_models import AnswerModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.control_operations import EntityActivity
    from protocol.http.control_services import ClientError

WINDOW_S = 300.0
ALERTS_MAX = 100


class AlertAnswer(AnswerModel):
    """One alert."""

    kind: str = Field(
        description="dead_letters_growing, locks_expiring, operations_refused or client_failing"
    )
    entity: str | None
    connection: str | None = Field(description="the id of the connection, if it is about a client")
    message: str = Field(description="a sentence for people")
    count: int


class _Increase(NamedTuple):
    at_s: float
    amount: int


class RecentIncreases:
    """The increases of one number of each entity within the last five minutes."""

    def __init__(self) -> None:
        self._by_path: dict[str, deque[_Increase]] = {}

    def note(self, path: str, amount: int, now_s: float) -> None:
        """Notes that the number of an entity has risen."""
        self._by_path.setdefault(path, deque(maxlen=300)).append(_Increase(now_s, amount))

    def recent(self, now_s: float) -> Iterator[tuple[str, int]]:
        """Yields the entities whose number has risen, and by how much."""
        for path in list(self._by_path):
            increases = self._by_path[path]
            while increases and increases[0].at_s < now_s - WINDOW_S:
                increases.popleft()
            if increases:
                yield path, sum(one.amount for one in increases)
            else:
                del self._by_path[path]


class Alerts:
    """The alerts of one namespace."""

    def __init__(self) -> None:
        self._dead_letters = RecentIncreases()
        self._refusals = RecentIncreases()

    def compare(self, before: EntityActivity, after: EntityActivity, now_s: float) -> None:
        """Notes what has risen between two samples of an entity."""
        grown = after.dead_letters - before.dead_letters
        if grown > 0:
            self._dead_letters.note(after.path, grown, now_s)
        refused = after.refused_total - before.refused_total
        if refused > 0:
            self._refusals.note(after.path, refused, now_s)

    def list(
        self,
        expiring: Iterable[EntityActivity],
        activity_of: dict[str, EntityActivity],
        errors: Sequence[ClientError],
        now_s: float,
    ) -> list[dict[str, object]]:
        """Returns the alerts as plain data, the most important first."""
        found: list[dict[str, object]] = []
        for path, count in self._dead_letters.recent(now_s):
            if path in activity_of and activity_of[path].dead_letters:
                total = activity_of[path].dead_letters
                sentence = f"{path} has {_number(count, 'new dead letter')}, {total} in all."
                found.append(_alert("dead_letters_growing", sentence, count, path))
        for error in errors:
            sentence = f"The client {error.container_id or error.connection_id} was refused: {error.message}"
            found.append(_alert("client_failing", sentence, 1, None, error.connection_id))
        for path, count in self._refusals.recent(now_s):
            sentence = f"{path} has refused {_number(count, 'operation')} in the last five minutes."
            found.append(_alert("operations_refused", sentence, count, path))
        for one in expiring:
            count = one.expiring_locks
            ending = "expires" if count == 1 else "expire"
            sentence = f"{_number(count, 'lock')} of {one.path} {ending} within seconds."
            found.append(_alert("locks_expiring", sentence, count, one.path))
        return found[:ALERTS_MAX]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _alert(
    kind: str, message: str, count: int, entity: str | None, connection: str | None = None
) -> dict[str, object]:
    return {
        "kind": kind,
        "entity": entity,
        "connection": connection,
        "message": message,
        "count": count,
    }
