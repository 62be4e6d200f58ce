"""What reports need to know about the past: when each namespace began, its counts at that time, and dead letters.

Everything else is in the core and in the refusals (`run_report.py` collects it). What is kept is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.observations import MESSAGE_IDS_MAX, OBSERVED_MAX, Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.core.contract.counting import Counted, Counts
    from broker.core.contract.turn import DeadLettered
    from broker.core.namespace import Namespace

REASON_MAX_CHARACTERS = 300


class Since(NamedTuple):
    """From when on a report counts."""

    time_ms: int
    """In real time."""
    event: str
    """`start` of the broker, `creation`, `restore` or `reset` of the namespace, or `request`."""


@dataclass(slots=True)
class NamespaceNotes:
    """The past of one namespace."""

    since: Since
    dead_lettered: dict[tuple[str, str], Observation] = field(default_factory=dict)
    """By path and reason."""
    counts_before: dict[int, tuple[Counts, Counts]] = field(default_factory=dict)
    """The counts of each queue when the report began, by the identity of the counts. They are kept, so that no other
    counts can have the same identity."""

    def since_then(self, counts: Counts, what: Counted) -> int:
        """Returns how much a count has increased."""
        before = self.counts_before.get(id(counts), (counts, {}))[1]
        return counts.get(what, 0) - before.get(what, 0)


class ReportNotes:
    """The past of all namespaces."""

    def __init__(self, real_ms: Callable[[], int]) -> None:
        self._real_ms = real_ms
        self._start = Since(real_ms(), "start")
        self._by_namespace: dict[str, NamespaceNotes] = {}

    def now_ms(self) -> int:
        """Returns the real time."""
        return self._real_ms()

    def of(self, namespace: str) -> NamespaceNotes:
        """Returns the past of a namespace."""
        notes = self._by_namespace.get(namespace)
        if notes is None:
            notes = self._by_namespace[namespace] = NamespaceNotes(self._start)
        return notes

    def begin(self, namespace: Namespace, event: str) -> None:
        """Begins a new report of a namespace."""
        notes = NamespaceNotes(Since(self._real_ms(), event))
        for entity in namespace.entities():
            for queue in entity.queues:
                if queue.counts:
                    notes.counts_before[id(queue.counts)] = queue.counts, dict(queue.counts)
        self._by_namespace[namespace.name] = notes
        namespace.observations.clear()

    def forget(self, namespace: str) -> None:
        """Forgets a namespace that was deleted."""
        self._by_namespace.pop(namespace, None)

    def note_dead_letters(self, all_dead_lettered: Iterable[DeadLettered]) -> None:
        """Counts dead letters. Called when they are durable."""
        for one in all_dead_lettered:
            noted = self.of(one.namespace).dead_lettered
            place = one.path, (one.reason or "")[:REASON_MAX_CHARACTERS]
            observed = noted.get(place)
            if observed is None:
                if len(noted) >= OBSERVED_MAX:
                    continue
                observed = noted[place] = Observation()
            observed.count += one.message_count
            room = MESSAGE_IDS_MAX - len(observed.message_ids)
            observed.message_ids += [dead.message_id for dead in one.first[:room]]
