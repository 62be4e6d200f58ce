"""The text that Prometheus reads, checked with the Prometheus client's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from broker.app.observe.exposition import Histogram, MetricFamily, labels_of
from broker.app.observe.process_metrics import process_families


def _parsed(family):
    (parsed,) = text_string_to_metric_families(b"".join(family.content()).decode())
    return parsed


def test_a_family_is_read_back():
    """Name, kind, words, labels and values."""
    family = MetricFamily("peeklock_things_total", "counter", "Things by kind.")
    family.add(3, labels_of((("kind", "large"),)))
    family.add(0.25, labels_of((("kind", "small"),)))
    parsed = _parsed(family)
    assert ("peeklock_things", "counter", "Things by kind.") == (
        parsed.name,
        parsed.type,
        parsed.documentation,
    )
    assert [({"kind": "large"}, 3.0), ({"kind": "small"}, 0.25)] == [
        (sample.labels, sample.value) for sample in parsed.samples
    ]


def test_labels_may_hold_anything():
    """Quotes, backslashes and line ends of a name do not end its line."""
    name = 'a"b\\c\nd}'
    family = MetricFamily("peeklock_things", "gauge", "Things.")
    family.add(1, labels_of((("entity", name),)))
    (sample,) = _parsed(family).samples
    assert name == sample.labels["entity"]


def test_a_histogram_is_cumulative():
    """Each bucket includes those below, and the last has all."""
    histogram = Histogram("peeklock_seconds", "Time.", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    parsed = _parsed(histogram)
    assert "histogram" == parsed.type
    assert [("0.1", 2.0), ("1.0", 3.0), ("+Inf", 4.0)] == [
        (sample.labels["le"], sample.value) for sample in parsed.samples if sample.labels
    ]
    assert [("peeklock_seconds_count", 4.0), ("peeklock_seconds_sum", 7.65)] == [
        (sample.name, sample.value) for sample in parsed.samples if not sample.labels
    ]


def test_the_process_is_shown_under_the_usual_names():
    """Those that dashboards look for."""
    figures = {
        sample.name: sample.value
        for family in process_families()
        for sample in _parsed(family).samples
    }
    assert figures.keys() >= {
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    }
    assert all(value > 0 for value in figures.values())
