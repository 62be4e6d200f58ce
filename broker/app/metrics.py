"""What the broker counts, and how Prometheus reads it.

Counting is plain integer addition when a turn is released; the Prometheus client is only loaded
when somebody scrapes. Labels are entity and outcome, never message or client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.core.effects import Deliver, Refused, SendRefused, SettleRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.app.clients import Clients
    from broker.core.commands import Peer
    from broker.core.effects import EntityView
    from broker.core.turn import Turn

COMMIT_SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
COMMIT_RECORDS_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 1000)


class Histogram:
    """Counts by upper bound, kept without locks: only the event loop writes."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        self.total += value
        for position, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[position] += 1
                return
        self.counts[-1] += 1

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus wants them: each includes those below."""
        labels = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        running = 0
        buckets: list[tuple[str, float]] = []
        for label, count in zip(labels, self.counts, strict=True):
            running += count
            buckets.append((label, float(running)))
        return buckets


class Metrics:
    """All counters of one broker."""

    def __init__(
        self,
        entities: Callable[[], Iterable[tuple[str, EntityView]]],
        clients: Clients,
    ) -> None:
        self._entities = entities
        self._clients = clients
        self._messages: dict[tuple[str, str], int] = {}
        self.commit_seconds = Histogram(COMMIT_SECONDS_BUCKETS)
        self.commit_records = Histogram(COMMIT_RECORDS_BUCKETS)
        self.event_loop_lag_seconds = 0.0

    def committed(self, seconds: float, records: int) -> None:
        """A commit is durable."""
        self.commit_seconds.observe(seconds)
        self.commit_records.observe(records)

    def count(self, turn: Turn) -> None:
        """Add what a turn did and told."""
        for peer, outcome, number in turn.counts:
            self._add(peer, outcome, number)
        for effect in turn.effects:
            measure = _MEASURES.get(type(effect))
            if measure is not None:
                outcome, number = measure(effect)
                self._add(effect.to, outcome, number)  # type: ignore[union-attr]

    def _add(self, peer: Peer, outcome: str, number: int) -> None:
        key = (getattr(peer, "path", ""), outcome)
        self._messages[key] = self._messages.get(key, 0) + number

    def render(self) -> tuple[bytes, str]:
        """The Prometheus exposition and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        of_entities = "\n".join((*self._depths(), *self._operations(), ""))
        return of_entities.encode() + generate_latest(registry), CONTENT_TYPE_LATEST

    # The lines of entities are written here: there may be a hundred thousand, and the Prometheus
    # client would keep everybody waiting for a second with each ten thousand entities.

    def _depths(self) -> Iterator[str]:
        depths: list[str] = []
        sizes: list[str] = []
        for namespace, view in self._entities():
            labels = f'entity="{_escaped(view.path)}",namespace="{_escaped(namespace)}"'
            for state, number in (
                ("active", view.active_count),
                ("locked", view.locked_count),
                ("deferred", view.deferred_count),
                ("scheduled", view.scheduled_count),
                ("dead_lettered", view.dead_letter_count),
                ("transfer_dead_lettered", view.transfer_dead_letter_count),
            ):
                depths.append(f'peeklock_messages{{{labels},state="{state}"}} {number}.0')
            sizes.append(f"peeklock_entity_size_bytes{{{labels}}} {view.size_bytes}.0")
        yield "# HELP peeklock_messages Messages in an entity by state"
        yield "# TYPE peeklock_messages gauge"
        yield from depths
        yield "# HELP peeklock_entity_size_bytes Bytes an entity holds"
        yield "# TYPE peeklock_entity_size_bytes gauge"
        yield from sizes

    def _operations(self) -> Iterator[str]:
        yield "# HELP peeklock_message_operations_total Messages by what happened to them"
        yield "# TYPE peeklock_message_operations_total counter"
        for (entity, outcome), number in self._messages.items():
            labels = f'entity="{_escaped(entity)}",outcome="{outcome}"'
            yield f"peeklock_message_operations_total{{{labels}}} {number}.0"

    def collect(self) -> Iterator[Any]:
        """Called by the Prometheus client: all but what each entity has."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        yield HistogramMetricFamily(
            "peeklock_commit_seconds",
            "Time until a commit was durable",
            buckets=self.commit_seconds.cumulative(),
            sum_value=self.commit_seconds.total,
        )
        yield HistogramMetricFamily(
            "peeklock_commit_records",
            "Records in one commit",
            buckets=self.commit_records.cumulative(),
            sum_value=self.commit_records.total,
        )
        yield GaugeMetricFamily(
            "peeklock_connections", "AMQP connections", value=self._clients.connection_count
        )
        yield CounterMetricFamily(
            "peeklock_connections_opened",
            "AMQP connections ever",
            value=self._clients.connections_total,
        )
        yield GaugeMetricFamily("peeklock_links", "AMQP links", value=self._clients.link_count)
        yield GaugeMetricFamily(
            "peeklock_event_loop_lag_seconds",
            "How late the event loop ran its last timer",
            value=self.event_loop_lag_seconds,
        )


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_MEASURES: dict[type, Callable[[Any], tuple[str, int]]] = {
    SendRefused: lambda _: ("send_refused", 1),
    Deliver: lambda effect: ("delivered", len(effect.messages)),
    SettleRefused: lambda effect: ("settle_refused", len(effect.handles)),
    Refused: lambda _: ("attach_refused", 1),
}
