"""Writes metrics in the text format of Prometheus (exposition format 0.0.4).

The Prometheus client library takes a second for ten thousand entities, so this module formats each
line itself. Label values are escaped. Each family is announced once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NEEDS_ESCAPE = frozenset('\\"\n')


class MetricFamily:
    """One metric: its name, what it is, and its samples."""

    __slots__ = ("_name", "_packed", "lines")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self._name = name
        self._packed = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()]
        self.lines: list[str] = []
        """Formatted samples that are not encoded yet."""

    def add(self, value: float, labels: str = "") -> None:
        """Adds a sample. `labels_of` formats labels."""
        self.lines.append(sample(self._name, labels, value))

    def pack(self) -> None:
        """Encodes the lines so far. Encoding very many lines at the end would block the event loop."""
        if self.lines:
            self._packed.append("\n".join((*self.lines, "")).encode())
            self.lines.clear()

    def content(self) -> list[bytes]:
        """Returns the encoded family, in parts. A family without samples has a header, too."""
        self.pack()
        return self._packed


class Histogram:
    """Counts values by upper bound. It needs no lock, because only the event loop writes."""

    __slots__ = ("_name", "_text", "bounds", "counts", "total")

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Adds one value."""
        self.total += value
        self.counts[bisect_left(self.bounds, value)] += 1

    def content(self) -> list[bytes]:
        """Returns the encoded histogram. Each bucket includes the smaller ones."""
        family = MetricFamily(self._name, "histogram", self._text)
        running = 0
        limits = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        for limit, count in zip(limits, self.counts, strict=True):
            running += count
            family.lines.append(sample(f"{self._name}_bucket", f'{{le="{limit}"}}', running))
        family.lines.append(sample(f"{self._name}_count", "", running))
        family.lines.append(sample(f"{self._name}_sum", "", self.total))
        return family.content()


def sample(name: str, labels: str, value: float) -> str:
    """Returns the line of a sample."""
    return f"{name}{labels} {float(value)!r}"


def labels_of(labels: Iterable[tuple[str, str]]) -> str:
    """Returns labels in braces."""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels) + "}"


def escape(label: str) -> str:
    """Returns the value of a label, escaped."""
    if _NEEDS_ESCAPE.isdisjoint(label):
        return label
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
