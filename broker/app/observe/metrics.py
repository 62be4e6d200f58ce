"""Metrics of the broker, in the format of Prometheus.

The queues keep the counts of messages (`broker/core/contract/counting.py`), so a series ends with its entity, and
a name that a client invents does not become a series. Labels are the namespace, the entity and a few fixed
words, never a message or a client.
"""

from __future__ import annotations

import asyncio
import platform
import time
from typing import TYPE_CHECKING, Protocol

from broker import __version__
from broker.app.observe.exposition import CONTENT_TYPE, Histogram, MetricFamily, escape, labels_of
from broker.app.observe.process_metrics import process_families
from broker.app.runtime.batch_commit import CommitWay
from broker.core.contract.counting import DeadLetterCause, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.core.contract.counting import Counts
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.namespace import Namespace
    from protocol.refusals import Refusals

COMMIT_SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
COMMIT_RECORDS_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 1000)

COUNTED_TOGETHER = 256
"""So many commits are added to the histograms at once."""

SLICE_S = 0.005
"""After so long, a scrape lets the event loop serve others."""


def count(turn: Turn) -> None:
    """Adds the counts of a durable turn to the counts of its queues."""
    for counts, what, number in turn.counts:
        counts[what] = counts.get(what, 0) + number


class ClientCounts(Protocol):
    """Counts of AMQP clients."""

    connections_total: int
    """Connections since the start."""

    @property
    def connection_count(self) -> int:
        """Connections at present."""

    @property
    def link_count(self) -> int:
        """Links at present."""


