"""The result of a ledger: counts, and contradictions by kind.

Each ledger defines its kinds of contradictions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Report:
    """How often each thing happened, and every contradiction by kind; a kind that was looked for
    and not found has an empty list."""

    counts: Mapping[str, int]
    violations: dict[str, list[str]] = field(default_factory=dict)

    def plus(self, other: Report) -> Report:
        """Both reports as one, for a workload with several ledgers."""
        violations = {kind: list(texts) for kind, texts in self.violations.items()}
        for kind, texts in other.violations.items():
            violations.setdefault(kind, []).extend(texts)
        counts = dict(self.counts)
        for name, count in other.counts.items():
            counts[name] = counts.get(name, 0) + count
        return Report(counts, violations)

    @property
    def is_clean(self) -> bool:
        return not any(self.violations.values())


class Book:
    """Contradictions by kind. A ledger names all kinds that it looks for, so that the report also
    shows those with none."""

    kinds: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.violations: dict[str, list[str]] = {kind: [] for kind in self.kinds}

    def violate(self, kind: str, text: str) -> None:
        self.violations.setdefault(kind, []).append(text)


def found_in(report: Report) -> dict[str, int]:
    """How many contradictions of each kind there are; nothing where there are none."""
    return {kind: len(texts) for kind, texts in report.violations.items() if texts}
