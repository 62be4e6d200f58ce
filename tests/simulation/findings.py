"""The findings of a run: the promise that was broken, and what was seen instead.

Formats the sentences that a reader sees first. `trace.py` has the events before them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from tests.crash.ledgers.promises import PROMISES
from tests.crash.ledgers.report import Book

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.crash.ledgers.report import Report

FOUND_CHARACTERS = 300
NO_MISTAKES = "the broker meets no error but those that a fault explains"
AN_END = "every client and the broker come to their end"
NOTHING_LEFT = "a broker that everybody has left holds nothing of them, and what its store holds"
NOT_HUNG_UP = "the broker ends no connection that no fault gives it a reason to end"
NOTHING_UNHANDLED = "no exception is left without somebody who handles it"

COMMIT_FAULTS = frozenset(("fail commit", "fill disk"))
EXPLAINED_BY = {
    "commit.failed": COMMIT_FAULTS,
    "starting_again": COMMIT_FAULTS,
    "start.failed": COMMIT_FAULTS | {"fail read"},
    "start_again.failed": COMMIT_FAULTS | {"fail read"},
    "storage.failed": COMMIT_FAULTS | {"fail read"},
    "storage.full": COMMIT_FAULTS | {"lose room"},
}
"""Errors that the broker may log, and the faults that each needs. No fault explains any other."""
ENDING_FAULTS = COMMIT_FAULTS | {"fail read", "stop in order", "stall connection"}
"""Those after which the broker may end a connection by itself."""


class Finding(NamedTuple):
    """One promise that was broken."""

    promise: str
    found: str
    details: str = ""
    """A traceback, for example."""

    @property
    def sentence(self) -> str:
        found = " ".join(self.found.split())
        if len(found) > FOUND_CHARACTERS:
            found = f"{found[:FOUND_CHARACTERS]}..."
        return f"promised: {self.promise}; found: {found}"


def failure(promise: str, what: str, trace: str) -> Finding:
    """An exception, by its traceback: the last line says what it is."""
    lines = trace.strip().splitlines() or [""]
    return Finding(promise, f"{what}: {lines[-1]}", trace)


def findings_of(report: Report) -> Iterator[Finding]:
    """Every contradiction that a ledger has."""
    for kind, texts in report.violations.items():
        for text in texts:
            yield Finding(PROMISES[kind], f"{kind}: {text}")


@contextmanager
def noted(note: Callable[[str], None]) -> Iterator[None]:
    """Adds each contradiction to the trace when a ledger finds it, among the events around it."""
    violate = Book.violate

    def note_and_violate(self: Book, kind: str, text: str) -> None:
        note(f"{kind}: {text}")
        violate(self, kind, text)

    with mock.patch.object(Book, "violate", note_and_violate):
        yield


def sentences(findings: Sequence[Finding]) -> Iterator[str]:
    """Returns one sentence for each broken promise, by its first finding, and the number of the
    others."""
    by_promise: dict[str, list[Finding]] = {}
    for finding in findings:
        by_promise.setdefault(finding.promise, []).append(finding)
    for same in by_promise.values():
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        yield f"{same[0].sentence}{more}"