class Metrics:
    """All metrics of one broker."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        clients: ClientCounts,
        refusals: Refusals,
        is_owner: Callable[[], bool] = lambda: True,
    ) -> None:
        self._namespaces = namespaces
        self._is_owner = is_owner
        """Whether this process owns its store. If not, it does not know what the queues contain."""
        self._clients = clients
        self._refusals = refusals
        self._commit_seconds = Histogram(
            "peeklock_commit_seconds", "Time until a commit was durable.", COMMIT_SECONDS_BUCKETS
        )
        self._commit_records = Histogram(
            "peeklock_commit_records", "Records in one commit.", COMMIT_RECORDS_BUCKETS
        )
        self._commits: list[tuple[float, int]] = []
        """Seconds and records of the last commits, which are not in the histograms yet."""
        self._commits_by_way = dict.fromkeys(CommitWay, 0)
        self.event_loop_lag_seconds = 0.0

    def committed(self, seconds: float, records: int, way: CommitWay) -> None:
        """Records the duration and the size of a commit, and in which way it was made."""
        self._commits_by_way[way] += 1
        self._commits.append((seconds, records))
        if len(self._commits) >= COUNTED_TOGETHER:
            self._count_commits()

    def _count_commits(self) -> None:
        """Adds commits to the histograms. A message that comes alone has a commit of its own, and does not wait for
        this."""
        for seconds, records in self._commits:
            self._commit_seconds.observe(seconds)
            self._commit_records.observe(records)
        self._commits.clear()

    async def render(self) -> tuple[bytes, str]:
        """Returns the metrics as text, and its content type.

        There may be a hundred thousand entities, so the event loop serves others in between. An entity that is
        deleted meanwhile may still be shown.
        """
        of_entities = _EntityFamilies()
        resume_s = time.perf_counter() + SLICE_S
        for name, namespace in list(self._namespaces.items()) if self._is_owner() else ():
            of_entities.add_counts(name, "", namespace.counts)
            for entity in namespace.entities():
                of_entities.add(name, entity)
                if time.perf_counter() > resume_s:
                    of_entities.pack()
                    await asyncio.sleep(0)
                    resume_s = time.perf_counter() + SLICE_S
        parts: list[bytes] = []
        for family in (*of_entities.families(), *self._of_broker()):
            parts += family.content()
        self._count_commits()
        parts += [*self._commit_seconds.content(), *self._commit_records.content()]
        for family in process_families():
            parts += family.content()
        return b"".join(parts), CONTENT_TYPE

    def _of_broker(self) -> Iterator[MetricFamily]:
        build = MetricFamily("peeklock_build_info", "gauge", "Version of the broker; always 1.")
        build.add(1, labels_of((("python", platform.python_version()), ("version", __version__))))
        yield build
        refusals = MetricFamily(
            "peeklock_refusals_total",
            "counter",
            "Refused operations by error condition, on every protocol.",
        )
        for condition, number in sorted(self._refusals.counts.items()):
            refusals.add(number, labels_of((("condition", condition),)))
        yield refusals
        for name, kind, text, value in (
            (
                "peeklock_owner",
                "gauge",
                "1 if this process owns its store and serves, 0 on standby.",
                int(self._is_owner()),
            ),
            ("peeklock_connections", "gauge", "AMQP connections.", self._clients.connection_count),
            (
                "peeklock_connections_opened_total",
                "counter",
                "AMQP connections since the start.",
                self._clients.connections_total,
            ),
            ("peeklock_links", "gauge", "AMQP links.", self._clients.link_count),
            (
                "peeklock_inline_commits_total",
                "counter",
                "Commits on the event loop.",
                self._commits_by_way[CommitWay.INLINE],
            ),
            (
                "peeklock_background_commits_total",
                "counter",
                "Commits in the background; the commit thread made all other commits.",
                self._commits_by_way[CommitWay.BACKGROUND],
            ),
            (
                "peeklock_event_loop_lag_seconds",
                "gauge",
                "How late the event loop ran its last timer.",
                self.event_loop_lag_seconds,
            ),
        ):
            family = MetricFamily(name, kind, text)
            family.add(value)
            yield family


class _EntityFamilies:
    """The metrics of entities. Lines are formatted here, because there are very many."""

    def __init__(self) -> None:
        self._depths = MetricFamily("peeklock_messages", "gauge", "Messages in an entity by state.")
        self._sizes = MetricFamily(
            "peeklock_entity_size_bytes", "gauge", "Bytes of messages in an entity."
        )
        self._operations = MetricFamily(
            "peeklock_message_operations_total", "counter", "Messages by what happened to them."
        )
        self._dead_letters = MetricFamily(
            "peeklock_dead_letters_total",
            "counter",
            "Messages that became dead letters, by entity and cause.",
        )
        self._unmatched = MetricFamily(
            "peeklock_unmatched_messages_total",
            "counter",
            "Messages sent to a topic without a matching subscription.",
        )

    def pack(self) -> None:
        """See `MetricFamily.pack`."""
        for family in self.families():
            family.pack()

    def families(self) -> tuple[MetricFamily, ...]:
        """Returns all families."""
        return self._depths, self._sizes, self._operations, self._dead_letters, self._unmatched

    def add(self, namespace: str, entity: Entity) -> None:
        """Adds the depth, the size and the counts of an entity."""
        view = entity.view()
        labels = f'entity="{escape(view.path)}",namespace="{escape(namespace)}"'
        start = f"peeklock_messages{{{labels},state="
        self._depths.lines.append(
            f'{start}"active"}} {view.active_count}.0\n'
            f'{start}"locked"}} {view.locked_count}.0\n'
            f'{start}"deferred"}} {view.deferred_count}.0\n'
            f'{start}"scheduled"}} {view.scheduled_count}.0\n'
            f'{start}"dead_lettered"}} {view.dead_letter_count}.0\n'
            f'{start}"transfer_dead_lettered"}} {view.transfer_dead_letter_count}.0'
        )
        self._sizes.lines.append(f"peeklock_entity_size_bytes{{{labels}}} {view.size_bytes}.0")
        for queue in entity.queues:
            if queue.counts:
                self.add_counts(namespace, queue.path, queue.counts)

    def add_counts(self, namespace: str, path: str, counts: Counts) -> None:
        """Adds the counts of a queue, of a sub-queue, or of operations on missing entities."""
        labels = f'entity="{escape(path)}",namespace="{escape(namespace)}"'
        for what, number in counts.items():
            if isinstance(what, DeadLetterCause):
                self._dead_letters.add(number, f'{{{labels},reason="{what}"}}')
                continue
            self._operations.add(number, f'{{{labels},outcome="{what}"}}')
            if what is Outcome.UNMATCHED:
                self._unmatched.add(number, f"{{{labels}}}")
