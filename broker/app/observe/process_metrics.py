"""Metrics of this process from the operating system, measured by the Prometheus client library.

Common dashboards look for `process_*`. The library is imported at the first scrape, so that a
broker without scrapes does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.observe.exposition import MetricFamily, labels_of, sample

if TYPE_CHECKING:
    from collections.abc import Iterator


def process_families() -> Iterator[MetricFamily]:
    """Yields the CPU time, memory and open files of this process."""
    from prometheus_client import ProcessCollector

    for metric in ProcessCollector(registry=None).collect():
        # The text format announces a counter under the name of its samples.
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        family = MetricFamily(name, metric.type, metric.documentation)
        for measured in metric.samples:
            labels = labels_of(measured.labels.items()) if measured.labels else ""
            family.lines.append(sample(measured.name, labels, measured.value))
        yield family
