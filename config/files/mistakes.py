"""Mistakes in the configuration, collected so that all are reported at once.

A mistake has a position (file, line and path in it, or a variable or flag) and says what is allowed. `ConfigError` is
raised after everything has been read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from config.files.document import Node


@dataclass(frozen=True, slots=True)
class Mistake:
    source: str
    """A file, an environment variable or a flag."""
    line: int | None
    where: str
    """The path inside the file; empty for a variable or flag."""
    text: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.where}: {self.text}" if self.where else f"{place}: {self.text}"


class ConfigError(Exception):
    """The configuration has mistakes, and nothing was started."""

    def __init__(self, mistakes: Sequence[Mistake], warnings: Sequence[Mistake] = ()) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)
        self.warnings = tuple(warnings)
        """The warnings that were found beside the mistakes."""


@dataclass(slots=True)
class ConfigReport:
    """Collects mistakes and warnings. Mistakes prevent a start, warnings do not."""

    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)

    def mistake(self, node: Node, text: str) -> None:
        self.mistakes.append(Mistake(node.source, node.line, node.where, text))

    def warning(self, node: Node, text: str) -> None:
        self.warnings.append(Mistake(node.source, node.line, node.where, text))

    def raise_if_wrong(self) -> None:
        if self.mistakes:
            in_order = sorted(self.mistakes, key=lambda one: (one.source, one.line or 0))
            raise ConfigError(in_order, self.warnings)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns, for instance, `; did you mean 'LockDuration'?`; empty if no name is similar."""
    from difflib import get_close_matches  # loaded for a mistake only

    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    close = get_close_matches(folded, by_folded, n=1, cutoff=0.6) or [
        candidate
        for candidate in by_folded
        if candidate.startswith(folded) or folded.startswith(candidate)
    ]
    return f"; did you mean {by_folded[close[0]]!r}?" if close and folded else ""
