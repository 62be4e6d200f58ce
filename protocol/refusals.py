"""How a refusal is worded, counted and logged, the same on every protocol.

Each refusal has a tracking id, which is in the text that the client gets. Similar refusals are logged once, with the
id of the first, and once more with their number and the id of the last. Their ids differ only in the last group, so
that the id in a user's report leads to the log lines. For the report of a namespace, similar refusals in it are counted,
with the sentence of the first.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.core.contract.errors import EntityNotFound
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.errors import BrokerError

log = structlog.get_logger("peeklock.refusal")

_DIGITS = re.compile(r"\d+")
"""Refusals that differ only in sizes and numbers are similar."""
PLACES_MAX = 200
"""In each namespace."""
NAME_MAX_CHARACTERS = 300
SENTENCE_MAX_CHARACTERS = 500
TEXT_MAX_CHARACTERS = 2_000
"""Of what a client is told. What it has written may be quoted there, and be as large as a message."""


class Refusal(NamedTuple):
    """A refusal as it is sent to a client."""

    condition: str
    text: str
    tracking_id: str
    status: int


class RefusedPlace(NamedTuple):
    """What similar refusals have in common."""

    entity: str
    operation: str
    condition: str


OTHER_PLACES = RefusedPlace("", "others", "")
"""Refusals that are not told apart, because there are too many different ones."""


@dataclass(slots=True)
class RefusedCount:
    """How many similar refusals there were, and the sentence of the first."""

    sentence: str
    count: int = 0


class Refusals:
    """Words and counts the refusals of one broker."""

    __slots__ = ("_namespace", "_real_ms", "by_namespace", "counts")

    def __init__(self, real_ms: Callable[[], int]) -> None:
        self._real_ms = real_ms
        self._namespace: Callable[[], str] = str
        self.counts: Counter[str] = Counter()
        """How many operations were refused, by condition. Conditions are a fixed set."""
        self.by_namespace: dict[str, dict[RefusedPlace, RefusedCount]] = {}
        """The refusals in each namespace. Where the namespace is not known, its name is empty."""

    def of_namespace(self, namespace: Callable[[], str]) -> Refusals:
        """Returns an object that counts its refusals in a namespace."""
        scoped = Refusals(self._real_ms)
        scoped._namespace = namespace
        scoped.counts = self.counts
        scoped.by_namespace = self.by_namespace
        return scoped

    def note(
        self, entity: str, operation: str, condition: str, sentence: str, namespace: str = ""
    ) -> None:
        """Counts a refusal or an error in its namespace, for the report."""
        of_namespace = self.by_namespace.setdefault(namespace or self._namespace(), {})
        place = RefusedPlace(
            entity[:NAME_MAX_CHARACTERS], operation[:NAME_MAX_CHARACTERS], condition
        )
        noted = of_namespace.get(place)
        if noted is None:
            if len(of_namespace) >= PLACES_MAX:
                place = OTHER_PLACES
            noted = of_namespace.setdefault(place, RefusedCount(sentence[:SENTENCE_MAX_CHARACTERS]))
        noted.count += 1

    def refuse(
        self,
        error: BrokerError,
        *,
        entity: str = "",
        operation: str = "",
        host: str = "",
        namespace: str = "",
    ) -> Refusal:
        """Words an error for a client, counts it, and logs it under the same tracking id.

        With the host that the client named, a missing entity is called `sb://host/path`, as the service
        calls it: SDK users and the JavaScript SDK's own tests compare that.
        """
        if host and isinstance(error, EntityNotFound) and "://" not in error.path:
            error = EntityNotFound(f"sb://{host}/{error.path}")
        self.counts[error.condition] += 1
        reason = _short(str(error))
        entity, operation = _short(entity), _short(operation)
        self.note(entity, operation, error.condition, reason, namespace)
        tracking_id = repeated_events.note(
            log.info,
            "refused",
            (entity.lower(), operation, error.condition, _DIGITS.sub("#", reason)),
            wider_kind=error.condition,
            tracked=True,
            operation=operation,
            entity=entity,
            condition=error.condition,
            reason=reason,
        )
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._real_ms() / 1000))
        text = (
            f"{reason} TrackingId:{tracking_id}_G0, SystemTracker:peeklock:{entity or 'gateway'}, "
            f"Timestamp:{timestamp}"
        )
        return Refusal(error.condition, text, tracking_id, error.status)


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX_CHARACTERS else f"{text[:TEXT_MAX_CHARACTERS]}..."
